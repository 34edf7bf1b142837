"""Run the gate: every check a change must pass, as one table.

Knows: the steps, their order in the table, the command that mends each, what runs beside what.
Does not know: what the steps check; their rules stand in pyproject.toml and beside them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from dev import pytest_arguments

ROOT = Path(__file__).resolve().parent.parent
PYTHON = sys.executable
BIN = Path(PYTHON).parent


class Step(NamedTuple):
    """One row of the table."""

    name: str
    command: tuple[str, ...]
    mend: str


STEPS = (
    Step("format", (PYTHON, "-m", "ruff", "format", "--check", "."), "ruff format ."),
    Step(
        "lint",
        (PYTHON, "-m", "ruff", "check", "--output-format=concise", "."),
        "ruff check --fix .  (the rest by hand)",
    ),
    Step("sizes", (PYTHON, "tools/sizes.py"), "split by what the parts know"),
    Step("imports", (str(BIN / "lint-imports"),), "import downwards: docs/map.md, pyproject.toml"),
    Step("map", (PYTHON, "tools/module_map.py", "--check"), "python tools/module_map.py"),
    Step("tables", (PYTHON, "tools/gendocs.py", "--check"), "python tools/gendocs.py"),
    Step("types", (PYTHON, "-m", "mypy"), "give the types it asks for"),
)
TESTS = Step(
    "tests",
    (PYTHON, "-m", "pytest", *pytest_arguments([])),
    "python tools/dev.py test --last-failed",
)
#: Steps that run at the same time; the tests, which take all cores, run after them.
AT_ONCE = 2


class Result(NamedTuple):
    """How a step ended."""

    step: Step
    code: int
    seconds: float


def perform(step: Step, *, show: bool) -> Result:
    """Run one step; its output is shown as it comes, or only if the step fails."""
    started = time.monotonic()
    try:
        done = subprocess.run(
            step.command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=None if show else subprocess.PIPE,
            stderr=None if show else subprocess.STDOUT,
            text=True,
            check=False,
        )
        code, output = done.returncode, done.stdout
    except OSError as error:
        code, output = 127, f"{step.command[0]} cannot be run: {error}\n"
    result = Result(step, code, time.monotonic() - started)
    if code != 0 and output:
        end = "" if output.endswith("\n") else "\n"
        # In one piece: another step may have something to say, too.
        print(f"--- {step.name} {'-' * (90 - len(step.name))}\n{output}{end}", end="", flush=True)
    return result


def table(results: list[Result]) -> str:
    """Write the table: what passed, what failed, and how to mend that."""
    lines = []
    for step, code, seconds in results:
        verdict = "ok" if code == 0 else "FAILED"
        mend = "" if code == 0 else f"  mend: {step.mend}"
        lines.append(f"{step.name:10} {verdict:6} {seconds:6.1f} s{mend}")
    return "\n".join(lines)


def main(argv: list[str]) -> int:
    """Run the steps (all of them even if one fails); exit code 1 if any failed."""
    parser = argparse.ArgumentParser(prog="check.py", description="Run the gate.")
    parser.add_argument("--fast", action="store_true", help="leave the tests out")
    parser.add_argument("steps", nargs="*", help="only these steps, by name")
    options = parser.parse_args(argv)
    if find_spec("ruff") is None:
        print("the tools are not installed here; run: python3 tools/dev.py check")
        return 2
    steps = STEPS if options.fast else (*STEPS, TESTS)
    if unknown := set(options.steps) - {step.name for step in steps}:
        parser.error(f"no such step: {', '.join(sorted(unknown))}")
    chosen = [step for step in steps if not options.steps or step.name in options.steps]
    quick = [step for step in chosen if step is not TESTS]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        # The types take longer than all others, which are done beside them: they begin first.
        begun = {step: pool.submit(perform, step, show=False) for step in reversed(quick)}
        results = [begun[step].result() for step in quick]
    results += [perform(TESTS, show=True)] if TESTS in chosen else []
    print(table(results))
    return int(any(result.code for result in results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
