"""Marks: how far each delivery of a client has come, readable after its death.

Knows: a shared file of 8 bytes for each place, and a lock that tells whether its client lives.
Does not know: leases, what becomes of a delivery, frames.

The client writes the counter of a lease into its place right before the handler starts, and adds
a bit once it has ended. That is a store to shared memory: the page cache keeps it whatever ends
the process, also what no frame could tell any more.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from threading import Lock
from typing import Final

from embedq.storage.fork import on_fork

#: Ends the name of a file of marks; before it stands the session in hexadecimal digits.
SUFFIX: Final = ".marks"

#: Places of a file where nothing else is said. A client can hold more deliveries: those without
#: a place count as started.
PLACES: Final = 4096

#: What is added to a counter when its handler is done with the message, or has failed it; or when
#: no handler runs, as a client of a listener has it.
DONE_BIT: Final = 1 << 63
FAILED_BIT: Final = 1 << 62
OUTSIDE_BIT: Final = 1 << 61

_MADE: Final = ".making"
_PRIVATE: Final = 0o600
_BYTES: Final = 8
_MOST: Final = 1 << 20
# struct flock, with native alignment, and where its type and its pid are.
_FLOCK, _TYPE, _PID = ("qqihh", 3, 2) if sys.platform == "darwin" else ("hhqqi", 0, 4)


class Progress(IntEnum):
    """How far a delivery has come: its handler runs, or has ended in one of two ways.

    OUTSIDE: a client of a listener has it, whose code cannot end this process.
    """

    STARTED = 0
    FAILED = 1
    DONE = 2
    OUTSIDE = 3


class _Mine:
    """The files whose lock this process holds: asking the kernel would drop it."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.held: dict[str, Marks] = {}

    def forked_in_child(self) -> None:
        self.lock = Lock()
        self.held = {}


_mine = _Mine()


