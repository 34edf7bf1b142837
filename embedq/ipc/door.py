"""One socket of a host with its monitor: what comes in through it, who comes and goes.

Knows: ZeroMQ's edge-triggered descriptors and its monitor, that answers leave by the same door.
Does not know: frames, sessions, when anything is read.

Clients of all doors are told apart by their addresses: the door's mark, then what ZeroMQ says.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final, NamedTuple

import zmq

#: Messages from this size on are lent to ZeroMQ, not copied: to get one back takes 0.3 ms.
_LENT_BYTES: Final = 1 << 20
#: Milliseconds that a closing host spends on its last words.
_LINGER_MS: Final = 200
#: What a monitor sends first: the event, and here a descriptor or what went wrong.
_EVENT: Final = struct.Struct("=HI")
_FAILED: Final = zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL


class Arrival(NamedTuple):
    """What a monitor tells. `what`: "listening", "accepted", "closed" or "failed"."""

    what: str
    fd: int


class Door:
    """A bound socket. `mark`: one byte that no other door of the host has."""

    def __init__(self, mark: bytes, socket: zmq.Socket[bytes], monitor: zmq.Socket[bytes]) -> None:
        self.mark = mark
        self._socket: Any = socket
        self._monitor = monitor
        self._is_reading = False
        self._read: Callable[[Door], object] = lambda _: None

    def open(
        self,
        endpoint: str,
        read: Callable[[Door], object],
        read_monitor: Callable[[Door], object],
    ) -> None:
        """Bind, and call `read` and `read_monitor` when there is something. Raises ZMQError."""
        self._socket.bind(endpoint)
        self._read = read
        loop = asyncio.get_running_loop()
        loop.add_reader(self._monitor.fileno(), read_monitor, self)
        loop.add_reader(self._socket.fileno(), self.read)
        loop.call_soon(self.read)

    def shut(self, endpoint: str) -> None:
        """Listen at an address no more; its file stays, as do connections that are there."""
        with suppress(zmq.ZMQError):
            self._socket.unbind(endpoint)
        self._look_again()

    def bind_again(self, endpoint: str) -> None:
        """Listen at the same address anew: its file was removed. Raises OSError."""
        self.shut(endpoint)
        try:
            self._socket.bind(endpoint)
        except zmq.ZMQError as error:
            raise OSError(error.errno, str(error)) from error
        finally:
            self._look_again()

    @property
    def endpoint(self) -> str:
        """Where it listens: the port is the true one."""
        return str(self._socket.getsockopt(zmq.LAST_ENDPOINT).rstrip(b"\0").decode())

    def read(self) -> None:
        """Let what has come be read."""
        self._is_reading = False
        self._read(self)

    def read_again(self) -> None:
        """The descriptor tells of changes only: whoever sees something unread must say so."""
        if not self._is_reading:
            self._is_reading = True
            asyncio.get_running_loop().call_soon(self.read)

    def arrivals(self) -> Iterator[Arrival]:
        """Take what the monitor tells."""
        while events_of(self._monitor) & zmq.POLLIN:
            event, value = _EVENT.unpack(self._monitor.recv_multipart(zmq.NOBLOCK)[0])
            yield Arrival(_what(event), value)

    def receive(self) -> tuple[bytes, list[Any]] | None:
        """Take a message: the address of its sender, and its parts; None: there is none."""
        if not events_of(self._socket) & zmq.POLLIN:
            return None
        address, *parts = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
        return self.mark + address.bytes, parts

    def send(self, address: bytes, data: bytes) -> bool:
        """Send one message; False: the client does not take it now."""
        if self._socket.closed:
            return True
        copy = len(data) < _LENT_BYTES
        try:
            self._socket.send_multipart((address[1:], data), zmq.NOBLOCK, copy=copy)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            # It is gone; the monitor tells, too. When it is back, it asks again.
        finally:
            self._look_again()
        return True

    def _look_again(self) -> None:
        """Whatever uses the socket takes its signal: also what it refuses to do."""
        if events_of(self._socket) & zmq.POLLIN:
            self.read_again()

    def close(self) -> None:
        """Listen no more. What was sent last still goes out, in a moment."""
        loop = asyncio.get_running_loop()
        if not self._socket.closed:
            loop.remove_reader(self._monitor.fileno())
            loop.remove_reader(self._socket.fileno())
            self._socket.disable_monitor()
            self._monitor.close(linger=0)
            self._socket.close(linger=_LINGER_MS)


def events_of(socket: zmq.Socket[Any]) -> int:
    """Return what a socket is ready for; asking also rearms its descriptor."""
    return int(socket.getsockopt(zmq.EVENTS))


def fd_of(part: Any) -> int:  # noqa: ANN401  # a frame of ZeroMQ
    """Return the descriptor of the connection that a part of a message came over."""
    return int(part.get(zmq.SRCFD))


def user_of(part: Any) -> str:  # noqa: ANN401  # as above
    """Return the name of the key that the sender of a part has shown, "" for none."""
    try:
        return str(part.get("User-Id"))
    except zmq.ZMQError:
        return ""


def _what(event: int) -> str:
    if event == zmq.EVENT_LISTENING:
        return "listening"
    if event == zmq.EVENT_ACCEPTED:
        return "accepted"
    return "failed" if event & _FAILED else "closed"
