"""What a host tells of a queue and a lease, for tests of what the client makes of it."""

from __future__ import annotations

from embedq.broker.office import GroupInfo, QueueInfo
from embedq.ipc.frames import WireLease
from embedq.ipc.handles import RemoteQueue
from embedq.policy import QueuePolicy
from embedq.storage.rows import Stored


def queue(*groups: str, paused: bool = False) -> RemoteQueue:
    return RemoteQueue(info(*(groups or ("default",)), paused=paused))


def info(*groups: str, paused: bool = False) -> QueueInfo:
    told = tuple(GroupInfo(number, name) for number, name in enumerate(groups, 1))
    return QueueInfo(1, "orders", QueuePolicy(max_attempts=4), paused, told)


def wire_lease(counter: int = 1, seq: int = 1) -> WireLease:
    message = Stored(seq, 1, 0, 0, 0, 0, None, None, None, None, None, b"x")
    return WireLease(counter, 1, counter, 30_000, 4, suspect=False, message=message)
