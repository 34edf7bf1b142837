"""What a connection has to send, and the moment each piece has left for the kernel.

Knows: that a write buffer empties in order, who waits for which byte.
Does not know: sockets beyond their buffer, what the bytes mean, TLS.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

#: Bytes from which on a piece is not joined with others.
_LARGE: Final = 1 << 16
#: Told True when the bytes have left our write buffer, False when they never will.
Left = Callable[[bool], object]


class Outbox:
    """The unsent bytes of one connection. `written` counts all that was handed to it.

    `waits`: the transport has said that bytes wait in its buffer. Until then there are none, and
    it need not be asked.
    """

    __slots__ = ("_gathered", "_parts", "_transport", "_waiting", "waits", "written")

    def __init__(self, transport: asyncio.WriteTransport) -> None:
        self._transport = transport
        # The buffer must tell as soon as it is empty: that is when everything has left.
        transport.set_write_buffer_limits(high=0)
        self._parts: list[bytes] = []
        self._gathered = 0
        self._waiting: deque[tuple[int, Left]] = deque()
        self.waits = False
        self.written = 0

    def add(self, data: bytes, left: Left | None = None) -> None:
        """Take bytes in; `flush` sends them. No bytes, and `left`: once all before have left."""
        if data:  # nothing is sent for nothing: our side may be shut by then
            self._parts.append(data)
        size = len(data)
        self.written += size
        self._gathered += size
        if left is not None:
            self._waiting.append((self.written, left))

    @property
    def unsent(self) -> int:
        """Bytes that the kernel has not taken."""
        if self.waits:
            return self._gathered + self._transport.get_write_buffer_size()
        return self._gathered

    def flush(self) -> None:
        """Give what was taken in to the kernel, as far as that takes it."""
        parts = self._parts
        if parts:
            self._parts = []
            if self._gathered > _LARGE:
                self._write_apart(parts)
            else:
                self._transport.write(parts[0] if len(parts) == 1 else b"".join(parts))
            self._gathered = 0
        self.look()

    def _write_apart(self, parts: list[bytes]) -> None:
        """Write large pieces as they are, the small ones between them together.

        Memory that is touched for the first time costs more than all else: 14 MB, copied three
        times, held the loop for 65 ms. asyncio copies what a memoryview shows once, if at all.
        """
        small: list[bytes] = []
        for part in parts:
            if len(part) <= _LARGE:
                small.append(part)
                continue
            if small:
                self._transport.write(b"".join(small))
                small = []
            self._transport.write(memoryview(part))
        if small:
            self._transport.write(b"".join(small))

    def look(self) -> None:
        """Tell who waited for bytes that have left."""
        waiting = self._waiting
        # A transport that gave up has thrown its buffer away: that is no leaving.
        if not waiting or self._transport.is_closing():
            return
        gone = self.written - self.unsent
        while waiting and waiting[0][0] <= gone:
            waiting.popleft()[1](True)

    def lost(self) -> None:
        """Nothing more will leave."""
        self._parts = []
        self._gathered = 0
        while self._waiting:
            self._waiting.popleft()[1](False)
