"""Eyes: who is told when something in a folder changes. The one place that knows watchdog.

Knows: which events mean that content may have changed, what to do where a system has no room.
Does not know: which files matter, whether their content is another one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final
from weakref import WeakSet

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver

_log = logging.getLogger("embedq")

#: Opening, reading and closing tell nothing: our own reading would tell us to read again.
_TOLD: Final = frozenset({"created", "modified", "moved", "deleted", "closed"})
_END_S: Final = 2.0

#: Threads of watchdog that we have told to end.
_ending: WeakSet[threading.Thread] = WeakSet()


def _is_news(record: logging.LogRecord) -> bool:
    """Whether a record of watchdog's tells more than that a thread ends which is told to.

    It takes away what the thread reads from, without waiting for it: the thread that has just seen
    that it is to go on, or has just read an event, then logs an error, and ends. No order of ours
    prevents that, as only this wakes a thread that reads.
    """
    ends = threading.current_thread() in _ending
    return not (ends and "called when the thread is inactive" in record.getMessage())


logging.getLogger("watchdog.observers.inotify").addFilter(_is_news)


class Eyes(FileSystemEventHandler):
    """Calls `told(path)` on a thread of its own for whatever may have changed in folders."""

    def __init__(
        self, folders: Iterable[Path], told: Callable[[str], object], *, recursive: bool = True
    ) -> None:
        self._folders = list(folders)
        self._told = told
        self._recursive = recursive
        self._observer: BaseObserver | None = None

    def open(self) -> str | None:
        """Begin. Returns why nothing can be seen, so that the caller has to look; None: it can."""
        try:
            self._observer = observer = Observer()
            for folder in self._folders:
                observer.schedule(self, str(folder), recursive=self._recursive)
            observer.start()
        except OSError as error:  # no such folder, or the system's limit of watches is reached
            return error.strerror or str(error)
        return None

    def close(self) -> None:
        """End. Safe to call whatever became of `open`."""
        observer, self._observer = self._observer, None
        if observer is None:
            return
        _ending.update(observer.emitters)
        observer.stop()  # also one that could not be started: it has threads and descriptors
        if observer.is_alive():
            observer.join(_END_S)

    def on_any_event(self, event: FileSystemEvent) -> None:
        """Pass on the paths of an event. Called by watchdog."""
        if event.event_type not in _TOLD:
            return
        if event.is_directory and event.event_type == "modified":
            return  # an event about what is in it comes, too
        for path in (event.src_path, event.dest_path):
            if path:
                try:
                    self._told(str(path) if not isinstance(path, bytes) else path.decode())
                except Exception:  # noqa: BLE001 - it would end the observer for good
                    _log.exception("a change of %r could not be told", path)
