"""Read a write-ahead log frame by frame, also behind a frame that is damaged.

Knows: the documented format of a log: its header, frames, salts, the chain of checksums.
Does not know: what is on a page, who writes the log, when it is checkpointed.

SQLite believes a log up to the first frame whose checksum is wrong and silently forgets the
rest, which may hold confirmed messages. But each frame stores the checksum that the next one
starts from, so a later frame can be proved good without the damaged one.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

HEADER_BYTES: Final = 32
FRAME_BYTES: Final = 24
_MAGIC: Final = 0x377F0682  # the lowest bit set: checksums over big-endian words
_VERSION: Final = 3007000
_WORD: Final = 0xFFFF_FFFF
_SAMPLE: Final = 100

Checksum = tuple[int, int]


class Frame(NamedTuple):
    """One page in a log. `data` is where its bytes start, `commit` the pages of the database.

    `commit` is 0 unless the frame ends a transaction. `good` says that the checksum holds, or
    cannot be proved as the head of the frame before is damaged; `current` that the frame was
    written since the log was last begun again.
    """

    page: int
    commit: int
    data: int
    good: bool
    current: bool


@dataclass(slots=True)
class Log:
    """What a log holds. Frames up to the last commit count; damaged ones among them are lost."""

    page_size: int
    sound_header: bool
    frames: list[Frame] = field(default_factory=list)

    @property
    def committed(self) -> int:
        """The number of frames up to the last good one that ends a transaction."""
        ends = (n for n in range(len(self.frames), 0, -1) if self._ends(self.frames[n - 1]))
        return next(ends, 0)

    @staticmethod
    def _ends(frame: Frame) -> bool:
        return frame.good and frame.commit > 0

    @property
    def pages(self) -> dict[int, int]:
        """Where the newest committed version of each page is."""
        return {f.page: f.data for f in self.frames[: self.committed] if f.good}

    @property
    def database_pages(self) -> int:
        """The size of the database in pages after the last commit; 0 without one."""
        return self.frames[self.committed - 1].commit if self.committed else 0

    @property
    def damaged(self) -> int:
        """The number of frames that are not what was written; a torn end counts, too."""
        end = self.committed
        return sum(
            not frame.good and (frame.current or n < end) for n, frame in enumerate(self.frames)
        )

    @property
    def believed(self) -> int:
        """The number of frames that SQLite itself would use."""
        if not self.sound_header:
            return 0
        bad = next((n for n, frame in enumerate(self.frames) if not frame.good), len(self.frames))
        return next((n for n in range(bad, 0, -1) if self.frames[n - 1].commit), 0)

    @property
    def strays(self) -> list[int]:
        """Where pages are that no good frame replaced: damaged ones, and a torn end.

        What is on them may be older or newer than the database, and only partly readable.
        """
        last = {frame.page: n for n, frame in enumerate(self.frames) if frame.good}
        end = self.committed
        tail = self.frames[end:]
        broken_end = any(frame.current and not frame.good for frame in tail)
        chosen = [
            frame.data
            for n, frame in enumerate(self.frames[:end])
            if not frame.good and last.get(frame.page, -1) < n
        ]
        if broken_end:
            chosen += [frame.data for frame in tail if frame.current]
        return chosen


def read_log(data: bytes | memoryview, page_size: int = 0) -> Log | None:
    """Return what is in a log; `page_size` counts when the header of the log is damaged.

    None when there is not even one frame, or when nothing tells how long a frame is.
    """
    log = memoryview(data)
    if len(log) < HEADER_BYTES + FRAME_BYTES:
        return None
    magic, version, size = struct.unpack_from(">III", log)
    stored: Checksum = struct.unpack_from(">II", log, 24)
    order = "big" if magic & 1 else "little"
    sound = magic | 1 == _MAGIC | 1 and version == _VERSION
    sound = sound and checksum(log[:24], (0, 0), order) == stored
    if not sound:
        size = page_size
        order = _order_of(log, size)
    if not size:
        return None
    found = Log(size, sound)
    starts = range(HEADER_BYTES, len(log) - FRAME_BYTES - size + 1, FRAME_BYTES + size)
    salts = bytes(log[16:24]) if sound else _salts_of(log, starts)
    before = _Before({stored}, sure=sound)
    for start in starts:
        frame, before = _frame(
            log[start : start + FRAME_BYTES + size], start, salts, before, order
        )
        found.frames.append(frame)
    _trim(found)
    return found


class _Before(NamedTuple):
    """What a frame's checksum goes on from; `sure` says that one of the seeds must be right."""

    seeds: set[Checksum]
    sure: bool


def _frame(
    data: memoryview, start: int, salts: bytes, before: _Before, order: str
) -> tuple[Frame, _Before]:
    page, commit = struct.unpack_from(">II", data)
    stored: Checksum = struct.unpack_from(">II", data, 16)
    if data[8:16] != salts:
        # Left from before the log was begun again; or its head is damaged, of which the stored
        # checksum is a part.
        frame = Frame(page, commit, start + FRAME_BYTES, good=False, current=False)
        return frame, _Before({stored}, sure=False)
    content = data[FRAME_BYTES:]
    made = {checksum(content, checksum(data[:8], seed, order), order) for seed in before.seeds}
    # Behind a damaged head nothing proves a frame. Its salts do not come about by chance, though.
    good = page > 0 and (stored in made or not before.sure)
    frame = Frame(page, commit, start + FRAME_BYTES, good=good, current=True)
    # Not good: either the bytes or the stored checksum are wrong; the next frame shows which.
    return frame, _Before({stored} if good else {stored, *made}, sure=True)


def _salts_of(log: memoryview, starts: Sequence[int]) -> bytes:
    """Return the salts of the newest frames, which come first, though the header is damaged."""
    found = [bytes(log[start + 8 : start + 16]) for start in starts[:_SAMPLE]]
    header = bytes(log[16:24])
    if header in found:
        return header
    return next((salts for salts in found if any(salts) and found.count(salts) > 1), found[0])


def _trim(log: Log) -> None:
    """Drop what was left from before the log was begun again."""
    while log.frames and not log.frames[-1].current:
        log.frames.pop()


def _order_of(log: memoryview, size: int) -> str:
    """Find out in which byte order checksums were made, from the second frame."""
    second = HEADER_BYTES + FRAME_BYTES + size
    if size and len(log) >= second + FRAME_BYTES + size:
        seed: Checksum = struct.unpack_from(">II", log, HEADER_BYTES + 16)
        stored: Checksum = struct.unpack_from(">II", log, second + 16)
        data = log[second + FRAME_BYTES : second + FRAME_BYTES + size]
        for order in ("little", "big"):
            if checksum(data, checksum(log[second : second + 8], seed, order), order) == stored:
                return order
    return sys.byteorder


def checksum(data: bytes | memoryview, seed: Checksum, order: str) -> Checksum:
    """Return the checksum of a log's format, going on from `seed`."""
    words = _words(data, order)
    first, second = seed
    for left, right in zip(words[::2], words[1::2], strict=True):
        first = (first + left + second) & _WORD
        second = (second + right + first) & _WORD
    return first, second


def _words(data: bytes | memoryview, order: str) -> array[int]:
    words = array("I")
    words.frombytes(data)
    if order != sys.byteorder:
        words.byteswap()
    return words
