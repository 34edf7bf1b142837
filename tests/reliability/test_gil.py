"""A handler in C that keeps the GIL for several leases has its message once: libzmq answers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from embedq import Broker
from tests.processes import kill, line_of, lines_until

pytestmark = pytest.mark.reliability

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def program(path: Path, *what: str) -> Iterator[subprocess.Popen[str]]:
    """Run one of the two processes until the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.reliability.gil_client", str(path), *what],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    try:
        yield process
        assert process.stdin is not None
        process.stdin.write("that is all\n")
        process.stdin.flush()
        assert process.wait(60) == 0
    finally:
        kill(process)
        process.communicate()


def starts_of(path: Path, *planted: str) -> list[str]:
    """Return what the client's handler says when it gets one that keeps the GIL, and another."""
    with program(path, "host", *planted) as host:
        assert line_of(host) == "serving\n"
        with Broker(path, role="client") as broker:
            broker.queue("orders", str).put("gil")
            with program(path, "client") as client:
                said = lines_until(client, "start gil 1")
                broker.queue("orders", str).put("last")
                said += lines_until(client, "start last")
    return said


def test_a_client_that_keeps_the_gil_for_longer_than_its_lease_has_its_message_once(
    tmp_path: Path,
) -> None:
    assert starts_of(tmp_path / "q.db") == ["start gil 1", "start last 1"]


def test_leases_that_the_host_does_not_renew_would_be_noticed(tmp_path: Path) -> None:
    assert "start gil 2" in starts_of(tmp_path / "q.db", "unkept")
