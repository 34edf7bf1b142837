"""Clients of MMQP, written from the published description and from what its programs do.

Knows: the layout of requests and answers. Does not know: embedq; it shares no code with it.

`Mack` does what the only original client does: it names a group, ends with a zero byte, never
shuts its side down, reads to the end, wants UTF-8, and dies of a reset. `Poller` asks as the
original server reads polls, `Reader` as they were published.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from typing import Final

BAR: Final = b"|"
#: Requests spell the version in binary, answers as text.
HEAD: Final = b"MMQP|\x00.\x01|"


def string(text: str | bytes) -> bytes:
    """A length of a length, the length, the text."""
    data = text.encode() if isinstance(text, str) else text
    size = len(data)
    digits = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([len(digits)]) + digits + data


@dataclass(frozen=True)
class Message:
    """One record of an answer."""

    id: bytes
    received_ms: int
    available_ms: int
    receive_count: int
    group: str
    body: str


class Cursor:
    """Reads an answer from its beginning to its end."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        part = self.data[self.at : self.at + count]
        assert len(part) == count, f"the answer ends within a field: {self.data!r}"
        self.at += count
        return part

    def number(self, count: int) -> int:
        return int.from_bytes(self.take(count), "big")

    def size(self) -> int:
        return self.number(self.number(1))

    def string(self) -> str:
        return self.take(self.size()).decode()


class Refused(Exception):
    """An error line: its word and the rest."""


def messages(answer: bytes) -> list[Message]:
    """The records of an answer. Raises Refused for an error line."""
    if answer.startswith(b"MMQP|0.1|R|"):
        raise Refused(answer.decode().split("|", 3)[3])
    cursor = Cursor(answer)
    assert cursor.take(11) == b"MMQP|0.1|M|"
    found = []
    while size := cursor.size():
        begin = cursor.at
        found.append(
            Message(
                cursor.take(64),
                cursor.number(16),
                cursor.number(16),
                cursor.number(4),
                cursor.string(),
                cursor.string(),
            )
        )
        assert cursor.take(1) == b"\0"
        assert cursor.at - begin == size, "the size in front of a record is another one"
    assert cursor.at == len(answer), "something follows the end of the list"
    return found


@dataclass
class Client:
    """Asks once for each connection, as all programs do."""

    address: tuple[str, int]
    user: str = ""
    password: str = ""
    timeout: float = 30.0
    opened: int = field(default=0, init=False)

    def ask(self, request: bytes) -> bytes:
        """Send a request, and read to the end without shutting our side down."""
        with socket.create_connection(self.address, self.timeout) as sock:
            self.opened += 1
            sock.sendall(request)
            parts = []
            while part := sock.recv(65_536):
                parts.append(part)
        return b"".join(parts)

    def head(self, command: bytes, queue: str) -> bytes:
        names = string(self.user) + b":" + string(self.password)
        return HEAD + command + BAR + names + BAR + string(queue) + BAR


class Mack(Client):
    """The original's client: it can only send."""

    def request(self, queue: str, text: str, group: str = "mg1") -> bytes:
        """The bytes that it writes at once."""
        return self.head(b"M", queue) + string(group) + BAR + string(text) + b"\0"

    def send(self, queue: str, text: str, group: str = "mg1") -> str:
        """Send a message; what comes back is text, empty for success."""
        return self.ask(self.request(queue, text, group)).decode()


class Poller(Client):
    """Asks for so many messages, as the original server reads it."""

    def poll(self, queue: str, count: int) -> list[Message]:
        return messages(self.ask(self.head(b"P", queue) + bytes([count])))


class Reader(Client):
    """Asks for a message of a group, as it was published."""

    def poll(self, queue: str, group: str) -> list[Message]:
        return messages(self.ask(self.head(b"P", queue) + string(group) + BAR + b"0" + BAR))
