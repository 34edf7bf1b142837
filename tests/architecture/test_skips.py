"""A skipped test must not look like a passed one where everything is installed."""

import os
import sys
from pathlib import Path

import pytest

from tests import processes

CONFTEST = Path(__file__).parent.parent / "conftest.py"
TESTS = """
import pytest

def test_that_skips():
    pytest.skip({reason!r})

@pytest.mark.xfail(reason="known", strict=True)
def test_that_is_expected_to_fail():
    assert False
"""


def run_pytest(folder: Path, reason: str, ci: str) -> str:
    (folder / "conftest.py").write_text(CONFTEST.read_text())
    (folder / "test_it.py").write_text(TESTS.format(reason=reason))
    (folder / "pytest.ini").write_text("[pytest]\n")
    done = processes.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."],
        cwd=folder,
        env={**os.environ, "CI": ci},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.stdout


def test_a_skip_in_ci_is_a_failure(tmp_path: Path) -> None:
    output = run_pytest(tmp_path, "strace is missing", ci="true")
    assert "1 failed, 1 xfailed" in output
    assert "strace is missing" in output


@pytest.mark.parametrize(("reason", "ci"), [("only on macOS", "true"), ("no strace", "")])
def test_other_skips_stay_skips(tmp_path: Path, reason: str, ci: str) -> None:
    assert "1 skipped, 1 xfailed" in run_pytest(tmp_path, reason, ci)