class Marks:
    """The marks of one session, as its client writes them. Made by `create`.

    A file has a head that says in which epoch its counters were given out, then the places.
    """

    def __init__(self, path: Path, fd: int, places: int) -> None:
        self.path = path
        self.places = places
        self._fd = fd
        self._pid = os.getpid()
        self._map = mmap.mmap(fd, _BYTES * (places + 1))
        self._words = memoryview(self._map).cast("Q")
        self._swap = sys.byteorder != "little"

    @classmethod
    def create(cls, folder: Path, session: bytes, places: int = PLACES) -> Marks:
        """Make the file of a session and hold its lock until `close`, or the process ends.

        Raises OSError when the operating system refuses.
        """
        path = folder / f"{session.hex()}{SUFFIX}"
        # Under another name until it is locked: one that nobody holds is removed by a new host.
        made = path.with_suffix(_MADE)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(made, flags, _PRIVATE)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(fd, _BYTES * (places + 1))
            path.hardlink_to(made)
            marks = cls(path, fd, places)
        except BaseException:
            os.close(fd)
            raise
        finally:
            made.unlink(missing_ok=True)
        on_fork(_mine)
        with _mine.lock:
            _mine.held[str(path)] = marks
        on_fork(marks)
        return marks

    def start(self, mark: int, counter: int, *, outside: bool = False) -> None:
        """Note that the handler of this lease starts now, or that somebody `outside` gets it.

        A place below 0 is none.
        """
        self._note(mark, counter | (OUTSIDE_BIT if outside else 0))

    def end(self, mark: int, counter: int, progress: Progress) -> None:
        """Note that the handler of this lease has ended, and how."""
        self._note(mark, counter | _BITS[progress])

    def _note(self, mark: int, word: int) -> None:
        if 0 <= mark < self.places:
            self._words[mark + 1] = self._ordered(word)

    def is_of(self, mark: int, counter: int) -> bool:
        """Whether the place is still that of this lease: it may have gone to another one."""
        if not 0 <= mark < self.places:
            return False
        return self._ordered(self._words[mark + 1]) & ~_ALL_BITS == counter

    def clear(self, mark: int) -> None:
        """Note that nothing was started in this place."""
        self._note(mark, 0)

    def renew(self, epoch: int, started: Iterable[tuple[int, int]] = ()) -> None:
        """Note (mark, word) of what runs, as a new host has named it, and forget everything else.

        A death in between leaves in each of these places what was noted before, or what is now.
        """
        noted = {mark + 1: self._ordered(word) for mark, word in started}
        self._words[0] = 0
        for place in range(1, self.places + 1):
            word = noted.get(place, 0)
            if self._words[place] != word:
                self._words[place] = word
        self._words[0] = self._ordered(epoch)

    def close(self, *, remove: bool = True) -> None:
        """Give the lock back, and remove the file. Safe to call twice; nothing in a fork."""
        if self._fd < 0 or self._pid != os.getpid():
            return
        fd, self._fd = self._fd, -1
        self._words.release()
        self._map.close()
        if remove:
            self.path.unlink(missing_ok=True)
        with _mine.lock:
            _mine.held.pop(str(self.path), None)
            os.close(fd)

    def words(self) -> Sequence[int]:
        """Return the head and the places as they are now."""
        return [self._ordered(word) for word in self._words]

    def forked_in_child(self) -> None:
        """The marks belong to the parent, and so does the lock."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _ordered(self, word: int) -> int:
        return int.from_bytes(word.to_bytes(_BYTES, "little"), "big") if self._swap else word


_BITS: Final = {
    Progress.STARTED: 0,
    Progress.FAILED: FAILED_BIT,
    Progress.DONE: DONE_BIT,
    Progress.OUTSIDE: OUTSIDE_BIT,
}
_ALL_BITS: Final = DONE_BIT | FAILED_BIT | OUTSIDE_BIT


def word_of(counter: int, progress: Progress) -> int:
    """Return what stands in the place of a delivery."""
    return counter | _BITS[progress]


def progress_of(words: Iterable[int]) -> Mapping[int, Progress]:
    """Return how far the delivery of each counter has come; those that are missing wait."""
    found: dict[int, Progress] = {}
    for word in words:
        if word & DONE_BIT:
            found[word & ~DONE_BIT] = Progress.DONE
        elif word & FAILED_BIT:
            found[word & ~FAILED_BIT] = Progress.FAILED
        elif word & OUTSIDE_BIT:
            found[word & ~OUTSIDE_BIT] = Progress.OUTSIDE
        elif word:
            found[word] = Progress.STARTED
    return found


def read_marks(path: str | os.PathLike[str]) -> Sequence[int]:
    """Return the word in each place (see `progress_of`); 0: none. Nothing without a file.

    Raises OSError for one that cannot be read.
    """
    return read_all(path)[1:]


def read_all(path: str | os.PathLike[str]) -> Sequence[int]:
    """Return the epoch whose host gave out the counters (0: not said), then those.

    Nothing for a file that is not there. Raises OSError for one that cannot be read.
    """
    with _mine.lock:
        own = _mine.held.get(os.fspath(path))
        if own is not None:
            return own.words()
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return ()
        try:
            data = os.read(fd, _BYTES * (_MOST + 1))
        finally:
            os.close(fd)
    count = len(data) // _BYTES
    return struct.unpack(f"<{count}Q", data[: count * _BYTES])


def owner_of(path: str | os.PathLike[str]) -> int | None:
    """Return the process that holds a file of marks: its pid, 0 where that is invisible, or None.

    None: nobody holds it; its client is dead, or was never there. Raises OSError.
    """
    with _mine.lock:
        if os.fspath(path) in _mine.held:
            return os.getpid()
        try:
            fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            question = struct.pack(
                _FLOCK, *(fcntl.F_WRLCK if at == _TYPE else 0 for at in range(5))
            )
            answer = struct.unpack(_FLOCK, fcntl.fcntl(fd, fcntl.F_GETLK, question))
        finally:
            os.close(fd)
    return None if answer[_TYPE] == fcntl.F_UNLCK else max(0, answer[_PID])


def is_alive(path: str | os.PathLike[str]) -> bool:
    """Whether the client of a file of marks lives. Raises OSError."""
    return owner_of(path) is not None
