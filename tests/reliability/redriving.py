"""A host that redrives many dead letters and is killed; and what there must be afterwards.

Knows: how many letters there are and where each one must be found, once.
Does not know: how letters are moved, when it is killed.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from pathlib import Path

import msgspec

from embedq import Broker
from embedq.broker.desk import Desk
from embedq.broker.host import open_engine
from embedq.storage.rows import REDRIVEN_FROM
from embedq.storage.sqlite import SqliteStore

QUEUE = "orders"
_PART = 10_000


_BURY = (
    "INSERT INTO dead(seq,grp,queue,died,reason,detail,moved_by,put_at,kind,crc,priority,body) "
    "SELECT seq,?,queue,put_at,iif(seq%10=8,'age','rejected'),'','',put_at,kind,crc,priority,body "
    "FROM msg"
)


def bury(path: Path, count: int) -> None:
    """Make a file with `count` dead letters; their bodies are their numbers.

    Every tenth has another reason, and must not be moved. They are buried with SQL: by rejecting
    each, a hundred thousand take a minute.
    """
    with open_engine(path, durability="normal", upkeep=False) as desk:
        queue = desk.queue(QUEUE)
        group = desk.group(queue)
        for first in range(0, count, _PART):
            numbers = range(first, min(first + _PART, count))
            desk.put_many(queue, [b"%d" % number for number in numbers])
        assert isinstance(desk.store, SqliteStore)
        with desk.writer.lock:
            desk.store.connection.execute("BEGIN")
            desk.store.connection.execute(_BURY, (group.id,))
            desk.store.connection.execute("DELETE FROM msg")
            desk.store.connection.execute("COMMIT")
            desk.rebuild(group)
        desk.upkeep.count()


def problems(desk: Desk, count: int) -> list[str]:
    """Say which letters are lost, doubled, or moved though they did not fit."""
    queue = desk.queues[QUEUE]
    found: Counter[int] = Counter()
    told: list[str] = []
    after = 0
    while rows := desk.store.range(queue.id, after, _PART):
        after = rows[-1].seq
        for row in rows:
            number = int(row.body)
            found[number] += 1
            headers = {} if row.headers is None else msgspec.msgpack.decode(row.headers)
            if headers != {REDRIVEN_FROM: desk.ids.encode(number + 1)}:
                told.append(f"{number} does not say where it comes from")
            if row.body.endswith(b"7"):
                told.append(f"{number} was moved, though it did not fit")
    after = 0
    while letters := desk.store.dead(queue.id, after, _PART):
        after = letters[-1].id
        found.update(int(letter.body) for letter in letters)
    told += [f"{number} is lost" for number in range(count) if not found[number]]
    told += [f"{number} is there {times} times" for number, times in found.items() if times > 1]
    return told


def redrive(path: str) -> None:
    """Redrive what was rejected, and tell how far it is."""
    broker = Broker(path)
    dead = broker.queue(QUEUE).dead

    def tell(done: int, _total: int) -> None:
        sys.stdout.write(f"{done}\n")
        sys.stdout.flush()
        threading.Event().wait(0.005)  # whoever kills it needs a turn, too, before it is done

    dead.redrive(reason="rejected", progress=tell)
    broker.stop()


if __name__ == "__main__":
    redrive(sys.argv[1])
