"""Marks: written by a client, read after its end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from embedq.ipc.marks import (
    PLACES,
    Marks,
    Progress,
    is_alive,
    owner_of,
    progress_of,
    read_all,
    read_marks,
    word_of,
)
from tests.processes import line_of

SESSION = bytes(range(16))

CHILD = """
import sys
from pathlib import Path
from embedq.ipc.marks import Marks
marks = Marks.create(Path(sys.argv[1]), bytes(range(16)), 4)
marks.start(1, 4711)
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_mark_is_seen_at_once_and_by_others(tmp_path: Path) -> None:
    marks = Marks.create(tmp_path, SESSION, 4)
    assert marks.path == tmp_path / f"{SESSION.hex()}.marks"
    assert marks.path.stat().st_mode & 0o777 == 0o600
    assert list(read_marks(marks.path)) == [0, 0, 0, 0]
    marks.start(2, 1 << 40)
    assert list(read_marks(marks.path)) == [0, 0, 1 << 40, 0]
    assert marks.path.read_bytes()[24:32] == (1 << 40).to_bytes(8, "little")
    marks.close()
    assert not marks.path.exists()


def test_an_end_is_noted_beside_the_counter(tmp_path: Path) -> None:
    marks = Marks.create(tmp_path, SESSION, 6)
    for place, progress in enumerate(Progress):
        marks.start(place, 10 + place)
        marks.end(place, 10 + place, progress)
        assert marks.is_of(place, 10 + place)
    marks.start(4, 14, outside=True)
    marks.start(5, 20)
    marks.clear(5)
    found = progress_of(read_marks(marks.path))
    assert found == {
        **dict(zip(range(10, 14), Progress, strict=True)),
        14: Progress.OUTSIDE,
    }
    marks.renew(2, [(0, word_of(7, Progress.DONE))])
    assert progress_of(read_marks(marks.path)) == {7: Progress.DONE}
    marks.close()


def test_a_place_that_is_none_is_ignored(tmp_path: Path) -> None:
    marks = Marks.create(tmp_path, SESSION, 2)
    marks.start(-1, 5)
    marks.start(2, 5)
    assert list(read_marks(marks.path)) == [0, 0]
    marks.close()


def test_a_new_host_names_what_runs(tmp_path: Path) -> None:
    marks = Marks.create(tmp_path, SESSION, 4)
    for place in range(4):
        marks.start(place, 10 + place)
    marks.renew(7, [(1, 3), (3, 4)])
    assert list(read_all(marks.path)) == [7, 0, 3, 0, 4]
    marks.close()


def test_the_file_is_sparse(tmp_path: Path) -> None:
    marks = Marks.create(tmp_path, SESSION)
    assert marks.path.stat().st_size == 8 * (PLACES + 1)
    assert marks.path.stat().st_blocks * 512 <= 8192
    marks.close()


def test_the_lock_tells_whether_the_client_lives(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert line_of(child) == b"ready\n"
        path = tmp_path / f"{SESSION.hex()}.marks"
        assert is_alive(path)
        assert owner_of(path) == child.pid
        with pytest.raises(FileExistsError):
            Marks.create(tmp_path, SESSION)
        child.kill()
        child.wait()
        assert not is_alive(path)
        assert list(read_marks(path)) == [0, 4711, 0, 0]
    finally:
        child.kill()
        child.communicate()


def test_looking_at_our_own_marks_does_not_drop_the_lock(tmp_path: Path) -> None:
    marks = Marks.create(tmp_path, SESSION, 4)
    assert is_alive(marks.path)
    assert owner_of(marks.path) == os.getpid()
    read_marks(marks.path)
    code = f"from embedq.ipc.marks import is_alive; print(is_alive({str(marks.path)!r}))"
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert seen.stdout == "True\n"
    marks.close()
    marks.close()


def test_nothing_is_known_of_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert list(read_marks(tmp_path / "none.marks")) == []
    assert not is_alive(tmp_path / "none.marks")


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_fork_does_not_hold_the_marks_of_its_parent(tmp_path: Path) -> None:
    marks = Marks.create(tmp_path, SESSION, 4)
    pid = os.fork()
    if not pid:
        marks.close()  # changes nothing
        os._exit(0 if marks.path.exists() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    code = f"from embedq.ipc.marks import is_alive; print(is_alive({str(marks.path)!r}))"
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert seen.stdout == "True\n"
    marks.close()
