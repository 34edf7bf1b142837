"""Measure files and functions, and name those a reader would get lost in.

Knows: the limits on lines and the names that say nothing; Python's syntax tree.
Does not know: style, which is ruff's business.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parent.parent

FILE_LINES = 400
TEST_FILE_LINES = 500  # a test file repeats itself more, and is read one test at a time
FUNCTION_LINES = 50  # without the docstring; above it is a note
FUNCTION_LINES_MOST = 70  # above it is an error
VAGUE_NAMES = frozenset({"base", "common", "helpers", "misc", "util", "utils"})

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Finding(NamedTuple):
    """Something above its limit; a note does not fail the gate."""

    path: str
    line: int
    text: str
    is_note: bool = False

    def __str__(self) -> str:
        kind = "note: " if self.is_note else ""
        return f"{self.path}:{self.line}: {kind}{self.text}"


def python_files(root: Path) -> list[str]:
    """List the Python files of a work tree that are, or are about to be, under version control."""
    # A clone that belongs to another user (some build machines) is ours to list all the same.
    git = ["git", "-c", f"safe.directory={root}"]
    command = [*git, "ls-files", "--cached", "--others", "--exclude-standard", "-z", "*.py"]
    listed = subprocess.check_output(command, cwd=root, text=True)
    return sorted(name for name in set(listed.split("\0")) if name and (root / name).is_file())


def body_lines(function: Function) -> int:
    """Count the lines of a function without its docstring, which is not what makes it long."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function, clean=False) is not None:
        lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return lines


def check_function(path: str, function: Function) -> Iterator[Finding]:
    """Find what is too large about one function."""
    lines = body_lines(function)
    if lines > FUNCTION_LINES:
        text = f"{function.name}() has {lines} lines; at most {FUNCTION_LINES} read well"
        yield Finding(path, function.lineno, text, is_note=lines <= FUNCTION_LINES_MOST)


def check_file(path: str, source: str) -> Iterator[Finding]:
    """Find what is too large, or too vaguely named, in one file."""
    limit = TEST_FILE_LINES if path.startswith("tests/") else FILE_LINES
    lines = source.count("\n")
    if lines > limit:
        yield Finding(
            path, 1, f"{lines} lines; {limit} is the limit: split by what the parts know"
        )
    for name in Path(path).with_suffix("").parts:
        if name in VAGUE_NAMES:
            yield Finding(path, 1, f"the name {name!r} says nothing about what is inside")
    for node in ast.walk(ast.parse(source, path)):
        if isinstance(node, Function):
            yield from check_function(path, node)


def findings(root: Path, paths: Sequence[str]) -> list[Finding]:
    """Find everything above its limit in some files of a work tree."""
    found: list[Finding] = []
    for path in paths:
        found.extend(check_file(path, (root / path).read_text(encoding="utf-8")))
    return found


def main() -> int:
    """Print the findings; exit code 1 if one of them is not a note."""
    found = findings(ROOT, python_files(ROOT))
    for finding in found:
        print(finding)
    return int(any(not finding.is_note for finding in found))


if __name__ == "__main__":
    sys.exit(main())
