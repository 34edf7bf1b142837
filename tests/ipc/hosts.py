"""One host after the other on the same file, and clients that outlive them, for tests."""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from pathlib import Path

from embedq import QueuePolicy
from embedq.broker.desk import Desk
from embedq.broker.host import open_engine
from embedq.broker.state import GroupState
from embedq.ipc import frames
from embedq.ipc.marks import Marks
from embedq.ipc.place import folder_of, make_folder, sessions_left
from embedq.ipc.server import Server
from tests.ipc.peer import Peer


class Hosts:
    """One host after the other on the same file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stack = ExitStack()
        self.desk: Desk | None = None
        self.server: Server

    def open(self, *, serve: bool = True, grace_s: float = 1.0) -> GroupState:
        """Become the host, after the last one has died without a word."""
        if self.desk is not None:
            self.server.stop()
            self.desk.writer.close()
            self.desk.upkeep.stop()
            self.desk.store.close(clean=False)
        left = sessions_left(self.path)
        self.desk = open_engine(self.path, survivors=left)
        self.queue = self.desk.queue("orders", QueuePolicy(max_attempts=9))
        self.group = self.desk.group(self.queue)
        self.server = Server(self.desk, self.path, grace_s=grace_s)
        if serve:
            self.server.start()
        return self.group

    def close(self) -> None:
        assert self.desk is not None
        self.stack.close()
        self.server.stop()
        self.desk.close()


class Client:
    """A client of one host after the other, with marks."""

    def __init__(self, hosts: Hosts) -> None:
        self.hosts = hosts
        self.numbers = itertools.count(1)
        self.peer = Peer(hosts.server.endpoint, numbers=self.numbers)
        self.marks = Marks.create(make_folder(folder_of(hosts.path)), self.peer.token)
        hosts.stack.callback(self.close)
        self.epoch = 0
        self.hello()

    def hello(self, held: list[frames.Held] | None = None) -> frames.Welcome:
        welcome = self.peer.hello(epoch=self.epoch, marks=str(self.marks.path), held=held or [])
        self.epoch = welcome.epoch
        self.marks.renew(welcome.epoch)
        return welcome

    def claim(self, count: int, started: int) -> list[frames.WireLease]:
        found: list[frames.WireLease] = []
        while len(found) < count:
            found += self.peer.exchange(
                group=self.hosts.group.id, most=count - len(found), wait_ms=20_000, keep=True
            ).leases
        for lease in found[:started]:
            self.marks.start(lease.mark, lease.counter)
        return found

    def again(self, held: list[frames.Held]) -> frames.Welcome:
        token = self.peer.token
        self.peer.close()
        self.peer = Peer(self.hosts.server.endpoint, session=token, numbers=self.numbers)
        return self.hello(held)

    def close(self) -> None:
        self.peer.close()
        self.marks.close()


def shown(group: GroupState, lease: frames.WireLease, *, started: bool = False) -> frames.Held:
    seq = lease.message.seq
    return frames.Held(group.id, seq, lease.counter, started=started, mark=lease.mark, keep=True)


def put(hosts: Hosts, count: int) -> list[int]:
    assert hosts.desk is not None
    return list(hosts.desk.put_many(hosts.queue, [b"%d" % n for n in range(count)]))
