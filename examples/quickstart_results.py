"""The files that quickstart.py works on, where it keeps what was found, and the summary."""

import os
import shutil
import sqlite3
import sys
import threading
from pathlib import Path

from embedq import DeadLetter

FOLDER = Path("quickstart-data")


def python_files(folder: str) -> list[str]:
    """Return the Python files below a folder, without those that pip has installed there."""
    found = Path(folder).resolve().rglob("*.py")
    files = sorted(str(path) for path in found if "site-packages" not in path.parts)
    return files or sys.exit(f"there are no Python files in {folder}")


def make_folder() -> None:
    """Make the folder of the demo. A run that came to its end makes room for a new one."""
    if (FOLDER / "finished").exists():
        shutil.rmtree(FOLDER)
    FOLDER.mkdir(exist_ok=True)


class Results:
    """One row per file and never two: a file that is parsed again replaces its own row."""

    def open(self) -> None:
        """Open or create the table."""
        self._lock = threading.Lock()
        self._database = sqlite3.connect(FOLDER / "results.sqlite", check_same_thread=False)
        columns = "file TEXT PRIMARY KEY, definitions INTEGER, attempt INTEGER"
        self._database.execute(f"CREATE TABLE IF NOT EXISTS result ({columns})")

    def save(self, file: str, definitions: int, attempt: int) -> None:
        """Store a row, before the message is acknowledged: a crash in between repeats the work."""
        row = (file, definitions, attempt)
        with self._lock, self._database:
            self._database.execute("INSERT OR REPLACE INTO result VALUES (?, ?, ?)", row)

    def rows(self) -> list[tuple[str, int, int]]:
        """Return all rows."""
        with self._lock:
            return self._database.execute("SELECT * FROM result").fetchall()


def summary(results: Results, files: list[str], letters: list[DeadLetter]) -> int:
    """Say what became of every file; return 1 unless each was counted or is dead, and not both."""
    counted = {row[0]: row for row in results.rows()}
    dead = {letter.body.decode(): letter for letter in letters}
    lost = len(set(files) - counted.keys() - dead.keys())
    both = len(counted.keys() & dead.keys())
    print(f"{len(files):,} files: {len(counted):,} counted, {len(dead):,} dead letters", end="")
    print(f", {lost:,} lost, {both:,} counted and dead")
    print(f"{sum(row[1] for row in counted.values()):,} functions and classes")
    if again := len([row for row in counted.values() if row[2] > 1]):
        print(f"{again:,} files were in work at the crash: delivered again, and counted once")
    top = os.path.commonpath([Path(name).parent for name in files])
    for name, letter in sorted(dead.items()):
        error = letter.attempts[-1].error
        print(f"dead after {len(letter.attempts)} attempts: {os.path.relpath(name, top)}")
        print(f"    {error.type}: {error.message}")
    if dead:
        print(f"the traceback kept with the last one:\n{error.traceback}", end="")
    (FOLDER / "finished").touch()
    return int(bool(lost or both))
