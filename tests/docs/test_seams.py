"""The seams that later features need are there, and nothing is exported early."""

import re
from importlib import import_module

import pytest

import embedq
from embedq import Broker, Queue
from tests.docs.markdown import ROOT

PAGE = (ROOT / "docs" / "decisions" / "0012-room-for-later.md").read_text()
SEAMS = sorted(set(re.findall(r"`(embedq[\w.]*:[\w.]+)`", PAGE)))

#: Words of features that do not exist yet.
LATER = {"job", "schedule", "outbox", "rate", "fixture", "result", "enqueue", "serve"}


def resolve(seam: str) -> object:
    module, _, names = seam.partition(":")
    found: object = import_module(module)
    for name in names.split("."):
        found = getattr(found, name)
    return found


@pytest.mark.parametrize("seam", SEAMS)
def test_a_seam_is_where_the_page_says(seam: str) -> None:
    assert (getattr(resolve(seam), "__doc__", None) or "").strip()


def test_the_page_names_seams_and_one_that_is_gone_would_be_noticed() -> None:
    assert len(SEAMS) >= 12
    with pytest.raises(AttributeError):
        resolve("embedq.events:Events.gone")


@pytest.mark.parametrize("place", [embedq, Broker, Queue])
def test_nothing_of_it_is_exported(place: object) -> None:
    names = {name.lower() for name in dir(place) if not name.startswith("_")}
    assert not names & LATER
