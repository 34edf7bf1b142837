"""Eyes: who is told when something in a folder changes. The one place that knows watchdog.

Knows: which events mean that content may have changed, what to do where a system has no room.
Does not know: which files matter, whether their content is another one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer

_log = logging.getLogger("embedq")

#: Opening, reading and closing tell nothing: our own reading would tell us to read again.
_TOLD: Final = frozenset({"created", "modified", "moved", "deleted", "closed"})
_END_S: Final = 2.0


class Eyes(FileSystemEventHandler):
    """Calls `told(path)` on a thread of its own for whatever may have changed in folders."""

    def __init__(
        self, folders: Iterable[Path], told: Callable[[str], object], *, recursive: bool = True
    ) -> None:
        self._folders = list(folders)
        self._told = told
        self._recursive = recursive
        self._observer = Observer()

    def open(self) -> str | None:
        """Begin. Returns why nothing can be seen, so that the caller has to look; None: it can."""
        try:
            for folder in self._folders:
                self._observer.schedule(self, str(folder), recursive=self._recursive)
            self._observer.start()
        except OSError as error:  # no such folder, or the system's limit of watches is reached
            return error.strerror or str(error)
        return None

    def close(self) -> None:
        """End. Safe to call whatever became of `open`."""
        if self._observer.is_alive():
            self._observer.stop()
            self._observer.join(_END_S)

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
