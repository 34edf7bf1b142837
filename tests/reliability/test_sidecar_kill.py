"""The sidecar is killed under load, again and again: nothing is lost, doubled, or done twice.

The planted fault is in the sidecar's process alone: the last commits are gone at its next start.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from embedq import Broker, Empty, Message, Queue, StaleLease
from embedq.errors import HostGone, NoHost
from tests.ipc.peer import eventually

pytestmark = pytest.mark.reliability

THREADS = 6
KILLS = 8 if os.environ.get("EMBEDQ_TEST_LONG") else 2

#: Runs in every interpreter that finds it, and does something in a sidecar only.
FAULT = """
import os, sys

log = sys.orig_argv[-1] + "-wal"
if "embedq.app.sidecar" in sys.orig_argv and os.path.exists(log):
    os.truncate(log, os.path.getsize(log) * 4 // 5)
"""


class Load:
    """Threads that put numbers, and one that takes and acks; all of them note what is confirmed.

    `put`: numbers whose put has returned. `acked`: numbers whose ack has. `again`: numbers that
    were delivered after that.
    """

    def __init__(self, broker: Broker) -> None:
        self.orders = broker.queue("orders", int)
        self.work = broker.queue("work", int)
        self.work.put_many(range(10_000))
        self.put: list[list[int]] = [[] for _ in range(THREADS)]
        self.acked: set[int] = set()
        self.again: list[int] = []
        self._stop = threading.Event()
        self._threads = [
            *(threading.Thread(target=self._puts, args=(n,)) for n in range(THREADS)),
            threading.Thread(target=self._takes),
        ]
        for thread in self._threads:
            thread.start()

    def _puts(self, number: int) -> None:
        for body in itertools.count(number * 1_000_000):
            if self._stop.is_set():
                return
            try:
                self.orders.put(body)
            except NoHost:
                continue  # the next host took longer to start than calls wait: unknown (P10)
            self.put[number].append(body)

    def _takes(self) -> None:
        while not self._stop.is_set():
            try:
                with self.work.get(5) as delivery:
                    if delivery.body in self.acked:
                        self.again.append(delivery.body)
                self.acked.add(delivery.body)
            except (Empty, NoHost, HostGone, StaleLease):  # unknown what it did
                continue

    def goes_on(self) -> None:
        """Wait until everybody has got something done since now."""
        least, acked = min(map(len, self.put)) + 10, len(self.acked) + 10
        eventually(lambda: min(map(len, self.put)) >= least and len(self.acked) >= acked, 60)

    def end(self) -> None:
        """Let all threads come to their end."""
        self._stop.set()
        for thread in self._threads:
            thread.join(60)

    def faults(self) -> list[str]:
        """Return what has been lost, doubled, or delivered again."""
        stored = Counter(int(message.body) for message in everything(self.orders))
        left = {int(message.body) for message in everything(self.work)}
        confirmed = {body for each in self.put for body in each}
        found = {
            "lost": confirmed - stored.keys(),
            "doubled": {body for body, times in stored.items() if times > 1},
            "delivered again": set(self.again),
            "acked and still there": self.acked & left,
        }
        return [f"{len(bodies)} {what}" for what, bodies in found.items() if bodies]


def everything(queue: Queue[Any]) -> Iterator[Message]:
    after = 0
    while messages := queue.peek(1000, after):
        yield from messages
        after = messages[-1].seq


def faults_of_kills(path: Path, kills: int) -> list[str]:
    """Kill the sidecar under load so many times; return what went wrong."""
    with Broker(path, sidecar=True) as broker:
        load = Load(broker)
        try:
            for _ in range(kills):
                load.goes_on()
                host = broker.desk.host_pid  # type: ignore[attr-defined]
                assert host not in {None, os.getpid()}
                os.kill(host, signal.SIGKILL)
            load.goes_on()
        finally:
            load.end()
        return load.faults()


def test_a_sidecar_killed_under_load_loses_doubles_and_repeats_nothing(tmp_path: Path) -> None:
    assert faults_of_kills(tmp_path / "app.db", KILLS) == []


def test_a_sidecar_that_loses_its_last_commits_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = tmp_path / "planted"
    planted.mkdir()
    (planted / "sitecustomize.py").write_text(FAULT)
    monkeypatch.syspath_prepend(planted)
    # A kill that meets it between two commits costs nothing.
    assert any(
        "lost" in fault
        for attempt in range(5)
        for fault in faults_of_kills(tmp_path / f"{attempt}.db", 1)
    )
