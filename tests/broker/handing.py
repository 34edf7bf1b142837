"""What the tests of direct puts are written with: somebody waits, puts meet in one commit.

Knows: how to wait without a thread, how to commit tasks as one group.
Does not know: what a put must hand over.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from embedq.broker.desk import Desk
from embedq.broker.direct import PlainPut, PutMessages
from embedq.broker.intake import checksum, row_of
from embedq.broker.leases import Lease
from embedq.broker.moves import Claim
from embedq.broker.state import GroupState, QueueState
from embedq.broker.waiting import Waiter
from embedq.storage.ops import PutPlain
from embedq.storage.writer import Task

SOON = 20.0  # a hang fails, it does not pass
LEASE_S = 100.0


def wait(desk: Desk, group: GroupState, most: int = 1, session: int | None = None) -> Waiter:
    """Let somebody wait without a thread: see what it was handed in `handed()`."""
    assert desk.claim(group) == []
    waiter = Waiter()
    task = Claim(desk, group, most, LEASE_S, session or desk.session, waiter=waiter)
    desk.writer.run(task)
    assert task.waits
    return waiter


def seqs(leases: Sequence[Lease]) -> list[int]:
    return [lease.seq for lease in leases]


def poll(condition: Callable[[], object]) -> None:
    pause = threading.Event()
    for _ in range(2_000):
        if condition():
            return
        pause.wait(0.005)
    raise AssertionError("it did not happen")


def plain(desk: Desk, queue: QueueState, body: bytes) -> PlainPut:
    op = PutPlain(queue.id, desk.now_ms(), 0, [checksum(None, body), body], 1)
    return PlainPut(desk, queue, op, len(body))


def rows(desk: Desk, queue: QueueState, *drafts) -> PutMessages:
    now = desk.now_ms()
    return PutMessages(desk, queue, [row_of(each, now) for each in drafts], now)


def together(desk: Desk, *tasks: Task) -> None:
    """Commit tasks as one group."""
    left = threading.Semaphore(0)
    with desk.writer.lock:
        for task in tasks:
            desk.writer.send(task, left.release)
    for _ in tasks:
        assert left.acquire(timeout=SOON)
    with desk.writer.lock:
        pass
