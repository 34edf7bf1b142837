"""How a thread that waits for a socket is woken: a byte through a pair of sockets, once.

Knows: that several who wake it at once need one byte, that a caller may be interrupted anywhere.
Does not know: what for.
"""

from __future__ import annotations

import select
import socket
from contextlib import suppress


class Nudge:
    """Wakes one thread. `end`: what it waits for, beside whatever else."""

    def __init__(self) -> None:
        self.signalled = False
        self._ours, self.end = socket.socketpair()
        for each in (self._ours, self.end):
            each.setblocking(False)

    def give(self) -> None:
        """Wake the thread. From any thread."""
        if not self.signalled:
            self.signalled = True
            self.send()

    def send(self) -> None:
        """Send the byte."""
        with suppress(OSError):  # it has enough to read, or has just ended
            self._ours.send(b"\0")

    def wait(self, seconds: float) -> None:
        """Wait to be woken, and be ready to be woken again."""
        select.select([self.end], [], [], seconds)
        self.clear()

    def clear(self) -> None:
        """Take what has come: the next one who gives a nudge sends a byte again."""
        with suppress(BlockingIOError):
            self.end.recv(4096)
        # Last: who finds it set before is not waited for, but has put down what it wants sent.
        self.signalled = False

    @property
    def closed(self) -> bool:
        """Whether it wakes nobody any more."""
        return self._ours.fileno() == -1

    def close(self) -> None:
        """Close both ends."""
        self._ours.close()
        self.end.close()
