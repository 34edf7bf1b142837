"""Records are plain: what is kept never changes behind the back of who holds it."""

from __future__ import annotations

import pytest

from embedq.policy import QueuePolicy
from embedq.storage import rows
from embedq.storage.rows import Chunk, DueChunk, GroupRow, QueueRow, Row, Waiting

TUPLES = [
    kind
    for kind in vars(rows).values()
    if isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")
]


def test_the_records_are_all_looked_at() -> None:
    assert {kind.__name__ for kind in TUPLES} >= {"Stored", "Row", "DeliveryRow", "DeadRow"}


@pytest.mark.parametrize("kind", TUPLES)
def test_a_record_cannot_be_changed(kind: type) -> None:
    record = kind(*range(len(kind._fields)))  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        setattr(record, kind._fields[0], 1)  # type: ignore[attr-defined]


def test_rows_of_the_catalogue_can_be_changed_but_not_extended() -> None:
    queue = QueueRow(1, "q", QueuePolicy(), paused=False, stored=0, dead=0, last=0)
    queue.paused = True
    group = GroupRow(1, 1, "g", 0, 0)
    group.floor = 7
    for row in (queue, group):
        with pytest.raises(AttributeError):
            row.colour = "red"  # type: ignore[union-attr]


def test_a_row_to_put_has_no_dedup_key_unless_it_is_given() -> None:
    row = Row(0, 0, 0, None, None, None, None, None, b"")
    assert (row.dedup_key, row.dedup_until) == (None, 0)


def test_chunks_tell_where_the_next_one_begins() -> None:
    waiting = Waiting(3, 0, "k", None, None, None)
    assert Chunk([1], [waiting], 3).after == 3
    assert DueChunk([], (10, 2), complete=True).after == (10, 2)
