"""A process of clients: each has a connection of its own, all of them share one thread.

Knows: sockets, when to end. Does not know: what the bytes mean (bench_listener_wires.py), embedq.
Started by bench_listener_sides.py, so that clients do not share the interpreter of the host.

    bench_listener_client.py VERB WIRE BURST PORT CONNECTIONS    (BURST 0: as the wire has it)

Each line of its input says for how many seconds; each answer is a line of JSON: how many messages
were written (0 for consumers: the server knows better), the seconds until the last connection was
closed by the server.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from time import perf_counter
from typing import Final

from bench_listener_wires import ALL, Wire, bare
from bench_zbus_bytes import Echoed

_READ: Final = 1 << 18
_PATIENCE_S: Final = 120.0
#: How long consumers wait for what they asked for, once their time is over.
_LAST_S: Final = 0.5

Address = tuple[str, int]


class Crowd:
    """Connections that do the same, for a time, each until the server has closed it."""

    def __init__(self, address: Address, wire: Wire, make: Callable[[Crowd], Client]) -> None:
        self.address = address
        self.wire = wire
        self.selector = selectors.DefaultSelector()
        self.written = 0
        self._make = make
        self._end = 0.0

    @property
    def over(self) -> bool:
        """Whether the time is over."""
        return perf_counter() >= self._end

    def run(self, connections: int, seconds: float) -> tuple[int, float]:
        """Do it; return how many messages were written and how long everything took."""
        self.written = 0
        begun = perf_counter()
        self._end = begun + seconds
        clients = [self._make(self) for _ in range(connections)]
        told = False
        while self.selector.get_map():
            now = perf_counter()
            if now >= self._end and not told:
                told = True
                for client in clients:
                    client.time_over()
            patience = self._end - now if now < self._end else _LAST_S if told else 0.0
            ready = self.selector.select(patience)
            for key, events in ready:
                key.data.turn(events)
            if told and not ready:
                for client in clients:
                    client.give_up()
                if perf_counter() > self._end + _PATIENCE_S:
                    raise TimeoutError("the server does not close")
        return self.written, perf_counter() - begun


class Client(ABC):
    """One client, which may need one connection after the other."""

    def __init__(self, crowd: Crowd) -> None:
        self.crowd = crowd
        self.is_open = False
        self.open()

    def open(self) -> None:
        """Connect."""
        self.socket = socket.create_connection(self.crowd.address, _PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.is_open = True
        self.crowd.selector.register(self.socket, self.events(), self)

    @staticmethod
    @abstractmethod
    def events() -> int:
        """Return what a new connection waits for."""

    @abstractmethod
    def turn(self, events: int) -> None:
        """Go on."""

    @abstractmethod
    def time_over(self) -> None:
        """Begin nothing more."""

    @abstractmethod
    def give_up(self) -> None:
        """Wait no longer for what was asked for and does not come."""

    def shut(self) -> None:
        """Say that no more comes: the server closes once everything is stored."""
        self.socket.shutdown(socket.SHUT_WR)
        self.crowd.selector.modify(self.socket, selectors.EVENT_READ, self)

    def close(self) -> None:
        """The server has closed."""
        self.is_open = False
        self.crowd.selector.unregister(self.socket)
        self.socket.close()


class Putter(Client):
    """Writes bursts of messages as fast as the server reads them, each on its own connection."""

    def __init__(self, crowd: Crowd) -> None:
        self._burst = memoryview(crowd.wire.hello + crowd.wire.put * crowd.wire.burst)
        super().__init__(crowd)

    def open(self) -> None:
        """Connect, and begin with the first message."""
        self._at = 0
        super().open()

    @staticmethod
    def events() -> int:
        """Return that it writes first."""
        return selectors.EVENT_READ | selectors.EVENT_WRITE

    def turn(self, events: int) -> None:
        """Write on; read what nobody wants."""
        if events & selectors.EVENT_READ and not self.socket.recv(_READ):
            self._closed()
        elif events & selectors.EVENT_WRITE:
            self._at += self.socket.send(self._burst[self._at :])
            if self._at == len(self._burst):
                self.shut()

    def _closed(self) -> None:
        if self._at < len(self._burst):
            raise ConnectionError("the server has closed before everything was written")
        self.crowd.written += self.crowd.wire.burst
        self.close()
        if not self.crowd.over:
            self.open()

    def time_over(self) -> None:
        """End with the burst that is being written."""

    def give_up(self) -> None:
        """Wait on: what was written is stored sooner or later."""


class Asker(Client):
    """Puts one message after the other over HTTP: each waits for the answer to the one before."""

    def open(self) -> None:
        """Connect and put."""
        self._came = b""
        self._size = 0
        self._done = False
        super().open()
        self.socket.sendall(self.crowd.wire.put)

    @staticmethod
    def events() -> int:
        """Return that it reads."""
        return selectors.EVENT_READ

    def turn(self, events: int) -> None:  # noqa: ARG002  # it only reads
        """Put the next one once the answer is there."""
        data = self.socket.recv(_READ)
        if not data:
            if not self._done:
                raise ConnectionError("the server has closed before it answered")
            self.close()
            return
        self._came += data
        self._size = self._size or self._measure()
        if not 0 < self._size <= len(self._came):
            return
        self._came = self._came[self._size :]
        self.crowd.written += 1
        if self.crowd.over:
            self._done = True
            self.shut()
        else:
            self.socket.sendall(self.crowd.wire.put)

    def _measure(self) -> int:
        """Return the bytes of an answer, 0 while its head is not there: all are of one size."""
        head, found, _ = self._came.partition(b"\r\n\r\n")
        if not found:
            return 0
        if not head.startswith(b"HTTP/1.1 200 "):
            raise ConnectionError(f"the server says {head!r}")
        length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        return len(head) + len(found) + int(length)

    def time_over(self) -> None:
        """End with the answer that is waited for."""

    def give_up(self) -> None:
        """Wait on: it comes."""


class Taker(Client):
    """Takes messages and settles them."""

    def __init__(self, crowd: Crowd) -> None:
        self._shut = False
        super().__init__(crowd)

    def open(self) -> None:
        """Connect and ask."""
        self._consumer = self.crowd.wire.consumer()
        super().open()
        # What one window holds must fit: it is written at once.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _READ)
        self.socket.sendall(self._consumer.begin())

    @staticmethod
    def events() -> int:
        """Return that it reads."""
        return selectors.EVENT_READ

    def turn(self, events: int) -> None:  # noqa: ARG002  # it only reads
        """Settle what has come."""
        data = self.socket.recv(_READ)
        if not data:
            self.close()
            if self._consumer.once and not self.crowd.over:
                self.open()
            return
        over = self.crowd.over
        answer = b"" if self._shut else self._consumer.came(data, over=over)
        if answer:
            # The server reads always: it fits into the kernel's buffer.
            self.socket.sendall(answer)
        if over:
            self.time_over()

    def time_over(self) -> None:
        """Go, unless something that was asked for is on its way."""
        if not self._consumer.waits:
            self.give_up()

    def give_up(self) -> None:
        """Go."""
        if self.is_open and not self._shut:
            self._shut = True
            self.shut()


def crowd_of(verb: str, name: str, burst: int, address: Address) -> Crowd:
    """Return clients of a server.

    They `put`, they put over HTTP and wait (`ask`), they `take`, take of a `bare` server, or say
    again what they hear (`echo`).
    """
    wire = ALL[name]
    wire = wire._replace(burst=burst or wire.burst)
    if verb in ("put", "ask"):
        return Crowd(address, wire, Putter if verb == "put" else Asker)
    if verb == "bare":
        wire = bare(wire)
    elif verb == "echo":
        wire = wire._replace(consumer=lambda: Echoed(wire.put))
    return Crowd(address, wire, Taker)


def main(verb: str, wire: str, burst: str, port: str, connections: str) -> int:
    """Work for as long as each line says, until there are no more."""
    crowd = crowd_of(verb, wire, int(burst), ("127.0.0.1", int(port)))
    print("null", flush=True)
    for line in sys.stdin:
        print(json.dumps(crowd.run(int(connections), float(line))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
