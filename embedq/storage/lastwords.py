"""What Python writes while it crashes, kept in a file beside the database for the next host.

Knows: faulthandler and who has it, the file and its first line, which thread crashed.
Does not know: messages, what the words mean for them (broker.deaths), when consumers start.

faulthandler writes to one file for a whole process. It is taken only while nobody else has it,
and let go only while it still writes here: it may belong to the application from any moment on.
"""

import faulthandler
import os
import re
import stat
import threading
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from embedq.limits import LIMITS
from embedq.storage import fork
from embedq.storage.ownership import Previous
from embedq.storage.placement import PRIVATE, Placement
from embedq.storage.rows import Death

#: What `LastWords.listen` answers, and the lock file then tells the next host.
KEPT: Final = "kept"  # here
ELSEWHERE: Final = "elsewhere"  # the application has faulthandler
ANOTHER: Final = "another"  # the host of another database in this process has it
UNABLE: Final = "unable"  # the file could not be made
#: Before the code of the error for which a living host gave its store up.
STOPPED: Final = "stopped:"

#: A hundred threads of a hundred frames fit; what comes after is not read.
_MOST: Final = 1 << 20
_HEAD: Final = "embedq last words, epoch {epoch}, process {pid}\n"
_HEADED: Final = re.compile(r"embedq last words, epoch (\d{1,18}), process (\d{1,18})\n")
_FATAL: Final = re.compile(r"^Fatal Python error: (.{1,200})$", re.MULTILINE)
_CURRENT: Final = re.compile(r"^Current thread .*\(most recent call first\):\n", re.MULTILINE)


class Words(NamedTuple):
    """What stands in the file: whose it is, the error ("" for none), and the frames.

    `frames` are those of the crashing thread, the newest last, as in any traceback.
    """

    epoch: int
    pid: int
    fatal: str
    frames: str


class _Ear:
    """What faulthandler is given, and alone keeps alive: once it is gone, somebody else listens.

    A descriptor would do, but nobody could tell then whether it is still in use.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        """Return the descriptor to write to."""
        return self._fd

    def flush(self) -> None:
        """Do nothing: faulthandler asks for it, before it writes without buffers."""


class _Process:
    """Who of this process listens."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.ear: weakref.ref[_Ear] | None = None

    def forked_in_child(self) -> None:
        """Write nothing about a child's crash: the parent lives, and so do its deliveries."""
        self.lock = threading.Lock()
        ear, self.ear = None if self.ear is None else self.ear(), None
        if ear is not None:
            faulthandler.disable()
            os.close(ear.fileno())


_process = _Process()


class LastWords:
    """The file of one host: made by `listen`, ended by `end`."""

    def __init__(self, placement: Placement, epoch: int) -> None:
        self._path = placement.words_path
        self._epoch = epoch
        self._fd = -1
        self._ear: weakref.ref[_Ear] | None = None

    def listen(self) -> str:
        """Let a crash of this process be written to the file; return who keeps the record.

        One of KEPT, ELSEWHERE, ANOTHER, UNABLE. Safe to call again. Never raises for what the
        operating system refuses: consumers must run all the same.
        """
        fork.on_fork(_process)
        with _process.lock:
            if self.listens:
                return KEPT
            if _process.ear is not None and _process.ear() is not None:
                return ANOTHER
            if faulthandler.is_enabled() or self._fd >= 0:
                return ELSEWHERE
            try:
                self._fd = self._create()
            except OSError:
                return UNABLE
            ear = _Ear(self._fd)
            self._ear = _process.ear = weakref.ref(ear)
            fork.on_fork(self)
            faulthandler.enable(ear, all_threads=True)
            return KEPT

    @property
    def listens(self) -> bool:
        """Whether a crash would be written here: the application may have changed that."""
        ear = self._ear  # one look: `end` may clear it meanwhile
        return ear is not None and ear() is not None

    @property
    def is_lost(self) -> bool:
        """Whether it listened once, and somebody has taken faulthandler over since."""
        return self._fd >= 0 and not self.listens

    def end(self, *, remove: bool) -> None:
        """Listen no longer. `remove`: there is nothing to tell to the next host."""
        with _process.lock:
            fd, self._fd = self._fd, -1
            if fd < 0:
                return
            if self.listens:
                faulthandler.disable()
            self._ear = None
            os.close(fd)
            if remove:
                with suppress(OSError):  # stale words are known by their epoch
                    self._path.unlink()

    def forked_in_child(self) -> None:
        """Forget the file: it is the parent's."""
        self._fd, self._ear = -1, None

    def _create(self) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_APPEND | os.O_CLOEXEC
        fd = os.open(self._path, flags, PRIVATE)
        try:
            os.fchmod(fd, PRIVATE)  # a umask can take bits of ours away
            head = _HEAD.format(epoch=self._epoch, pid=os.getpid()).encode("ascii")
            if os.write(fd, head) != len(head):
                raise OSError("no room for one line")  # noqa: TRY301 - closed and removed below
        except BaseException:
            os.close(fd)
            with suppress(OSError):
                self._path.unlink()
            raise
        return fd


def learn(placement: Placement, previous: Previous, epoch: int) -> Death:
    """Return what can be known about the end of the last host, whose epoch is given."""
    words = read(placement.words_path)
    # Of another epoch or process: left by somebody who died earlier, or copied here.
    ours = words is not None and words.epoch == epoch and previous.pid in {None, words.pid}
    stopped = previous.words.startswith(STOPPED)
    return Death(
        pid=previous.pid,
        same_boot=previous.same_boot,
        record="" if stopped else previous.words,
        stopped=previous.words.removeprefix(STOPPED) if stopped else "",
        fatal=words.fatal if words is not None and ours else "",
        frames=words.frames if words is not None and ours else "",
    )


def forget(placement: Placement) -> None:
    """Remove the words of an earlier host; a file with other content stays."""
    path = placement.words_path
    if read(path) is not None:
        with suppress(OSError):  # the next host of ours will say that it keeps no record
            path.unlink()


def read(path: Path) -> Words | None:
    """Return the words in a file; None where there are none of ours, or they cannot be read."""
    try:
        # Never waits for whoever may hold the other end of a pipe.
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            return None
        return parse(os.pread(fd, _MOST, 0))
    except OSError:
        return None
    finally:
        os.close(fd)


def parse(data: bytes) -> Words | None:
    """Understand the content of the file; None if its first line is not ours."""
    text = data.decode("utf-8", "backslashreplace")
    head = _HEADED.match(text)
    if head is None:
        return None
    return Words(int(head[1]), int(head[2]), *parsed(text))


def parsed(text: str) -> tuple[str, str]:
    """Return the error and the frames in what faulthandler has written, "" for none."""
    error = _FATAL.search(text)
    return ("", "") if error is None else (error[1].strip(), _frames(text))


def _frames(text: str) -> str:
    """Return the frames of the thread that crashed, turned round: the newest last."""
    current = _CURRENT.search(text)
    if current is None:
        return ""
    frames: list[str] = []
    size = 0
    for line in text[current.end() :].split("\n"):
        size += len(line) + 1
        if not line.startswith("  ") or size > LIMITS.error_bytes:
            break
        frames.append(line)
    return "".join(f"{line}\n" for line in reversed(frames))
