"""Run the `console` blocks of a page: what stands behind a `$ ` is typed, the rest is printed.

All blocks of a page are one session of a shell in an empty folder. `...` in what is printed stands
for anything (times, sizes). A command that fails fails the page, unless it says so: `; echo $?`.
"""

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests import processes
from tests.docs import transcript
from tests.docs.markdown import ROOT, Block

PROMPT = "$ "
# What a program could print by itself ends no command: this control character does.
MARK = "\x1e"


class Typed(NamedTuple):
    """A command, the line of the page it stands on, what the page says it prints."""

    command: str
    line: int
    output: str


class Ran(NamedTuple):
    """A command that was run: all it printed, and its exit code (None: the shell has ended)."""

    typed: Typed
    printed: str
    code: int | None

    @property
    def is_as_told(self) -> bool:
        """Whether it did what the page says."""
        return self.code == 0 and transcript.fits(self.typed.output, self.printed)


def typed(found: list[Block]) -> list[Typed]:
    """Read the console blocks of a page."""
    steps: list[Typed] = []
    for block in found:
        if block.info != "console":
            continue
        first = len(steps)
        for number, line in enumerate(block.text.splitlines(keepends=True), start=block.line):
            if line.startswith(PROMPT):
                steps.append(Typed(line.removeprefix(PROMPT).strip(), number, ""))
            elif len(steps) > first:
                last = steps.pop()
                steps.append(last._replace(output=last.output + line))
            else:
                raise ValueError(f"line {number} of a console block comes before any command")
    return steps


def run(steps: list[Typed], folder: Path) -> list[Ran]:
    """Type the commands into one shell in `folder`."""
    programs = folder.with_name(f"{folder.name}-programs")
    programs.mkdir()
    for program, arguments in {"embedq": "-m embedq", "python": ""}.items():
        script = programs / program
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {arguments} "$@"\n')
        script.chmod(0o755)
    environment = {n: v for n, v in os.environ.items() if not n.startswith("EMBEDQ_")}
    environment |= {
        "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "PYTHONPATH": str(ROOT),
        "COLUMNS": "100",
    }
    session = "".join(f"{step.command}\nprintf '{MARK}%d{MARK}' $?\n" for step in steps)
    done = processes.run(
        ["sh", "-c", session],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=120,
    )
    parts = done.stdout.split(MARK)
    ran = []
    for number, step in enumerate(steps):
        has_ended = 2 * number + 1 < len(parts)
        printed = parts[2 * number] if 2 * number < len(parts) else ""
        ran.append(Ran(step, printed, int(parts[2 * number + 1]) if has_ended else None))
    return ran
