"""Lines of a file or a stream, in portions, as they come.

Knows: which lines are there already, and when the next one may be a long time away.
Does not know: what lines are for.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterator
from io import UnsupportedOperation
from typing import BinaryIO, Final, NamedTuple

from embedq.errors import LimitExceeded
from embedq.limits import LIMITS

#: Lines, and their bytes, after which a portion is full.
MOST: Final = 1000
MOST_BYTES: Final = 1 << 20

_READ: Final = 1 << 16
#: Whoever writes without a break is not further behind than that.
_PATIENCE_S: Final = 0.05


class Portion(NamedTuple):
    """Lines without their ends; `first` is the number of the first one, from 1.

    `pause`: there is nothing more to read at this moment.
    """

    first: int
    lines: list[bytes]
    pause: bool


def portions(source: bytes | BinaryIO) -> Iterator[Portion]:
    """Cut a source into lines. Raises LimitExceeded for a line that no message can hold."""
    if isinstance(source, bytes):
        read, ready = _of_bytes(source)
    else:
        read, ready = _of_stream(source)
    first = 1
    lines: list[bytes] = []
    rest = b""
    size = 0
    while chunk := read():
        *whole, rest = (rest + chunk).split(b"\n") if b"\n" in chunk else [rest + chunk]
        for line in whole:
            lines.append(line)
            size += len(line)
            if len(lines) >= MOST or size >= MOST_BYTES:
                yield Portion(first, lines, pause=False)
                first, lines, size = first + len(lines), [], 0
        if len(rest) > LIMITS.body_bytes:
            raise LimitExceeded(
                f"line {first + len(lines)} is longer than body_bytes={LIMITS.body_bytes}",
                limit="body_bytes",
            )
        if lines and not ready():
            yield Portion(first, lines, pause=True)
            first, lines, size = first + len(lines), [], 0
    if rest:
        lines.append(rest)
    if lines:
        yield Portion(first, lines, pause=True)


def _of_bytes(data: bytes) -> tuple[Callable[[], bytes], Callable[[], bool]]:
    left = [data]
    return lambda: left.pop() if left else b"", lambda: True


def _of_stream(stream: BinaryIO) -> tuple[Callable[[], bytes], Callable[[], bool]]:
    try:
        descriptor = stream.fileno()
    except (UnsupportedOperation, OSError):  # no file behind it: all of it is there
        return lambda: stream.read(_READ), lambda: True

    def ready() -> bool:
        return bool(select.select([descriptor], [], [], _PATIENCE_S)[0])

    # Not through the buffer of the stream: that would wait until it is full.
    return lambda: os.read(descriptor, _READ), ready
