"""Every error ends with a code, and every code is explained."""

import pytest

from embedq import errors
from embedq.cli.exits import MEANINGS, ROWS, Exit, exit_of


def classes(root):
    return [root, *(found for kind in root.__subclasses__() for found in classes(kind))]


KINDS = [kind for kind in classes(errors.EmbedqError) if kind.__module__ == errors.__name__]


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_but_the_root_has_a_code_of_its_own_meaning(kind):
    code = exit_of(kind("text"))
    assert (code is Exit.DEFECT) == (kind is errors.EmbedqError)
    assert code not in {Exit.OK, Exit.IO}


def test_every_code_is_explained_once():
    assert set(MEANINGS) == set(Exit)
    assert len(set(MEANINGS.values())) == len(Exit)


def test_the_codes_that_scripts_rely_on_stay():
    wanted = {
        errors.Empty: 1,
        errors.QueueNotFound: 1,
        errors.UnknownMessage: 1,
        errors.InvalidName: 2,
        errors.LimitExceeded: 2,
        errors.StoreInUse: 3,
        errors.StoreFull: 4,
        errors.StoreBusy: 4,
        errors.StoreFailed: 4,
        errors.QueueFull: 4,
        errors.StoreCorrupt: 5,
        errors.SchemaMissing: 5,
        errors.NotAnEmbedqFile: 6,
        errors.SchemaTooNew: 6,
    }
    assert {kind: int(exit_of(kind("text"))) for kind in wanted} == wanted


def test_no_row_is_hidden_by_one_above_it():
    for at, (kind, _) in enumerate(ROWS):
        assert not any(issubclass(kind, above) for above, _ in ROWS[:at])
