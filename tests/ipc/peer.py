"""A small client for tests of the server: one DEALER, frames in, frames out."""

from __future__ import annotations

import itertools
import os
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Self, TypeVar

import zmq

from embedq.ipc import frames
from embedq.ipc.line import DEAD_MS, HEARTBEAT_MS

A = TypeVar("A", bound=frames.Answer)


class Peer:
    """Speaks frames with a server. `session`: the same token is the same session again."""

    def __init__(
        self,
        endpoint: str,
        *,
        session: bytes | None = None,
        numbers: itertools.count[int] | None = None,
        rcvhwm: int = 1000,
        prepare: Callable[[zmq.Socket[bytes]], object] = lambda _: None,
    ) -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.RCVHWM, rcvhwm)
        self.socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
        self.socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, DEAD_MS)
        self.socket.setsockopt(zmq.HEARTBEAT_TTL, DEAD_MS)
        prepare(self.socket)
        self.socket.connect(endpoint)
        self.token = session or secrets.token_bytes(16)
        self.numbers = numbers or itertools.count(1)
        self.inbox: deque[frames.Answers] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if not self.socket.closed:
            self.socket.close()
            self.context.term()

    # ------------------------------------------------------------------------ sending

    def send(self, *requests: frames.Request) -> None:
        self.socket.send(frames.encode(requests))

    def n(self) -> int:
        return next(self.numbers)

    def hello(self, **fields: Any) -> frames.Welcome:
        known: dict[str, Any] = {
            "versions": list(frames.VERSIONS),
            "session": self.token,
            "name": "peer",
            "pid": os.getpid(),
        }
        self.send(frames.Hello(**(known | fields)))
        return self.get(frames.Welcome)

    def ask(self, make: Callable[[int], frames.Request]) -> frames.Answers:
        n = self.n()
        self.send(make(n))
        return self.answer_to(n)

    def put(self, queue: int, *bodies: bytes, seen: int = 0) -> int:
        answer = self.ask(lambda n: frames.Put(n, queue, 0, list(bodies), seen))
        assert isinstance(answer, frames.Stored_), answer
        return answer.first

    def exchange(
        self, *endings: frames.WireEnding, group: int = 0, most: int = 0, **more: Any
    ) -> frames.Exchanged:
        answer = self.ask(lambda n: frames.Exchange(n, list(endings), group, most, **more))
        assert isinstance(answer, frames.Exchanged), answer
        return answer

    def bye(self) -> None:
        assert isinstance(self.ask(frames.Bye), frames.Done)

    # ---------------------------------------------------------------------- receiving

    def receive(self, timeout: float = 20.0) -> bool:
        """Take in what has come, waiting for something; False: nothing came in time."""
        if not self.socket.poll(round(timeout * 1000)):
            return False
        self.inbox.extend(frames.decode_answers(self.socket.recv()))
        return True

    def find(self, wanted: Callable[[frames.Answers], bool], timeout: float = 20.0) -> Any:
        until = time.monotonic() + timeout
        while True:
            for answer in self.inbox:
                if wanted(answer):
                    self.inbox.remove(answer)
                    return answer
            left = until - time.monotonic()
            if left <= 0 or not self.receive(left):
                raise AssertionError(f"nothing of the kind came; there is {list(self.inbox)}")

    def get(self, kind: type[A], timeout: float = 20.0) -> A:
        found: A = self.find(lambda answer: isinstance(answer, kind), timeout)
        return found

    def answer_to(self, n: int, timeout: float = 20.0) -> frames.Answers:
        found: frames.Answers = self.find(
            lambda answer: (
                getattr(answer, "n", None) == n and not isinstance(answer, frames.Progress)
            ),
            timeout,
        )
        return found


def done(lease: frames.WireLease, group: int) -> frames.WireEnding:
    return frames.WireEnding(group, lease.message.seq, lease.counter)


def released(lease: frames.WireLease, group: int) -> frames.WireEnding:
    return frames.WireEnding(group, lease.message.seq, lease.counter, 3)


def eventually(check: Callable[[], object], timeout: float = 20.0) -> None:
    """Wait until `check()` is true, by looking again and again."""
    gate = threading.Event()
    until = time.monotonic() + timeout
    while not check():
        assert time.monotonic() < until, "it did not happen in time"
        gate.wait(0.005)
