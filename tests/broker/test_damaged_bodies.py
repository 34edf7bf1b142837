"""A body that is no longer what was put is never delivered (promise P4)."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from embedq.broker.host import open_engine
from embedq.lifecycle import Reason
from embedq.message import draft


def change(path: Path, column: str) -> None:
    """Flip one bit in message 2, which SQLite does not notice."""
    with closing(sqlite3.connect(path)) as database, database:
        (value,) = database.execute(f"SELECT {column} FROM msg WHERE seq=2").fetchone()
        flipped = value[:-1] + bytes([value[-1] ^ 1])
        database.execute(f"UPDATE msg SET {column}=? WHERE seq=2", (flipped,))
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.parametrize("column", ["body", "headers"])
def test_a_message_with_a_flipped_bit_is_dead_as_corrupt_and_the_next_proceeds(
    tmp_path: Path, column: str
) -> None:
    path = tmp_path / "q.db"
    with open_engine(path, upkeep=False) as engine:
        queue = engine.queue("q")
        group = engine.group(queue)
        engine.put_drafts(queue, [draft(b"%d" % n, headers={"n": str(n)}) for n in (1, 2, 3)])
    change(path, column)
    with open_engine(path, upkeep=False) as engine:
        queue = engine.queue("q")
        group = engine.group(queue)
        assert [lease.message.body for lease in engine.claim(group, most=10)] == [b"1", b"3"]
        (letter,) = engine.store.dead(queue.id, 0, 10)
        assert (letter.seq, letter.reason) == (2, Reason.CORRUPT)
        assert (queue.stored, queue.dead) == (2, 1)
