""".ci/run on a new machine: it installs what is missing, then runs the gate and the tests."""

import shutil
import subprocess
from pathlib import Path

import pytest

import sizes
from tests import processes

#: Programs of others that the tests run.
CLIENTS = ("curl", "chromium")
SCRIPT = sizes.ROOT / ".ci" / "run"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Programs of a machine that has only Python and git, and records what is run."""
    for name in ("bash", "dirname"):
        (tmp_path / name).symlink_to(shutil.which(name) or "")
    for name in ("python3", "git", "apt-get"):
        stand_in(tmp_path, name, f'echo "{name} $*" >> "{tmp_path}/log"')
    stand_in(tmp_path, "id", "echo 0")
    for name in CLIENTS:
        stand_in(tmp_path, name, "")
    return tmp_path


def stand_in(folder: Path, name: str, body: str) -> None:
    (folder / name).unlink(missing_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(0o755)


def run_script(machine: Path) -> tuple[int, list[str], str]:
    done = processes.run(
        [str(machine / "bash"), str(SCRIPT)],
        env={"PATH": str(machine)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    log = machine / "log"
    return done.returncode, log.read_text().splitlines() if log.exists() else [], done.stderr


def test_what_is_missing_is_installed_and_the_tests_come_last(machine: Path) -> None:
    code, log, _ = run_script(machine)
    assert code == 0
    assert "apt-get install -y -qq --no-install-recommends strace" in log
    assert log[-3:] == [
        "python3 tools/dev.py check --fast",
        "python3 tools/dev.py older-client",
        "python3 tools/dev.py test --reruns 1 --rerun-show-tracebacks",
    ]


def test_nothing_is_installed_where_nothing_is_missing(machine: Path) -> None:
    stand_in(machine, "strace", "")
    code, log, _ = run_script(machine)
    assert code == 0
    assert not any(line.startswith("apt-get") for line in log)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_that_the_tests_run_is_installed(machine: Path, client: str) -> None:
    stand_in(machine, "strace", "")
    (machine / client).unlink()
    code, log, _ = run_script(machine)
    assert code == 0
    assert f"apt-get install -y -qq --no-install-recommends {client}" in log


def test_a_python_that_cannot_make_environments_gets_its_package(machine: Path) -> None:
    stand_in(machine, "strace", "")
    stand_in(machine, "python3", '[ "$1" != -c ]')
    code, log, _ = run_script(machine)
    assert code == 0
    assert "apt-get install -y -qq --no-install-recommends python3-venv" in log


def test_packages_that_cannot_be_installed_are_named_and_nothing_is_run(machine: Path) -> None:
    (machine / "curl").unlink()
    stand_in(machine, "strace", "")
    stand_in(machine, "apt-get", '[ "$1" != install ]')
    code, log, errors = run_script(machine)
    assert code == 1
    assert "apt-get did not install all of these: curl\n" in errors
    assert not any("dev.py" in line for line in log)


def test_without_a_browser_the_others_are_run(machine: Path) -> None:
    (machine / "chromium").unlink()
    stand_in(machine, "strace", "")
    stand_in(machine, "apt-get", '[ "$1" != install ]')
    code, log, errors = run_script(machine)
    assert code == 0
    assert "there is no Chromium" in errors
    assert log[-1] == "python3 tools/dev.py test --reruns 1 --rerun-show-tracebacks"


def test_without_the_right_to_install_the_missing_packages_are_named(machine: Path) -> None:
    stand_in(machine, "id", "echo 1000")
    code, log, errors = run_script(machine)
    assert code == 1
    assert "install these first: strace" in errors
    assert not any("dev.py" in line for line in log)


@pytest.mark.parametrize("command", ["check", "test"])
def test_a_failure_of_the_gate_or_of_the_tests_fails_ci(machine: Path, command: str) -> None:
    stand_in(machine, "strace", "")
    stand_in(machine, "python3", f'[ "$2" != {command} ]')
    assert run_script(machine)[0] == 1
