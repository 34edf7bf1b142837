"""Processes that are stopped and go on: a client past its lease, and a host under its clients."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from embedq import Broker
from tests.processes import kill, line_of

pytestmark = [
    pytest.mark.reliability,
    pytest.mark.skipif(sys.platform != "linux", reason="only on Linux is a heartbeat this quick"),
]

ROOT = Path(__file__).resolve().parents[2]
#: Seconds of a stop: several leases, and more than a heartbeat is waited for.
STOPPED_S = 2.5

HEAD = """
import sys
from embedq import Broker, StaleLease

def say(line):
    print(line, flush=True)
"""
HOST = (
    HEAD
    + """
broker = Broker(sys.argv[1], role="host")
broker.queue("orders", str, lease="300ms")
broker.backing.wait_until_served()
say("serving")
sys.stdin.read()
"""
)
CLIENT = (
    HEAD
    + """
with Broker(sys.argv[1], role="client") as broker:
    try:
        with broker.queue("orders", str).get(30) as delivery:
            say(f"start {delivery.body} {delivery.attempt}")
            sys.stdin.readline()
    except StaleLease:
        say("stale")
    else:
        say("acked")
"""
)


@contextmanager
def program(source: str, path: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a program until the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", source, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    try:
        yield process
    finally:
        kill(process)
        process.communicate()


def go_on(process: subprocess.Popen[str]) -> str:
    """Tell a program to go on; return what it says then."""
    assert process.stdin is not None
    process.stdin.write("go on\n")
    process.stdin.flush()
    return line_of(process)


def stop(process: subprocess.Popen[str]) -> None:
    """Stop a process; returns once it is stopped."""
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)


def test_a_client_that_was_stopped_for_too_long_has_lost_its_message_and_is_told(
    tmp_path: Path,
) -> None:
    path = tmp_path / "q.db"
    with Broker(path, role="host") as broker:
        orders = broker.queue("orders", str, lease="300ms")
        orders.put("x")
        with program(CLIENT, path) as client:
            assert line_of(client) == "start x 1\n"
            stop(client)
            with orders.get(timeout=60) as again:
                assert (again.body, again.attempt) == ("x", 2)
            client.send_signal(signal.SIGCONT)
            assert go_on(client) == "stale\n"
        assert orders.stats().length == 0
        assert not list(orders.dead.list())


def test_a_client_that_was_not_stopped_keeps_its_message(tmp_path: Path) -> None:
    path = tmp_path / "q.db"
    with Broker(path, role="host") as broker:
        orders = broker.queue("orders", str, lease="300ms")
        orders.put("x")
        with program(CLIENT, path) as client:
            assert line_of(client) == "start x 1\n"
            assert orders.get_many(1, timeout=STOPPED_S) == []
            assert go_on(client) == "acked\n"


@pytest.mark.parametrize("fate", ["stopped", "killed"])
def test_clients_of_a_stopped_host_wait_for_it_and_of_a_killed_one_do_not(
    tmp_path: Path, fate: str
) -> None:
    path = tmp_path / "q.db"
    with program(HOST, path) as host:
        assert line_of(host) == "serving\n"
        with Broker(path) as broker:
            orders = broker.queue("orders", str)
            orders.put("held")
            with orders.get(timeout=30) as held:
                orders.stats()  # when that is answered the host knows, too, that the lease is kept
                putter = threading.Thread(target=orders.put, args=("during",))
                if fate == "stopped":
                    stop(host)
                else:
                    host.kill()
                putter.start()
                putter.join(STOPPED_S)
                assert not (fate == "stopped" and not putter.is_alive())
                host.send_signal(signal.SIGCONT)
                putter.join(60)
                assert held.body == "held"
            wanted = host.pid if fate == "stopped" else os.getpid()
            assert broker.desk.host_pid == wanted  # type: ignore[attr-defined]
            assert [message.body for message in orders.peek()] == [b"during"]
