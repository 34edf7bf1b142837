"""Watching a folder: files that are at rest become messages, each content of a path once.

Knows: when a file is complete, what has been put already, what is not to be touched.
Does not know: how changes are seen (workers/eyes.py), who handles the messages.

That a file was put is remembered by the store itself: the message carries a dedup key made of the
path and the content, which is kept for a hundred years. One commit stores both, so that no crash
comes between them, and two processes that watch the same folder put one message. All files are
read at a start: that costs time in a large folder, and needs no state that could disagree.
"""

from __future__ import annotations

import hashlib
import logging
import os
import stat
import threading
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from embedq.app.options import Encoder
from embedq.app.watching import WatchedFile, Wish
from embedq.clock import SystemClock
from embedq.errors import EmbedqError
from embedq.message import Draft
from embedq.workers.eyes import Eyes

if TYPE_CHECKING:
    from embedq.app.broker import Broker

_log = logging.getLogger("embedq")

#: Milliseconds that it is remembered that a file was put.
FOR_EVER_MS: Final = 100 * 365 * 24 * 3600 * 1000
#: Seconds between two looks that nothing has asked for; while something is in the way.
_LOOK_S: Final = 10.0
_TROUBLED_LOOK_S: Final = 1.0
#: Files in one transaction, and seconds to wait for room in a full queue.
_PORTION: Final = 100
_ROOM_S: Final = 1.0
_CHUNK: Final = 1 << 20
_END_S: Final = 3.0


class _State(NamedTuple):
    """What changes with the content. `changed`: the inode's time, which nobody can set back."""

    size: int
    modified: int
    changed: int
    inode: int


class _Unreadable(Exception):
    """A file that will not be put as it is."""


