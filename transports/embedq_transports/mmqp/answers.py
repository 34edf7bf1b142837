"""What an MMQP server answers: records, an error line, a pong, or nothing.

Knows: the bytes of each answer (docs/protocols/mmqp.md, section Answers).
Does not know: which messages to answer with, nor when to close.
"""

from collections.abc import Iterable
from itertools import chain
from typing import Final

import msgspec

from embedq_transports.mmqp.strings import Code, encode_size, encode_string

ID_BYTES: Final = 64
TIME_BYTES: Final = 16
COUNT_BYTES: Final = 4
FIXED_BYTES: Final = ID_BYTES + 2 * TIME_BYTES + COUNT_BYTES

# Answers spell the version as text, whatever the request did.
RECORDS: Final = b"MMQP|0.1|M|"
ERROR: Final = b"MMQP|0.1|R|"
END: Final = b"\0"
PONG: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=UTF-8\r\n\r\npong"


class Record(msgspec.Struct, frozen=True, gc=False):
    """One message in an answer; times are milliseconds since 1970.

    The original's id is all zero and its `receive_count` always 0.
    """

    body: bytes
    group: str
    received: int
    available: int
    receive_count: int = 0
    message_id: bytes = bytes(ID_BYTES)


def _pieces(record: Record) -> tuple[bytes, ...]:
    """Return a record with its size in front: a large body is copied once, into the answer.

    `message_id` is cut or filled with zeros to 64 bytes; `receive_count` stays at its largest.
    """
    head = b"".join(
        (
            record.message_id[:ID_BYTES].ljust(ID_BYTES, b"\0"),
            record.received.to_bytes(TIME_BYTES, "big"),
            record.available.to_bytes(TIME_BYTES, "big"),
            min(record.receive_count, (1 << 8 * COUNT_BYTES) - 1).to_bytes(COUNT_BYTES, "big"),
            encode_string(record.group.encode()),
            encode_size(len(record.body)),
        )
    )
    return (encode_size(len(head) + len(record.body) + len(END)), head, record.body, END)


def encode_records(records: Iterable[Record], *, begins: bool = True, ends: bool = True) -> bytes:
    """Return the answer to a poll, or a part of it; a whole one without a record has 12 bytes."""
    pieces = chain.from_iterable(map(_pieces, records))
    return b"".join((RECORDS * begins, *pieces, END * ends))


def encode_error(code: Code, detail: str = "") -> bytes:
    """Return an error line, which has no end mark: the connection is closed behind it.

    QUEUE_NOT_FOUND repeats the queue's name as it came. In any other detail bars and control
    characters are replaced by spaces.
    """
    if code is not Code.QUEUE_NOT_FOUND:
        detail = "".join(char if char.isprintable() and char != "|" else " " for char in detail)
    return ERROR + f"{code.value}|{detail}|0".encode("utf-8", "replace")
