"""Stands for the socket of a client: what it has sent, what it was sent, who ended first.

Knows: how asyncio speaks to a channel. Does not know: protocols, what ought to come of it.
"""

from __future__ import annotations

import asyncio
from typing import Any


class Line(asyncio.Transport):
    """Stands for a socket. Who does not read leaves everything in the write buffer."""

    def __init__(self, channel: asyncio.BufferedProtocol, number: int, *, reads: bool) -> None:
        super().__init__({"peername": ("127.0.0.1", number)})
        self.sent = bytearray()
        #: What came before the server closed: anything later is as good as not sent.
        self.taken = bytearray()
        self.is_over = False
        #: Either side has said first that it sends no more.
        self.ended_by_server = self.ended_by_client = False
        self.reads_on = asyncio.Event()
        self.reads_on.set()
        self._channel = channel
        self._loop = asyncio.get_running_loop()
        self._closing = self._has_shut = False
        self._reads = reads
        self._unsent = 0

    def give(self, data: bytes) -> None:
        """The client's bytes arrive."""
        if not self.ended_by_server:
            self.taken += data
        self._channel.data_received(data)  # type: ignore[attr-defined]

    def give_end(self) -> None:
        """The client sends no more."""
        self.ended_by_client = not self.ended_by_server
        if not self._channel.eof_received():
            self.close()

    def write(self, data: Any) -> None:
        if self._has_shut:
            raise RuntimeError("Cannot call write() after write_eof()")
        if not self._closing:
            self.sent += data
            if data and not self._reads:
                self._unsent += len(data)
                self._channel.pause_writing()

    def get_write_buffer_size(self) -> int:
        return self._unsent

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Told at once anyway."""

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self._has_shut = True
        self._server_ends()

    def _server_ends(self) -> None:
        self.ended_by_server = not self.ended_by_client

    @property
    def is_paused(self) -> bool:
        """Whether the server does not read now."""
        return not self.reads_on.is_set()

    def pause_reading(self) -> None:
        self.reads_on.clear()

    def resume_reading(self) -> None:
        self.reads_on.set()

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._server_ends()
            if not self._unsent:
                self._loop.call_soon(self._lost, None)

    def abort(self) -> None:
        self._closing = True
        self._server_ends()
        self._loop.call_soon(self._lost, None)

    def reset(self) -> None:
        """The client is gone."""
        self._closing = True
        self._loop.call_soon(self._lost, ConnectionResetError("gone"))

    def _lost(self, error: Exception | None) -> None:
        if not self.is_over:
            self.is_over = True
            self._unsent = 0
            self._channel.connection_lost(error)
