"""A host for tests of the client's end: says and does exactly what the test wants, wrong or right.

Every client that says hello is welcomed, unless the test says otherwise.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self, TypeVar

import zmq

from embedq.ipc import frames
from embedq.ipc.link import Link
from embedq.ipc.place import Found

R = TypeVar("R", bound=frames.Request)

SOON = 20.0


class ScriptedHost:
    """One ROUTER. `epoch` makes its address: hosts that follow each other have others."""

    def __init__(self, folder: Path, epoch: int = 1) -> None:
        self.epoch = epoch
        self.endpoint = f"ipc://{folder}/{epoch}"
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket = self.context.socket(zmq.ROUTER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.bind(self.endpoint)
        self.client = b""
        self.inbox: deque[frames.Requests] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """End as a killed process does: connections are closed, nothing is said."""
        if not self.socket.closed:
            self.socket.close()
            self.context.term()

    def raw(self, data: bytes) -> None:
        self.socket.send_multipart([self.client, data])

    def say(self, *answers: frames.Answer) -> None:
        self.raw(frames.encode(answers))

    def get(self, kind: type[R], timeout: float = SOON) -> R:
        """Return the next request of a kind; those before it wait."""
        until = time.monotonic() + timeout
        while True:
            for request in self.inbox:
                if isinstance(request, kind):
                    self.inbox.remove(request)
                    return request
            left = until - time.monotonic()
            if left <= 0 or not self.socket.poll(round(left * 1000)):
                raise AssertionError(f"no {kind.__name__} came; there is {list(self.inbox)}")
            self.client, data = self.socket.recv_multipart()
            self.inbox.extend(frames.decode_requests(data))

    def welcome(self, **fields: object) -> frames.Hello:
        """Wait for a client and welcome it."""
        hello = self.get(frames.Hello)
        known = {
            "version": frames.VERSIONS[0],
            "epoch": self.epoch,
            "session": 7,
            "pid": 1,
            "key": bytes(16),
            "now_ms": 0,
        }
        self.say(frames.Welcome(**(known | fields)))  # type: ignore[arg-type]
        return hello


class Scene:
    """A folder of scripted hosts, and links that find the latest of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hosts: list[ScriptedHost] = []
        self.links: list[Link] = []

    def host(self) -> ScriptedHost:
        made = ScriptedHost(self.folder, len(self.hosts) + 1)
        self.hosts.append(made)
        return made

    def find(self) -> Found | None:
        if not self.hosts or self.hosts[-1].socket.closed:
            return None
        return Found(1, self.hosts[-1].epoch, self.hosts[-1].endpoint)

    def link(self, **options: object) -> Link:
        """Return a link that has been started, whether or not anybody serves it."""
        made = Link(self.find, hello, **options)  # type: ignore[arg-type]
        self.links.append(made)
        made.begin()
        return made

    def close(self) -> None:
        for host in self.hosts:
            host.end()
        for link in self.links:
            link.close()


def hello() -> frames.Hello:
    return frames.Hello(list(frames.VERSIONS), b"s" * 16, "test", 1)


@contextmanager
def scene(folder: Path) -> Iterator[Scene]:
    made = Scene(folder)
    try:
        yield made
    finally:
        made.close()


def until(condition: Callable[[], object], what: str = "") -> None:
    """Wait for a condition; the test fails if it does not come true."""
    end = time.monotonic() + SOON
    pause = zmq.Poller()
    while not condition():
        assert time.monotonic() < end, f"it never happened: {what or condition}"
        pause.poll(5)