class FolderWatch:
    """A watched folder of a queue: runs beside the consumers of its broker."""

    def __init__(self, broker: Broker, queue: str, wish: Wish) -> None:
        self._broker = broker
        self._queue = queue
        self._wish = wish
        self._encode = Encoder(queue, WatchedFile)
        self._monotonic = SystemClock().monotonic
        self._rung = threading.Event()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, in the background."""
        self._rung, self._closed = threading.Event(), threading.Event()
        #: What was put or is not to be; what is waited for: its state, and since when.
        self._known: dict[str, _State] = {}
        self._unsettled: dict[str, tuple[_State, float]] = {}
        self._root = ""
        self._first = True
        self._trouble = ""
        self._eyes: Eyes | None = None
        self._inode = (0, 0)
        self._leave_alone = not self._wish.existing
        name = f"embedq-folder-{self._queue}"
        self._thread = threading.Thread(target=self._watch, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End. What has been seen and not put is found at the next start."""
        self._closed.set()
        self._rung.set()
        if self._thread is not None:
            self._thread.join(_END_S)

    # ------------------------------------------------------------------------ its thread

    def _watch(self) -> None:
        try:
            while not self._closed.is_set():
                self._rung.clear()
                trouble = self._look()
                self._tell_trouble(trouble)
                self._pause(troubled=bool(trouble))
        except Exception:  # noqa: BLE001 - told here, as nobody waits for this thread
            _log.exception("the folder %s is no longer watched", self._wish.folder)
        finally:
            self._close_eyes()

    def _pause(self, *, troubled: bool) -> None:
        settle = self._wish.settle
        if self._unsettled:  # not before the first of them may have come to rest
            self._closed.wait(settle)
            return
        if self._rung.wait(_TROUBLED_LOOK_S if troubled else _LOOK_S):
            self._closed.wait(settle)

    def _tell_trouble(self, trouble: str) -> None:
        if trouble and trouble != self._trouble:
            self._emit("folder_trouble", path=str(self._wish.folder), detail=trouble)
        self._trouble = trouble

    def _emit(self, event: str, **fields: object) -> None:
        desk, _ = self._broker.state_of(self._queue)
        desk.events.emit(event, times=1, queue=self._queue, **fields)

    def _look(self) -> str:
        """Look at the folder and put what is ready; return what is in the way."""
        leave_alone, self._leave_alone = self._leave_alone, False
        try:
            self._root = os.path.realpath(self._wish.folder)
            blind = self._open_eyes()
            found = dict(self._found())
        except OSError as error:
            self._close_eyes()
            return error.strerror or str(error)
        if leave_alone:
            self._known = found
        self._known = {path: s for path, s in self._known.items() if path in found}
        ready = self._ready(found)
        try:
            put = sum(self._put(ready[n : n + _PORTION]) for n in range(0, len(ready), _PORTION))
        except EmbedqError as error:
            return "" if self._closed.is_set() else error.message
        if self._first and not self._unsettled:
            self._first = False
            self._emit("folder_watched", path=self._root, count=put)
        return blind

    def _open_eyes(self) -> str:
        """See to it that changes are seen; return why not. Raises OSError for a missing folder."""
        status = os.stat(self._root)  # noqa: PTH116 - as below
        inode = (status.st_dev, status.st_ino)
        if self._eyes is not None and inode == self._inode:
            return ""
        self._close_eyes()  # another folder has taken its place
        eyes = Eyes([Path(self._root)], lambda _: self._rung.set(), recursive=self._wish.recursive)
        blind = eyes.open()
        if blind is None:
            self._eyes, self._inode = eyes, inode
            return ""
        eyes.close()
        return f"changes cannot be seen, only looked for: {blind}"

    def _close_eyes(self) -> None:
        if self._eyes is not None:
            self._eyes.close()
            self._eyes = None

    # --------------------------------------------------------------------------- finding

    def _found(self) -> Iterator[tuple[str, _State]]:
        """Go through the files that match."""
        database = os.path.realpath(self._broker.place)
        folders = [self._root]
        while folders:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    name = entry.name
                    if name.startswith(".") and not self._wish.pattern.startswith("."):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        if self._wish.recursive and not name.startswith("."):
                            folders.append(entry.path)
                    elif fnmatchcase(name, self._wish.pattern):
                        state = self._state(entry)
                        if state is not None and not entry.path.startswith(database):
                            yield entry.path, state

    def _state(self, entry: os.DirEntry[str]) -> _State | None:
        """Return the state of a file; None: it is none of ours."""
        if entry.is_symlink() and not self._is_inside(entry.path):
            return None
        try:
            return _state_of(entry.stat())
        except OSError:
            return None  # gone meanwhile, or a link to nowhere

    def _is_inside(self, path: str) -> bool:
        return Path(os.path.realpath(path)).is_relative_to(self._root)

    def _ready(self, found: dict[str, _State]) -> list[tuple[str, _State]]:
        """Return what has changed and is at rest."""
        now = self._monotonic()
        ready: list[tuple[str, _State]] = []
        waiting: dict[str, tuple[_State, float]] = {}
        for path, state in found.items():
            if self._known.get(path) == state:
                continue
            before, since = self._unsettled.get(path, (state, now))
            since = since if before == state else now
            if now - since >= self._wish.settle:
                ready.append((path, state))
            else:
                waiting[path] = (state, since)
        self._unsettled = waiting
        return ready

    # --------------------------------------------------------------------------- putting

    def _put(self, portion: list[tuple[str, _State]]) -> int:
        """Put messages for files; return how many were new."""
        desk, queue = self._broker.state_of(self._queue)
        done: dict[str, _State] = {}
        drafts: list[Draft] = []
        for path, state in portion:
            if self._closed.is_set():
                return 0
            try:
                file = self._read(path, state)
            except (OSError, _Unreadable) as error:
                text = getattr(error, "strerror", None) or str(error)
                done[path] = state  # until it changes, be it only who may read it
                if not isinstance(error, FileNotFoundError):
                    self._emit(
                        "file_unreadable",
                        path=os.fsencode(path).decode(errors="backslashreplace"),
                        error=text,
                    )
                continue
            if file is not None:
                done[path] = state
                drafts.append(self._draft(file))
        receipts = desk.put_drafts(queue, drafts, _ROOM_S) if drafts else []
        self._known |= done
        return sum(not receipt.duplicate for receipt in receipts)

    def _read(self, path: str, state: _State) -> WatchedFile | None:
        """Read a file; None: it is being written again, and waited for."""
        try:
            path.encode()
        except UnicodeEncodeError as error:
            raise _Unreadable("its name is not UTF-8") from error
        # Not blocking: a pipe that took the place of the file would be waited for.
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        digest = hashlib.sha256()
        with open(os.open(os.path.realpath(path), flags), "rb", buffering=0) as file:  # noqa: PTH123
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise _Unreadable("it is not a regular file")
            while data := file.read(_CHUNK):
                digest.update(data)
                if self._closed.is_set():
                    return None
            if _state_of(os.fstat(file.fileno())) != state:
                self._unsettled[path] = (state, self._monotonic())
                return None
        return WatchedFile(path, state.size, state.modified / 1e9, digest.hexdigest())

    def _draft(self, file: WatchedFile) -> Draft:
        kind, body = self._encode(file)
        key = hashlib.sha256(f"{file.path}\0{file.sha256}".encode()).hexdigest()
        return Draft(body, kind, dedup_key=f"file:{key}", dedup_window_ms=FOR_EVER_MS)


def _state_of(found: os.stat_result) -> _State | None:
    if not stat.S_ISREG(found.st_mode):
        return None
    return _State(found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)
