"""A child that a host has forked outlives it: the place of the host is free all the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from embedq import Broker
from embedq.errors import NoHost
from tests.processes import kill, line_of
from tests.workers.pooled import is_running

pytestmark = [
    pytest.mark.reliability,
    pytest.mark.skipif(sys.platform != "linux", reason="only on Linux is there a /proc"),
]

ROOT = Path(__file__).resolve().parents[2]

HOST = """
import fcntl, multiprocessing, os, sys, threading, warnings
from concurrent.futures import ProcessPoolExecutor
from embedq import Broker

warnings.simplefilter("ignore")  # newer Pythons warn of every fork beside threads

def keep_the_lock():
    fd = os.open(sys.argv[1] + ".lock", os.O_RDWR)
    fcntl.lockf(fd, fcntl.LOCK_EX)  # waits until the host is dead

def begin():
    if "leaks" in sys.argv:
        threading.Thread(target=keep_the_lock, daemon=True).start()

broker = Broker(sys.argv[1], role="host")
broker.queue("orders", int).put(0)
broker.backing.wait_until_served()
pool = ProcessPoolExecutor(1, multiprocessing.get_context("fork"), begin)
print(pool.submit(os.getpid).result(), flush=True)
sys.stdin.read()
"""


@contextmanager
def host_with_a_child(path: Path, *more: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Start a host that has a pool of forked children; the child is killed in the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOST, str(path), *more],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    child = 0
    try:
        child = int(line_of(process))
        yield process, child
    finally:
        kill(process)
        if child:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        process.communicate()


def test_a_forked_child_that_outlives_the_host_does_not_keep_its_place(tmp_path: Path) -> None:
    path = tmp_path / "q.db"
    with host_with_a_child(path) as (host, child), Broker(path) as broker:
        orders = broker.queue("orders", int)
        orders.put(1)
        host.kill()
        host.wait()
        orders.put(2)
        assert is_running(child)
        assert broker.desk.host_pid == os.getpid()  # type: ignore[attr-defined]
        assert [delivery.body for delivery in orders.get_many(10, 5)] == [0, 1, 2]


def test_a_lock_that_goes_on_in_a_child_would_be_noticed(tmp_path: Path) -> None:
    path = tmp_path / "q.db"
    with host_with_a_child(path, "leaks") as (host, child), Broker(path) as broker:
        orders = broker.queue("orders", int)
        orders.put(1)
        host.kill()
        host.wait()
        with pytest.raises(NoHost):
            orders.put(2)
        assert is_running(child)
