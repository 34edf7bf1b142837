"""A client of SSPQ, written from the published description and from what its programs do.

Knows: the layout of packets, how the original library waits and what it refuses.
Does not know: embedq; it shares no code with it.

It keeps the library's defects: `receive` reads "up to n bytes" and takes what one read brings for
the whole, refuses to ask again until `confirm` was called, also when the last call was cut short
by a time-out or answered by NO_RECEIVE, and `confirm` says so on the wire whatever is held.
"""

from __future__ import annotations

import socket
from typing import Final

HEAD: Final = b"\x55\x99"
SEND, RECEIVE, CONFIRM = 0x5E, 0xEC, 0xC0
DEAD_RECEIVE, NO_RECEIVE = 0xDE, 0x0E
PATIENCE_S: Final = 30.0


class ServerState(Exception):
    """The library's word for an answer that is no message, and for a call out of turn."""


class WrongMessage(Exception):
    """What comes does not begin as a packet does."""


def packet(kind: int, retries: int = 0, payload: bytes = b"") -> bytes:
    """A header and what it announces."""
    return HEAD + bytes([kind, retries]) + len(payload).to_bytes(4, "big") + payload


class Sspq:
    """One connection of the library."""

    def __init__(self, address: tuple[str, int], timeout: float = PATIENCE_S) -> None:
        self.socket = socket.create_connection(address, PATIENCE_S)
        self.socket.settimeout(timeout)
        self.has_received = False
        self.retries = 0

    def send(self, message: bytes, retries: int = 3) -> None:
        """Put a message. Nobody answers."""
        self.socket.sendall(packet(SEND, retries, message))

    def receive(self, *, dead: bool = False) -> bytes:
        """Ask for a message and wait for it."""
        self.ask(dead=dead)
        return self.answer()

    def ask(self, *, dead: bool = False) -> None:
        if self.has_received:
            raise ServerState("confirm first")
        self.has_received = True
        self.socket.sendall(packet(DEAD_RECEIVE if dead else RECEIVE))

    def answer(self) -> bytes:
        """Read an answer as the library does: one read for each field."""
        magic = self._up_to(2)
        if magic != HEAD:
            raise WrongMessage(magic.hex())
        kind, self.retries = self._up_to(1)[0], self._up_to(1)[0]
        size = int.from_bytes(self._up_to(4), "big")
        payload = self._up_to(size) if size else b""
        if kind != SEND:
            raise ServerState(f"{kind:02x}")
        return payload

    def _up_to(self, count: int) -> bytes:
        part = self.socket.recv(count)
        if not part:
            raise EOFError
        return part

    def confirm(self) -> None:
        """Be done with the message, if there is one."""
        self.has_received = False
        self.socket.sendall(packet(CONFIRM))

    def confirm_and_receive(self) -> bytes:
        """The next one, as the program that receives for ever asks for it: in one segment."""
        self.has_received = True
        self.socket.sendall(packet(CONFIRM) + packet(RECEIVE))
        return self.answer()

    def close(self) -> None:
        self.socket.close()


class Whole(Sspq):
    """The same without the defect of reading: for bodies larger than what one read brings."""

    def _up_to(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            parts += super()._up_to(count - len(parts))
        return bytes(parts)
