"""What tests start: a program that hangs fails its test in time, and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.processes import line_of, lines_until, run

#: Starts a program of its own, tells its pid and hangs.
HANGING = """
import subprocess, sys, threading
child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
print(f"started {child.pid}\\nwaiting", flush=True)
threading.Event().wait(600)
"""
COMMAND = [sys.executable, "-c", HANGING]
SHORT_S = 0.2


def ends(pid: int) -> bool:
    """Wait until a process is gone, or a zombie that somebody will collect."""
    for _ in range(3_000):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        threading.Event().wait(0.01)
    return False


def hanging(*, group: bool) -> subprocess.Popen[str]:
    return subprocess.Popen(
        COMMAND, stdout=subprocess.PIPE, text=True, start_new_session=group, env=os.environ
    )


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only on Linux there is /proc")


def test_a_program_that_hangs_is_killed_with_all_it_started_and_what_it_said_is_told():
    with hanging(group=True) as process:
        (said,) = lines_until(process, "started")
        with pytest.raises(AssertionError, match=r"took more than 0\.2 s; said: \['waiting'\]"):
            lines_until(process, "ended", SHORT_S)
    assert process.returncode == -9
    assert ends(int(said.split()[1]))


def test_a_line_that_never_comes_is_no_empty_line():
    with hanging(group=True) as process:
        assert line_of(process).startswith("started ")
        assert line_of(process) == "waiting\n"
        with pytest.raises(AssertionError, match="took more than"):
            line_of(process, SHORT_S)


def test_a_program_that_ends_without_the_text_shows_what_it_said():
    command = [sys.executable, "-c", "print('one'); print('two')"]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process,
        pytest.raises(AssertionError, match=r"\['one', 'two'\]"),
    ):
        lines_until(process, "three")


def test_a_command_that_takes_too_long_ends_with_all_it_started():
    note = ""
    for timeout in (0.5, 2.0, 8.0, 32.0):  # long enough for it to have started something
        with pytest.raises(subprocess.TimeoutExpired) as caught:
            run(COMMAND, timeout=timeout, capture_output=True, text=True)
        (note,) = caught.value.__notes__
        if "waiting" in note:
            break
    assert ends(int(note.split("started ")[1].split("\\n")[0]))


def test_a_command_that_fails_is_told_as_by_the_standard_library():
    command = [sys.executable, "-c", "import sys; sys.exit(input())"]
    done = run(command, input="why\n", capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "why\n")
    with pytest.raises(subprocess.CalledProcessError):
        run(command, input="why\n", capture_output=True, text=True, check=True)
