"""A served desk on a file, and peers that are closed afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from embedq.broker.desk import Desk
from embedq.broker.host import open_engine
from embedq.broker.state import GroupState, QueueState
from embedq.ipc.server import Server
from tests.ipc.peer import Peer


class Served:
    """A desk on a file, a server for it, one queue with one group."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stack = ExitStack()
        self.desk: Desk = open_engine(path)
        self.stack.callback(self.desk.close)
        self.queue: QueueState = self.desk.queue("orders")
        self.group: GroupState = self.desk.group(self.queue)
        self.server = Server(self.desk, path)

    def start(self, **options: Any) -> None:
        if options:
            self.server = Server(self.desk, self.path, **options)
        self.server.start()
        self.stack.callback(self.server.stop)

    def peer(self, *, hello: bool = True, **options: Any) -> Peer:
        peer = self.stack.enter_context(Peer(self.server.endpoint, **options))
        if hello:
            peer.hello()
        return peer

    @property
    def q(self) -> int:
        return self.queue.id

    @property
    def g(self) -> int:
        return self.group.id


@pytest.fixture
def unstarted(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path / "q.db")
    with served.stack:
        yield served


@pytest.fixture
def served(unstarted: Served) -> Served:
    unstarted.start()
    return unstarted


@pytest.fixture
def without_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts ask nobody for a sign of life: who does not read cannot give one, either."""
    monkeypatch.setattr("embedq.ipc.router._HEARTBEAT_MS", 0)


Start = Callable[..., None]
