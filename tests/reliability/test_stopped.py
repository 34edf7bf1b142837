"""A host that is stopped for longer than its leases, and goes on as if nothing had been (P6)."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.processes import line_of
from tests.reliability.killing import ROOT
from tests.reliability.stopped_host import HANDLERS, LEASE_S, PULLED

pytestmark = pytest.mark.reliability

ONCE = dict.fromkeys(HANDLERS, 1)


def stop_and_go(path: Path, *more: str) -> dict[str, Any]:
    """Stop a host for three leases, let it go on, and return what it saw."""
    command = [sys.executable, "-m", "tests.reliability.stopped_host", str(path), *more]
    environment = {**os.environ, "PYTHONPATH": ROOT}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd=ROOT
    ) as host:
        try:
            assert line_of(host) == b"ready\n"
            host.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, host.pid, os.WSTOPPED | os.WNOWAIT)
            threading.Event().wait(3 * LEASE_S)
            host.send_signal(signal.SIGCONT)
            out, _ = host.communicate(b"go\n", timeout=60)
            return json.loads(out)
        finally:
            host.kill()


def check(seen: dict[str, Any]) -> None:
    # Whoever lives has kept its delivery, although nobody could renew it during the stop.
    assert seen["started"] == ONCE
    assert seen["handler was told"] is None
    assert seen["block"] == "acked"
    # What nobody renewed has ended, once: each message came again once, no old token changed it.
    assert not seen["extended"]
    assert seen["stale"] == PULLED
    assert seen["same"]
    assert seen["attempts"] == [2] * PULLED
    assert seen["more"] == 0


def test_a_host_that_was_stopped_for_longer_than_its_leases_goes_on(tmp_path):
    check(stop_and_go(tmp_path / "q.db"))


def test_leases_that_nobody_renews_would_be_noticed(tmp_path):
    seen = stop_and_go(tmp_path / "q.db", "unkept")
    with pytest.raises(AssertionError):
        check(seen)
    assert seen["started"] != ONCE
