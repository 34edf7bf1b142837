"""Changes of code are told once each, and only if the content is another one."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, SimpleQueue

import pytest

from embedq.workers import reload as module
from embedq.workers.eyes import Eyes
from embedq.workers.reload import QUIET_S, Changes, Sources

pytestmark = pytest.mark.slow

SOON = 20.0
#: Long enough for a change to have been told, had there been one.
WHILE = 3 * QUIET_S


class Project:
    def __init__(self, folder: Path, *patterns: str) -> None:
        self.folder = folder
        self.write("shop.py", "x = 1\n")
        self.told: SimpleQueue[list[str]] = SimpleQueue()
        self.sources = Sources([folder], patterns or ("*.py",))
        self.changes = Changes(self.sources, self.told.put)
        assert self.changes.open() is None

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def next(self) -> list[str]:
        return [os.path.relpath(path, self.folder) for path in self.told.get(timeout=SOON)]

    def nothing(self) -> None:
        with pytest.raises(Empty):
            self.told.get(timeout=WHILE)


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    made = Project(tmp_path)
    yield made
    made.changes.close()


def test_a_change_is_told_with_its_file(project):
    project.write("shop.py", "x = 2\n")
    assert project.next() == ["shop.py"]
    project.write("new/deep.py", "y = 1\n")
    assert project.next() == ["new/deep.py"]
    (project.folder / "new/deep.py").unlink()
    assert project.next() == ["new/deep.py"]


def test_a_file_that_is_moved_into_place_counts(project):
    project.write("shop.py.tmp", "x = 3\n").replace(project.folder / "shop.py")
    assert project.next() == ["shop.py"]


def test_a_burst_of_writes_is_one_change(project):
    for number in range(20):
        project.write("shop.py", f"x = {number + 10}\n")
        project.write("other.py", f"x = {number}\n")
    assert project.next() == ["other.py", "shop.py"]
    project.nothing()


def test_touching_reading_and_writing_the_same_is_no_change(project):
    path = project.folder / "shop.py"
    path.touch()
    path.read_text()
    path.write_text("x = 1\n")
    project.nothing()


def test_what_is_no_code_is_no_change(project):
    for name in ("data.txt", "q.db", "q.db-wal", ".git/x.py", ".venv/x.py", "__pycache__/x.py"):
        project.write(name, "anything")
    (project.folder / "env").mkdir()
    project.write("env/pyvenv.cfg", "")
    project.write("env/lib/x.py", "")
    project.nothing()


def test_the_files_of_the_database_are_none_whatever_the_patterns_say(tmp_path):
    project = Project(tmp_path, "*.py", "*.yaml", "q.*")
    try:
        project.sources.database = str(tmp_path.resolve() / "q.db")
        project.write("q.db", "x")
        project.write("q.db-wal", "x")
        project.write("q.db.lock", "x")
        project.nothing()
        project.write("conf.yaml", "x")
        assert project.next() == ["conf.yaml"]
    finally:
        project.changes.close()


def test_without_eyes_it_looks_by_itself(tmp_path, monkeypatch):
    def no_room(self: object) -> str:
        return "no space left on device"

    monkeypatch.setattr(Eyes, "open", no_room)
    monkeypatch.setattr(module, "_BLIND_LOOK_S", 0.05)
    (tmp_path / "shop.py").write_text("x = 1\n")
    told = threading.Event()
    changes = Changes(Sources([tmp_path]), lambda _: told.set())
    try:
        assert changes.open() == "no space left on device"
        (tmp_path / "shop.py").write_text("x = 2\n")
        assert told.wait(SOON)
    finally:
        changes.close()


def test_changes_that_go_by_size_only_would_be_caught(project, monkeypatch):
    """The planted bug: content is not looked at."""

    def by_size(_files: object, path: str) -> bytes | None:
        return str(Path(path).stat().st_size).encode()

    monkeypatch.setattr(module, "_hash", by_size)
    project.write("shop.py", "x = 2\n")
    project.nothing()
