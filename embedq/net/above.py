"""Whom a channel tells what happens to its bytes.

Knows: what there is to tell; nobody, who is told nothing.
Does not know: sockets, sessions.
"""

from __future__ import annotations

from typing import Final, Protocol


class Above(Protocol):
    """Who uses a channel."""

    def arrived(self) -> bool:
        """Somebody has connected. False: it is refused."""
        ...

    def opened(self, name: str | None) -> None:
        """Bytes can be exchanged. `name`: whom the client's certificate names."""
        ...

    def came(self, data: bytes) -> bool:
        """Bytes have come. True: they are answered soon, and until then nothing more comes.

        No bytes: a record of TLS has begun, or ended.
        """
        ...

    def ended(self) -> None:
        """The client sends no more."""
        ...

    def broken(self, why: str) -> None:
        """What comes is no TLS, or no client that may come."""
        ...

    def moved(self) -> None:
        """Everything that waited has left."""
        ...

    def gone(self, error: Exception | None) -> None:
        """It is over; nothing follows."""
        ...


class _Nobody:
    """Takes the place of a connection that has ended: nothing concerns it any more."""

    def arrived(self) -> bool:
        """Refuse."""
        return False

    def opened(self, name: str | None) -> None:
        """Begin nothing."""

    def came(self, data: bytes) -> bool:  # noqa: ARG002
        """Throw it away."""
        return False

    def ended(self) -> None:
        """It has ended before."""

    def broken(self, why: str) -> None:
        """It does not matter."""

    def moved(self) -> None:
        """Nothing waits."""

    def gone(self, error: Exception | None) -> None:
        """It is gone already."""


NOBODY: Final[Above] = _Nobody()
