"""The tools that look for lost messages: they run, say what they found, and find what is there."""

import sys
from pathlib import Path

import pytest

from tests import processes
from tests.reliability.nth import needs_strace

pytestmark = pytest.mark.reliability

ROOT = Path(__file__).parents[2]


def run(tool, *arguments):
    done = processes.run(
        [sys.executable, f"tools/{tool}.py", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout.splitlines()


def test_killloop_kills_in_both_modes(tmp_path):
    code, lines = run("killloop", "--cycles", "1", "--folder", str(tmp_path))
    assert code == 0
    assert lines[-1].startswith("2 deaths, ")


def test_killloop_tells_what_was_lost_and_how_to_repeat_it():
    arguments = ("--cycles", "40", "--mode", "full", "--planted", "early", "--seed", "lossy")
    code, lines = run("killloop", *arguments)
    assert code == 1
    assert lines[0] == "seed lossy"
    assert any("is lost: its put was confirmed [seed lossy-full-" in line for line in lines)


def test_killloop_kills_hosts_with_consumers(tmp_path):
    arguments = ("--mixed", "--seeds", "1", "--mode", "normal", "--folder", str(tmp_path))
    code, lines = run("killloop", *arguments)
    assert code == 0
    assert lines[-1].startswith("4 deaths, ")


def test_killloop_tells_which_promise_was_broken_and_keeps_the_journal(tmp_path):
    arguments = ("--mixed", "--seeds", "1", "--mode", "full", "--planted", "changed")
    kept = tmp_path / "kept"
    code, lines = run("killloop", *arguments, "--seed", "other", "--keep", str(kept))
    assert code == 1
    assert any(line.startswith("P4: message ") for line in lines)
    assert any(line.endswith("[seed other-full-0]") for line in lines)
    assert (kept / "other-full-0.journal").read_bytes()


@needs_strace
def test_powerloss_finds_nothing_where_nothing_is_lost():
    code, lines = run("powerloss", "--images", "40", "--jobs", "1")
    assert code == 0
    assert ", 0 bad, 0 unreadable, " in lines[-1]


@needs_strace
def test_powerloss_finds_the_losses_of_a_store_that_never_syncs():
    code, lines = run("powerloss", "--images", "60", "--mode", "off", "--jobs", "1")
    assert code == 1
    assert len(lines) > 2


@needs_strace
def test_nthfailure_counts_the_faults_of_each_call():
    code, lines = run("nthfailure", "put")
    assert code == 0
    assert len(lines) == 5
    assert lines[0].split()[:3] == ["pwrite64", "EIO", "put"]


def test_nthfailure_refuses_a_call_that_it_does_not_know():
    code, _ = run("nthfailure", "fly")
    assert code == 2
