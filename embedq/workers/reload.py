"""Changes of source code: seen, waited for, and told only if the content is another one.

Knows: which files are code, which folders never are, that files are saved in several steps.
Does not know: what is reloaded, processes.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from embedq.workers.eyes import Eyes

#: Seconds without a further change before what has changed is looked at.
QUIET_S: Final = 0.3
#: Seconds after which it is looked at although changes go on.
_LONGEST_S: Final = 3.0
_STEPS: Final = 3
#: Seconds between two looks that nothing has asked for; without eyes.
_LOOK_S: Final = 10.0
_BLIND_LOOK_S: Final = 1.0
_NEVER: Final = frozenset({"__pycache__", "node_modules", "site-packages"})
_State = tuple[int, int, int]


class Sources:
    """The source files of some folders, by the hash of their content."""

    def __init__(self, folders: Iterable[Path], patterns: Sequence[str] = ("*.py",)) -> None:
        self.folders = list(dict.fromkeys(folder.resolve() for folder in folders))
        self._patterns = tuple(patterns)
        #: A path with which the files of a database begin, which are no code whatever matches.
        self.database: str | None = None
        self._known: dict[str, tuple[_State, bytes]] = {}

    def concern(self, path: str) -> bool:
        """Whether a change of a path may be one of the code: a file, or a folder of them."""
        inside = next((f for f in self.folders if Path(path).is_relative_to(f)), None)
        if inside is None:
            return False
        parts = Path(path).relative_to(inside).parts
        if any(_is_no_code(part) for part in parts[:-1]):
            return False
        return self._is_code(path) or (
            bool(parts) and not _is_no_code(parts[-1]) and "." not in parts[-1]
        )

    def _is_code(self, path: str) -> bool:
        if self.database is not None and os.path.realpath(path).startswith(self.database):
            return False
        return any(fnmatch(os.path.basename(path), each) for each in self._patterns)  # noqa: PTH119

    def changes(self) -> list[str]:
        """Look at all files; return those that are new, gone or different since the last look."""
        before = self._known
        self._known = dict(self._look(before))
        paths = before.keys() | self._known.keys()
        return sorted(p for p in paths if _hash(before, p) != _hash(self._known, p))

    def _look(
        self, before: dict[str, tuple[_State, bytes]]
    ) -> Iterator[tuple[str, tuple[_State, bytes]]]:
        for path in self._files():
            try:
                stat = os.stat(path)  # noqa: PTH116 - thousands of files
                state = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
                known = before.get(path)
                if known is not None and known[0] == state:
                    yield path, known
                else:
                    with open(path, "rb") as file:  # noqa: PTH123 - as above
                        yield path, (state, hashlib.file_digest(file, "sha256").digest())
            except OSError:
                continue  # gone meanwhile, or not readable: as if it were not there

    def _files(self) -> Iterator[str]:
        for folder in self.folders:
            for root, folders, files in os.walk(folder):
                folders[:] = [name for name in folders if not _is_apart(root, name)]
                for name in files:
                    path = os.path.join(root, name)  # noqa: PTH118 - as above
                    if self._is_code(path):
                        yield path


def _hash(files: dict[str, tuple[_State, bytes]], path: str) -> bytes | None:
    found = files.get(path)
    return None if found is None else found[1]


def _is_no_code(name: str) -> bool:
    return name.startswith(".") or name in _NEVER


def _is_apart(root: str, name: str) -> bool:
    """Whether a folder holds no code of the project: caches, repositories, environments."""
    return _is_no_code(name) or os.path.exists(os.path.join(root, name, "pyvenv.cfg"))  # noqa: PTH110, PTH118


class Changes:
    """Calls `told(paths)` on a thread of its own when code has changed and is at rest again."""

    def __init__(self, sources: Sources, told: Callable[[list[str]], object]) -> None:
        self._sources = sources
        self._told = told
        self._rung = threading.Event()
        self._closed = threading.Event()
        self._eyes = Eyes(sources.folders, self._see)
        self._thread = threading.Thread(target=self._watch, name="embedq-changes", daemon=True)
        self._pause = _LOOK_S

    def open(self) -> str | None:
        """Begin; what is there now is known. Returns why it has to look every second, if so."""
        blind = self._eyes.open()
        if blind is not None:
            self._pause = _BLIND_LOOK_S
        self._sources.changes()
        self._thread.start()
        return blind

    def close(self) -> None:
        """End."""
        self._eyes.close()
        self._closed.set()
        self._rung.set()

    def _see(self, path: str) -> None:
        if self._sources.concern(path):
            self._rung.set()

    def _watch(self) -> None:
        while not self._closed.is_set():
            if self._rung.wait(self._pause):
                self._rest()
            if self._closed.is_set():
                return
            changed = self._sources.changes()
            if changed:
                self._told(changed)

    def _rest(self) -> None:
        """Wait until nothing has changed for a while."""
        quiet = 0
        for _ in range(round(_LONGEST_S / QUIET_S) * _STEPS):
            self._rung.clear()
            if self._closed.wait(QUIET_S / _STEPS):
                return
            quiet = 0 if self._rung.is_set() else quiet + 1
            if quiet >= _STEPS:
                return
        self._rung.clear()
