"""Every example is short, says what it shows, and prints what it promises."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
MOST_LINES = 60


def expected_output(path: Path) -> Path:
    """Find the file beside an example that holds what it prints."""
    return path.with_suffix(".txt")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_prints_what_the_file_beside_it_says(path: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(path)],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == expected_output(path).read_text()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short_and_says_what_it_shows(path: Path) -> None:
    source = path.read_text()
    assert source.count("\n") <= MOST_LINES
    assert ast.get_docstring(ast.parse(source))
