"""What recent puts of a session were answered, as it is stored with the session.

Knows: the two kinds of answers and their bytes.
Does not know: who asks again, SQL, when an answer may be forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from embedq.storage.ops import PutPlain, PutRows

#: Plain messages: the seq of the first one, and how many. Rows: their seqs, and the positions of
#: those whose dedup key was known.
Answer = tuple[int, int] | tuple[list[int], list[int]]

_Plain = tuple[int, int, int]
_Rows = tuple[int, list[int], list[int]]
_INTS: Final = msgspec.msgpack.Decoder(list[tuple[int, int | list[int], int | list[int]]])
_encode = msgspec.msgpack.Encoder().encode


def encode(answers: Iterable[tuple[int, Answer]]) -> bytes:
    """Return the bytes for (number, answer) pairs."""
    entries: list[_Plain | _Rows] = []
    for n, (first, second) in answers:
        entries.append((n, first, second))  # type: ignore[arg-type]  # both ints or both lists
    return _encode(entries)


def decode(data: bytes | None) -> dict[int, Answer]:
    """Return the answers by number. What is damaged is not known: its puts may be repeated."""
    if not data:
        return {}
    try:
        entries = _INTS.decode(data)
    except (msgspec.MsgspecError, TypeError):
        return {}
    return {
        n: (first, second)  # type: ignore[misc]  # checked
        for n, first, second in entries
        if isinstance(first, int) == isinstance(second, int)
    }


def of_rows(put: PutRows) -> tuple[list[int], list[int]]:
    """Return the answer to a put of rows that was stored."""
    stored = set(put.stored)
    return list(put.seqs), [at for at in range(len(put.seqs)) if at not in stored]


def of_plain(put: PutPlain, at: int, count: int) -> tuple[int, int]:
    """Return the answer to `count` messages of a stored put, from position `at` on."""
    return (put.first + at if count else 0, count)


def merged(known: Mapping[int, Answer], fresh: Iterable[tuple[int, Answer]]) -> bytes:
    """Return the bytes for what was known, and what has been answered since."""
    return encode([*known.items(), *fresh])
