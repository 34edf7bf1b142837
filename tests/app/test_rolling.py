"""Several processes are restarted one after another with new code, while others put."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from embedq import Broker
from tests.processes import kill, lines_until
from tests.workers.pooled import said, until

pytestmark = pytest.mark.reliability

ROOT = Path(__file__).resolve().parents[2]
PROCESSES = 3
#: Handlers of each that run at a time.
SLOTS = 2

#: `version` differs, so that the handler is another function in each.
APPLICATION = """
import os, sys, time
from embedq import Broker
{planted}
broker = Broker(sys.argv[1], grace="20s")

@broker.queue("orders", int).consumer(concurrency={slots})
def handle_{version}(number: int) -> None:
    time.sleep(0.01)
    if number in skipped:
        return
    os.write(out, f"{version} {{number}}\\n".encode())

out = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
broker.on("consumer_registered", lambda _: print("consumes", flush=True))
broker.run()
"""
#: One message is taken for done although nothing was done.
SKIPS = "skipped = {7}"
NOTHING = "skipped = set()"


class Fleet:
    """Applications on one file."""

    def __init__(self, folder: Path, planted: str) -> None:
        self.folder = folder
        self.path = folder / "app.db"
        self.planted = planted
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, version: str) -> subprocess.Popen[str]:
        """Start an application with a version of the code; returns once it consumes."""
        program = self.folder / f"application_{version}.py"
        program.write_text(APPLICATION.format(version=version, slots=SLOTS, planted=self.planted))
        process = subprocess.Popen(
            [sys.executable, str(program), str(self.path), str(self.folder / "out")],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self.processes.append(process)
        lines_until(process, "consumes")
        return process

    def roll(self, old: list[subprocess.Popen[str]]) -> None:
        """Replace each application: the old one drains, then the new one starts."""
        for process in old:
            process.terminate()
            assert process.wait(60) == 0
            self.start("new")

    def handled(self) -> Counter[int]:
        """Return how often each number was handled."""
        return Counter(int(number) for _, number in said(self.folder))


def restart_all(folder: Path, planted: str = NOTHING) -> tuple[list[int], Counter[int], list[str]]:
    """Restart applications one after another; return what was put, handled, and by whom last."""
    fleet = Fleet(folder, planted)
    confirmed: list[int] = []
    over = threading.Event()

    def produce() -> None:
        with Broker(fleet.path, role="client") as broker:
            orders = broker.queue("orders", int)
            while not over.wait(0.01):
                number = len(confirmed)
                orders.put_many([number, number + 1, number + 2])
                confirmed.extend([number, number + 1, number + 2])

    producer = threading.Thread(target=produce)
    try:
        old = [fleet.start("old") for _ in range(PROCESSES)]
        producer.start()
        until(lambda: len(fleet.handled()) > 20)
        fleet.roll(old)
        at_the_end = len(said(folder))
        until(lambda: len(said(folder)) > at_the_end + 10)
        over.set()
        producer.join(60)
        with Broker(fleet.path, role="client") as broker:
            orders = broker.queue("orders")
            until(lambda: not orders.stats().length, "everything is done")
        for process in fleet.processes[PROCESSES:]:
            process.terminate()
            assert process.wait(60) == 0
    finally:
        over.set()
        for process in fleet.processes:
            kill(process)
            process.communicate()
    with Broker(fleet.path, role="host") as broker:
        assert broker.queue("orders").stats().length == 0
    return confirmed, fleet.handled(), [words[0] for words in said(folder)[at_the_end:]]


def test_processes_that_get_new_code_one_by_one_lose_and_repeat_nothing(tmp_path: Path) -> None:
    confirmed, handled, at_the_end = restart_all(tmp_path)
    assert handled == dict.fromkeys(confirmed, 1)
    assert set(at_the_end) == {"new"}


def test_a_message_that_nobody_handled_would_be_noticed(tmp_path: Path) -> None:
    confirmed, handled, _ = restart_all(tmp_path, SKIPS)
    assert set(confirmed) - handled.keys() == {7}
