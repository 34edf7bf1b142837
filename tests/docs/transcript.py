"""Run what the file beside an example shows, and compare what is printed with it."""

import doctest
import os
import signal
import sys
from pathlib import Path
from typing import NamedTuple

from tests import processes

PROMPT = "$ python "


class Step(NamedTuple):
    """A command line and what it prints. `...` in that stands for anything (times, paths)."""

    command: str
    output: str


def steps(path: Path) -> list[Step]:
    """Read the file beside an example: lines with a prompt are commands, others are output.

    Without any prompt all of it is the output of the example itself.
    """
    found: list[Step] = []
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.startswith(PROMPT):
            found.append(Step(line.removeprefix(PROMPT).strip(), ""))
        else:
            last = found.pop() if found else Step(f"{path.stem}.py", "")
            found.append(last._replace(output=last.output + line))
    return found


def run(command: str, examples: Path, folder: Path) -> str:
    """Run one command line in a folder; return all it prints, as a shell would show it."""
    name, *arguments = command.split()
    done = processes.run(
        [sys.executable, "-W", "error", str(examples / name), *arguments],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    if done.returncode == -signal.SIGKILL:
        end = "Killed\n"
    else:
        end = f"exit code {done.returncode}\n" if done.returncode else ""
    return done.stdout + done.stderr + end


def fits(expected: str, printed: str) -> bool:
    """Tell whether the output is the expected one."""
    return doctest.OutputChecker().check_output(expected, printed, doctest.ELLIPSIS)


def make_sample(folder: Path) -> None:
    """Make a folder of 400 Python files, of which two cannot be parsed in any version."""
    for number in range(400):
        path = folder / f"room{number % 8}" / f"file{number:03}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("class A:\n    def f(self): ...\n\nasync def g(): ...\n", encoding="utf-8")
    broken = {"room0/file000.py": "print 'as in Python 2'\n"}
    broken["room1/file321.py"] = "# coding: no-such-encoding\n"
    for name, text in broken.items():
        (folder / name).write_text(text, encoding="utf-8")
