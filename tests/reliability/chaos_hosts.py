"""Workers and hosts that are killed all the time under four producers, and come back.

Knows: several applications on one file, who is killed and when, that each is started again.
Does not know: what the notes must prove (chaos_judge.py), how often and for how long.

By the clock whoever lives may be killed, also those that only start: a killer that waits for one
that has done something strikes each right behind its first message. By numbers only those die that
have. Some hosts die together with a worker, so that nobody but the next host can read what that
one noted.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from embedq import Broker
from embedq.errors import EmbedqError
from embedq.ipc.place import find_host
from tests.reliability.chaos_judge import DONE, Found, Note, judge, read_notes, read_numbers
from tests.workers.pooled import is_running, until

ROOT = Path(__file__).resolve().parents[2]
PRODUCERS: Final = 4
#: Numbers of one producer: each has a range of its own.
RANGE: Final = 1_000_000
#: Seconds after which it is stuck, if nothing more is done. Kills are over long before.
PATIENCE_S: Final = 90.0
_LOOK_S: Final = 0.01


@dataclass(frozen=True)
class Pace:
    """When somebody is killed: seconds, or numbers done, between two deaths of workers or hosts.

    Numbers make a short run the same on a slow machine and on a quick one; 0: only time counts.
    Of `together` hosts one dies at the same instant as a worker. After `most_s` seconds nobody
    dies any more, and all that was put comes to its end.
    """

    worker_s: float = 0.2
    host_s: float = 3.0
    worker_numbers: int = 0
    host_numbers: int = 0
    together: int = 3
    most_s: float = float("inf")


class Application(NamedTuple):
    """One that runs, and where its output goes."""

    process: subprocess.Popen[bytes]
    log: Path


class Chaos:
    """Applications and producers on one file."""

    def __init__(self, folder: Path, seed: str, planted: str, pace: Pace, workers: int) -> None:
        self.folder = folder
        self.path = folder / "app.db"
        self.environment = {
            **os.environ,
            "CHAOS_FOLDER": str(folder),
            "CHAOS_WORKERS": str(workers),
            "CHAOS_PLANTED": planted,
            "PYTHONPATH": str(ROOT),
        }
        self.pace = pace
        self.rng = random.Random(seed)
        self.stack = ExitStack()
        self.found = Found()
        self.applications: list[Application] = []
        self.producers: list[subprocess.Popen[bytes]] = []
        self.groups: set[int] = set()
        self.started = 0
        self.notes: list[Note] = []
        self.workers: set[int] = set()
        self.done: set[int] = set()
        self._confirmed: set[int] | None = None
        self._read_to = 0
        #: When the last worker and the last host died, and how much was done by then.
        self._worker_died = self._host_died = self._now()
        self._over_at = time.monotonic() + pace.most_s

    # --------------------------------------------------------------------- who is there

    def start(self) -> Application:
        """Start an application."""
        log = self.folder / f"log{self.started}"
        self.started += 1
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.reliability.chaos_application"],
                cwd=ROOT,
                env=self.environment,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self.stack.callback(self._end, process)
        self.groups.add(process.pid)
        application = Application(process, log)
        self.applications.append(application)
        return application

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def produce(self, count: int) -> None:
        """Let producers put `count` numbers together, once there is a host."""
        until(lambda: self.host is not None, "there is a host")
        for number in range(PRODUCERS):
            log = self.folder / f"put{number}"
            arguments = [str(self.path), str(log), str(number * RANGE), str(count // PRODUCERS)]
            producer = subprocess.Popen(
                [sys.executable, "-m", "tests.reliability.chaos_producer", *arguments], cwd=ROOT
            )
            self.stack.callback(producer.wait)
            self.stack.callback(producer.kill)
            self.producers.append(producer)

    def look(self) -> None:
        """Read what was noted since the last look."""
        fresh, self._read_to = read_notes(self.folder / "out", self._read_to)
        self.notes += fresh
        self.workers |= {note.worker for note in fresh}
        self.done |= {note.number for note in fresh if note.what in DONE}

    @property
    def host(self) -> Application | None:
        """The application that is the host now."""
        found = find_host(self.path)
        for application in self.applications:
            if found is not None and application.process.pid == found.pid:
                return application
        return None

    # ------------------------------------------------------------------------ who dies

    def kill_a_worker(self) -> None:
        """Kill a worker, also one that has lost its application."""
        known = self.workers if self.pace.worker_numbers else _spawned()
        victims = []
        for pid in sorted(known):
            with suppress(ProcessLookupError):
                if os.getpgid(pid) in self.groups and is_running(pid):
                    victims.append(pid)
        self._worker_died = self._now()
        if victims:
            with suppress(ProcessLookupError):
                os.kill(self.rng.choice(victims), signal.SIGKILL)
                self.found.kills += 1

    def kill_the_host(self) -> None:
        """Kill the host, perhaps with a worker, and start an application in its place."""
        host = self.host
        if host is None:
            return
        if self.rng.randrange(self.pace.together) == 0:
            self.kill_a_worker()
        host.process.kill()
        host.process.wait()
        self.found.host_kills += 1
        self.applications.remove(host)
        self._host_died = self._now()
        self.start()

    def _now(self) -> tuple[float, int]:
        return time.monotonic(), len(self.done)

    def _kill_who_is_due(self) -> None:
        pace = self.pace
        if self._is_due(self._worker_died, pace.worker_s, pace.worker_numbers):
            self.kill_a_worker()
        if self._is_due(self._host_died, pace.host_s, pace.host_numbers):
            self.kill_the_host()

    def _is_due(self, last: tuple[float, int], seconds: float, numbers: int) -> bool:
        now, done = self._now()
        died_at, done_then = last
        if numbers:
            return done - done_then >= numbers
        return now - died_at >= seconds

    # --------------------------------------------------------------------- how it ends

    def run(self, count: int) -> None:
        """Kill until everything that was confirmed is done; then all end in order."""
        nap = threading.Event()
        progress = time.monotonic()
        while not self._all_is_done():
            before = len(self.done)
            self.look()
            if len(self.done) > before:
                progress = time.monotonic()
            elif time.monotonic() - progress > PATIENCE_S:
                self.found.problems.append(f"stuck: {len(self.done)} of {count} are done")
                return
            if len(self.done) < count and time.monotonic() < self._over_at:
                self.found.done_under_fire = len(self.done)
                self._kill_who_is_due()
            nap.wait(_LOOK_S)
        self._drain()

    def _all_is_done(self) -> bool:
        if any(producer.poll() is None for producer in self.producers):
            return False
        if self._confirmed is None:
            self._confirmed = read_numbers(self.folder, "put*")
            codes = [producer.returncode for producer in self.producers]
            self.found.problems += [f"a producer ended with {code}" for code in codes if code]
        return self._confirmed <= self.done

    def _drain(self) -> None:
        """What was delivered twice, or put without an answer, comes to its end, too."""
        nap = threading.Event()
        end = time.monotonic() + PATIENCE_S
        left: object = "?"
        while time.monotonic() < end:
            with suppress(EmbedqError), Broker(self.path, role="client") as broker:
                left = broker.queue("numbers").stats().length
                if not left:
                    break
            nap.wait(0.1)
        else:
            self.found.problems.append(f"stuck: {left} messages stay in the queue")
        for application in self.applications:
            application.process.terminate()
        for application in self.applications:
            try:
                code = application.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.found.problems.append("an application did not end")
            else:
                # One that has only begun to start does not know the signal yet.
                if code not in {0, -signal.SIGTERM}:
                    self.found.problems.append(f"an application ended with {code}")
        self.look()


def _spawned() -> set[int]:
    """Return the workers of everybody on this machine, from the first instant of their lives."""
    found = set()
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if b"multiprocessing.spawn" in line.read_bytes():
                found.add(int(line.parent.name))
    return found


def chaos_of_hosts(
    folder: Path,
    count: int,
    seed: str,
    planted: str = "",
    *,
    applications: int = 3,
    workers: int = 2,
    pace: Pace | None = None,
) -> Found:
    """Let `count` numbers be put and handled while workers and hosts are killed.

    `applications`: how many there are at a time, with `workers` worker processes each.
    """
    chaos = Chaos(folder, seed, planted, pace or Pace(), workers)
    with chaos.stack:
        for _ in range(applications):
            chaos.start()
        chaos.produce(count)
        chaos.run(count)
    judge(folder, chaos.notes, chaos.found)
    return chaos.found
