"""Operations say what to do, and leave the answers to the commit."""

from __future__ import annotations

import inspect

import pytest

from embedq.lifecycle import Outcome, Reason
from embedq.storage import memory_ops, ops
from embedq.storage.ops import Bury, Cancel, Op, PutPlain, PutRows, Redrive, Start

KINDS = [
    kind
    for kind in vars(ops).values()
    if isinstance(kind, type) and issubclass(kind, Op) and kind is not Op
]


@pytest.mark.parametrize("kind", KINDS)
def test_an_operation_is_small_and_says_what_it_changes(kind: type[Op]) -> None:
    assert hasattr(kind, "__slots__")
    assert "__dict__" not in dir(kind)
    assert (inspect.getdoc(kind) or "").endswith(".")


@pytest.mark.parametrize("kind", KINDS)
def test_the_store_in_memory_knows_every_operation(kind: type[Op]) -> None:
    assert memory_ops.apply.dispatch(kind) is not memory_ops.apply.dispatch(Op)


def test_before_the_commit_nothing_is_answered() -> None:
    assert PutPlain(1, 0, 0, [], 0).first == 0
    rows = PutRows(1, 0, [])
    assert (rows.seqs, rows.stored) == ([], [])
    assert Start(1, 0, None, 1, [], []).messages is None
    bury = Bury(1, 2, 3, Reason.EXPIRED)
    assert (bury.dead_id, bury.removed, bury.outcome) == (None, 0, Outcome.FAILED)


def test_operations_do_not_share_their_answers() -> None:
    first, second = Cancel(1, []), Cancel(1, [])
    first.removed.append(7)
    assert second.removed == []
    assert Redrive(1, [], [], 0).seqs is not Redrive(1, [], [], 0).seqs
