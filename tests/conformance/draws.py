"""What the machine draws: messages, candidates by number, names.

Knows: how to keep examples small, so that a failure is shown by few steps.
Does not know: stores, operations.
"""

from __future__ import annotations

from typing import TypeVar

from hypothesis import strategies as st

from embedq.message import ErrorInfo
from embedq.storage.rows import Row
from tests.conformance.scenario import row
from tests.conformance.sides import KEYS, PRIORITIES

T = TypeVar("T")

GONE = 1 << 30  # a seq and an id that nothing ever gets
QUEUES = ("orders", "mail")
GROUPS = ("default", "audit", "late")

picks = st.integers(0, 30)  # which of the candidates, modulo their number
some_picks = st.lists(picks, min_size=1, max_size=5)
some_bodies = st.lists(st.binary(max_size=3), min_size=1, max_size=3)
errors = st.sampled_from([None, ErrorInfo("ValueError", "no").encode()])


def pick(candidates: list[T], number: int) -> T:
    return candidates[number % len(candidates)]


def pick_some(candidates: list[T], numbers: list[int]) -> list[T]:
    return list(dict.fromkeys(pick(candidates, number) for number in numbers))


@st.composite
def rows(draw: st.DrawFn) -> Row:
    """Draw a message that uses any of the options. Times end in 5, so that none equals `now`."""
    time = st.none() | st.integers(0, 30).map(lambda n: 1_005 + 10 * n)
    dedup_key = draw(st.sampled_from([None, None, None, "d", "e"]))
    return row(
        draw(st.binary(max_size=4)),
        kind=draw(st.integers(0, 2)),
        priority=draw(st.sampled_from([0, *PRIORITIES])),
        due=draw(time),
        expires=draw(time),
        key=draw(st.sampled_from([None, None, None, *KEYS])),
        max_attempts=draw(st.sampled_from([None, 0, 3])),
        headers=draw(st.sampled_from([None, b"\x81\xa1a\xa1b"])),
        dedup_key=dedup_key,
        dedup_until=0 if dedup_key is None else 1_005 + 10 * draw(st.integers(0, 30)),
    )
