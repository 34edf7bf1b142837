"""The bytes of one connection: read while nobody holds them back, sent as the kernel takes them.

Knows: its socket, TLS if there is any, when bytes came and left, half-closed connections.
Does not know: sessions, limits and deadlines (connection.py), what bytes mean.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import ssl
import termios
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, cast

from embedq.net.above import NOBODY, Above
from embedq.net.outbox import Left, Outbox
from embedq.net.sockets import reset_at_close
from embedq.net.tls import BrokenTLS, Tunnel

#: Bytes that one turn of the loop reads of a connection, at least, at first and at most.
_READ_LEAST, _READ_FIRST, READ_MOST = 1 << 10, 1 << 12, 1 << 18
#: Frames that one turn of the loop is to get from a connection: a millisecond or two of work.
_FRAMES: Final = 128
#: Lets the kernel acknowledge at once what it has received. Only Linux has it.
_QUICKACK: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)


class Channel(asyncio.BufferedProtocol):
    """A socket. Everything happens on the loop's thread.

    It reads so much in one turn of the loop as has about _FRAMES frames: who sends many small
    ones shares the loop with the others. `room`: where bytes are read into; the channels of a loop
    share it.
    """

    def __init__(
        self,
        above: Above,
        *,
        now: Callable[[], float],
        soon: Callable[[Callable[[], object]], object],
        context: ssl.SSLContext | None,
        room: memoryview,
    ) -> None:
        self._above: Above = above
        self._room = room
        self._read_most = _READ_FIRST
        self._now = now
        self._soon = soon
        self._tunnel = None if context is None else Tunnel(context)
        self._transport: asyncio.Transport | None = None
        self._raw: Any = None
        self._outbox: Outbox | None = None
        self._held: set[str] = set()
        self._flushing = False
        #: Send what one turn of the loop writes together.
        self.gathers = True
        self.host, self.peer = "", "?"
        self.bytes_in = self._written = 0
        #: When something came, and when something left last (monotonic seconds).
        self.heard_at = self.moved_at = now()
        #: The client sends no more.
        self.has_ended = False

    @property
    def is_open(self) -> bool:
        """Whether bytes can be sent."""
        return self._outbox is not None

    @property
    def unsent(self) -> int:
        """Bytes that the kernel has not taken."""
        return 0 if self._outbox is None else self._outbox.unsent

    @property
    def bytes_out(self) -> int:
        """Bytes that were written."""
        return self._written if self._outbox is None else self._outbox.written

    @property
    def has_unread(self) -> bool:
        """Whether the client has sent more than was read so far."""
        if self._transport is None or self.has_ended:
            return False
        if self.has_part:
            return True
        raw = self._transport.get_extra_info("socket")
        return raw is not None and raw.fileno() >= 0 and _waits_at(raw.fileno())

    @property
    def has_part(self) -> bool:
        """Whether the beginning of a record of TLS has come, and not its rest."""
        return self._tunnel is not None and self._tunnel.has_part

    # --------------------------------------------------------------------------- sending

    def write(self, data: bytes, left: Left | None = None) -> int:
        """Send bytes; see Connection.write. Returns how many the kernel has not taken."""
        outbox = self._outbox
        if outbox is None:
            if left is not None:
                self._soon(lambda: left(False))
            return 0
        if not outbox.unsent:
            self.moved_at = self._now()
        outbox.add(data if self._tunnel is None else self._tunnel.encrypt(data), left)
        if not self.gathers:
            self.flush()
        elif not self._flushing:
            self._flushing = True
            self._soon(self.flush)
        return outbox.unsent

    def flush(self) -> None:
        """Give to the kernel what was written."""
        self._flushing = False
        outbox = self._outbox
        if outbox is not None:
            outbox.flush()
            if self._held and not outbox.unsent:
                self._above.moved()  # nothing waits, so that nobody else will tell

    def pause_writing(self) -> None:
        """Bytes wait from now on: they are counted where it matters."""
        if self._outbox is not None:
            self._outbox.waits = True

    def resume_writing(self) -> None:
        """The kernel has taken everything."""
        self.moved_at = self._now()
        if self._outbox is not None:
            self._outbox.waits = False
            self._outbox.look()
        self._above.moved()

    # --------------------------------------------------------------------------- reading

    def hold(self, why: str) -> None:
        """Read nothing until `unhold` with the same reason."""
        if not self._held and self._transport is not None and not self.has_ended:
            self._transport.pause_reading()
        self._held.add(why)

    def unhold(self, why: str) -> None:
        """Read on, if no other reason holds it."""
        if why in self._held:
            self._held.discard(why)
            if not self._held and self._transport is not None and not self.has_ended:
                self._transport.resume_reading()

    @property
    def is_held(self) -> bool:
        """Whether it is held for any reason."""
        return bool(self._held)

    def holds(self, why: str) -> bool:
        """Whether it is held for a reason."""
        return why in self._held

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  # we know better
        """Return where the next bytes are to be read into."""
        return self._room[: self._read_most]

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have been read."""
        most = self._read_most
        answers = self.data_received(bytes(self._room[:nbytes]))
        if nbytes < most and not (answers or self._flushing):
            self._acknowledge()

    def paced(self, frames: int) -> None:
        """So many frames were in what was read last: read as many bytes next as has _FRAMES."""
        if frames > _FRAMES:
            self._read_most = max(_READ_LEAST, self._read_most * _FRAMES // frames)
        elif frames <= _FRAMES // 2:
            self._read_most = min(READ_MOST, self._read_most * 2)

    def _acknowledge(self) -> None:
        """Let the kernel acknowledge what was read, as no answer goes along.

        Clients that write twice before they read, as those that confirm one message and then ask
        for the next, send the second piece only when the first is acknowledged: that takes 40 ms
        if it is left to the kernel (Nagle's algorithm and delayed acknowledgements).
        """
        if self._raw is not None and _QUICKACK is not None and self._transport is not None:
            with suppress(OSError):  # it has been closed meanwhile
                self._raw.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)

    def data_received(self, data: bytes) -> bool:
        """Bytes have come. True: see Above.came."""
        self.bytes_in += len(data)
        self.heard_at = self._now()
        if self._tunnel is None:
            return self._above.came(data)
        return self._decrypt(self._tunnel, data)

    def _decrypt(self, tunnel: Tunnel, data: bytes) -> bool:
        was_ready, answers = tunnel.is_ready, False
        had_part = was_ready and tunnel.has_part
        try:
            plain = tunnel.feed(data)
        except BrokenTLS as error:
            self._send(tunnel.take())
            self._above.broken(str(error))
            return False
        self._send(tunnel.take())
        if tunnel.is_ready and not was_ready:
            self._above.opened(tunnel.name)
        is_other = tunnel.is_ready and not tunnel.is_shut and tunnel.has_part is not had_part
        if plain or is_other:
            answers = self._above.came(plain)
        if tunnel.is_shut:
            self._end()
        return answers

    def _send(self, data: bytes) -> None:
        if data and self._outbox is not None:
            if not self._outbox.unsent:
                self.moved_at = self._now()
            self._outbox.add(data)
            self.flush()

    def eof_received(self) -> bool:
        """The client sends no more; our side stays open until somebody closes it."""
        self._end()
        return self._transport is not None and not self._transport.is_closing()

    def _end(self) -> None:
        if not self.has_ended:
            self.has_ended = True
            self._above.ended()

    # ---------------------------------------------------------------------- begin and end

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody has connected."""
        made = self._transport = cast("asyncio.Transport", transport)
        self.host, self.peer = _peer_of(made)
        if not self._above.arrived():
            self._transport = None
            made.abort()
            self._forget()
            return
        self._outbox = Outbox(made)
        raw = made.get_extra_info("socket")
        self._raw = raw if raw is not None and raw.family != socket.AF_UNIX else None
        if self._tunnel is None:
            self._above.opened(None)

    def shut(self) -> None:
        """Say that no more follows; what the client still sends is read."""
        if self._transport is not None and self._outbox is not None:
            if self._tunnel is not None:
                self._send(self._tunnel.farewell())
            try:
                self._transport.write_eof()
            except OSError:  # the client has reset it, which nobody has read yet
                self._transport.abort()
                return
            self._held.clear()
            if not self.has_ended:
                self._transport.resume_reading()

    def close(self) -> None:
        """Close, once all that was written has left."""
        if self._transport is not None:
            if self._tunnel is not None and not self._transport.is_closing():
                self._send(self._tunnel.farewell())
            self._transport.close()

    def abort(self) -> None:
        """Close now."""
        if self._transport is not None:
            self._transport.abort()

    def reset_if_killed(self, *, on: bool) -> None:
        """Let the kernel reset the connection if this process dies."""
        if self._raw is not None and self._transport is not None:
            reset_at_close(self._raw, on=on)

    def let_go(self) -> None:
        """Close the descriptor in a child made by fork, and nothing else."""
        raw = None if self._transport is None else self._transport.get_extra_info("socket")
        if raw is not None and raw.fileno() >= 0:
            os.close(raw.fileno())

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        if self._transport is None:
            return  # it was refused
        if self._outbox is not None:
            self._written = self._outbox.written
            outbox, self._outbox = self._outbox, None
            outbox.lost()
        self._transport = None
        self._above.gone(exc)
        self._forget()

    def _forget(self) -> None:
        """Know nobody any more, or the two would keep each other; see Access.close."""
        self._above = NOBODY


def _waits_at(descriptor: int) -> bool:
    """Return whether the kernel has bytes that can be read at once."""
    return any(fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)))


def _peer_of(transport: asyncio.Transport) -> tuple[str, str]:
    """Return the address of a client, and the same with its port in words."""
    raw = transport.get_extra_info("socket")
    if raw is not None and raw.family == socket.AF_UNIX:
        return "", "unix"
    name = transport.get_extra_info("peername")
    if not name:
        return "?", "?"
    host, port = name[0], name[1]
    return host, f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
