"""A client of PHPMQ, written from the published document and from what its programs do.

Knows: the layout of messages in all the forms that were published or used. Does not know: embedq;
it shares no code with it.

It is as strict as the original: it reads a header once and takes what has come for the whole of
it, it dies of any other message than a dispatch of three packages in the order it knows, and of a
pause of half a second inside a message.
"""

from __future__ import annotations

import select
import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

#: Seconds without progress inside a message, after which the original gives up.
PAUSE_S: Final = 0.5


@dataclass(frozen=True)
class Message:
    """What a dispatch carries."""

    queue: bytes
    content: bytes
    id: bytes
    ttl: int | None = None


class Died(Exception):
    """What ends the original's client."""


class PhpmqClient:
    """One connection. `width`: of a package header; `separator`: what stands between the parts."""

    def __init__(
        self,
        address: Any,
        *,
        width: int = 32,
        separator: bytes = b"",
        speaks_ttl: bool = False,
        timeout: float = 30.0,
    ) -> None:
        self.width = width
        self.separator = separator
        self.speaks_ttl = speaks_ttl
        self.timeout = timeout
        self.socket = socket.create_connection(address, timeout)

    # --- what is sent --------------------------------------------------------------------------

    def message(self, kind: int, *packages: tuple[int, bytes]) -> bytes:
        """A header and its packages."""
        parts = [b"H01%03d%02d" % (kind, len(packages))]
        for number, content in packages:
            parts += [b"P%02d%0*d" % (number, self.width - 3, len(content)), content]
        return b"".join(part + self.separator for part in parts)

    def publishing(self, queue: bytes, content: bytes, ttl: int | None = None) -> bytes:
        """The bytes of a message to put."""
        life = [(5, b"%d" % (ttl or 0))] if self.speaks_ttl or ttl is not None else []
        return self.message(1, (1, queue), (2, content), *life)

    def publish(self, queue: bytes, content: bytes, ttl: int | None = None) -> None:
        """Put a message; nothing comes back."""
        self.socket.sendall(self.publishing(queue, content, ttl))

    def consume(self, queue: bytes, window: int) -> None:
        """Ask for so many unacknowledged messages at once."""
        self.socket.sendall(self.message(2, (1, queue), (4, b"%d" % window)))

    def ack(self, queue: bytes, id: bytes) -> None:
        """Say that a message is done."""
        self.socket.sendall(self.message(4, (1, queue), (3, id)))

    def requeue(self, queue: bytes, id: bytes, ttl: int = 0) -> None:
        """Give a message back behind the others."""
        self.socket.sendall(self.message(5, (1, queue), (3, id), (5, b"%d" % ttl)))

    def bury(self, queue: bytes, id: bytes) -> None:
        """Move a message to the dead letters."""
        self.socket.sendall(self.message(6, (1, queue), (3, id)))

    # --- what is read --------------------------------------------------------------------------

    def receive(self) -> Message:
        """Wait for a dispatch. Raises Died for what the original does not survive."""
        header = self.socket.recv(8)
        count = 4 if self.speaks_ttl else 3
        if header != b"H01003%02d" % count:
            raise Died(f"a header is {header!r}")
        self._separated()
        found = [self._package() for _ in range(count)]
        kinds = [kind for kind, _ in found]
        if kinds != [1, 2, 3, 5][:count]:
            raise Died(f"the packages are {kinds}")
        queue, content, id, *rest = [content for _, content in found]
        return Message(queue, content, id, int(rest[0]) if rest else None)

    def receipt(self) -> bytes:
        """Wait for a receipt, as programs of July 2017 did; return the id in it."""
        if self._exactly(8) != b"H0100502":
            raise Died("this is no receipt")
        self._separated()
        return [self._package() for _ in range(2)][1][1]

    def hears_nothing(self, seconds: float = 0.3) -> bool:
        """Whether nothing comes for a while, not even the end."""
        return not select.select([self.socket], [], [], seconds)[0]

    def is_closed(self) -> bool:
        """Wait for the end; whatever else comes is an error."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _package(self) -> tuple[int, bytes]:
        header = self._exactly(self.width)
        if not header.startswith(b"P"):
            raise Died(f"a package header is {header!r}")
        self._separated()
        content = self._exactly(int(header[3:]))
        self._separated()
        return int(header[1:3]), content

    def _separated(self) -> None:
        if self._exactly(len(self.separator)) != self.separator:
            raise Died("the form of the connection has changed")

    def _exactly(self, count: int) -> bytes:
        parts = []
        while count:
            if not select.select([self.socket], [], [], self.timeout)[0]:
                raise Died("nothing came")
            part = self.socket.recv(count)
            if not part:
                raise Died("disconnected")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        """Shut both directions down, then close."""
        with suppress(OSError):  # it may be gone already
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
