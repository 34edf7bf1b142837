"""Workers that are killed all the time while other processes put: what is there in the end.

Knows: who is killed and when, what a worker's own notes prove, faults that must be seen.
Does not know: how often, for how long (test_chaos.py and tools/killloop.py say that).

A number may be handled twice only if the worker that had it was killed right behind the handler:
then the end of that number is the last thing the worker ever noted.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.workers.pooled import App, until

ROOT = Path(__file__).resolve().parents[2]
PRODUCERS: Final = 4

SOURCE: Final = """
numbers = broker.queue("numbers", max_crashes=0, max_attempts=None)

@numbers.consumer(pool="process", concurrency={workers}, retry=RetryPolicy(None, base=0, cap=0))
def work(number: int) -> None:
    note("start", number, os.getpid())
    time.sleep(0.001)
    note("end", number, os.getpid())
"""
#: Faults by name: what the workers do before anything else in the application's module.
PLANTED: Final = {
    "": "",
    # What was done and not yet told is done again.
    "forgetful": "from embedq.ipc.marks import Marks\nMarks.end = lambda *_: None\n",
    # What only waited is taken for done.
    "hasty": """
from embedq.ipc.marks import Marks, Progress
def hasty(marks, mark, counter, start=Marks.start, **said):
    start(marks, mark, counter | 1 << 63)
Marks.start = hasty
""",
}


@dataclass
class Chaos:
    """What came of it."""

    kills: int = 0
    confirmed: int = 0
    twice: int = 0
    problems: list[str] = field(default_factory=list)


def chaos(folder: Path, count: int, kills: int, seed: str = "", planted: str = "") -> Chaos:
    """Let `count` numbers be put and handled while workers are killed, `kills` of them at most."""
    found = Chaos()
    source = SOURCE.format(workers=3)
    with App(folder, source, PLANTED[planted]) as app, ExitStack() as stack:
        app.broker.backing.wait_until_served()
        producers = list(_producers(app, count, stack))
        over = threading.Event()
        killer = threading.Thread(
            target=_kill, args=(app, random.Random(seed), kills, over, found)
        )
        killer.start()
        stack.callback(killer.join)
        stack.callback(over.set)
        for producer in producers:
            if producer.wait(300):
                found.problems.append(f"a producer ended with {producer.returncode}")
        until(lambda: not app.broker.queue("numbers").stats().length, "all is done", 300)
        over.set()
        killer.join()
        _judge(app, found)
    _check_file(folder, found)
    return found


def _producers(app: App, count: int, stack: ExitStack) -> Iterator[subprocess.Popen[bytes]]:
    each = count // PRODUCERS
    for number in range(PRODUCERS):
        arguments = [str(app.folder / "app.db"), str(app.folder / f"put{number}")]
        arguments += [str(number * each), str(each)]
        producer = subprocess.Popen(
            [sys.executable, "-m", "tests.reliability.chaos_producer", *arguments], cwd=ROOT
        )
        stack.callback(producer.wait)
        stack.callback(producer.kill)
        yield producer


def _kill(app: App, rng: random.Random, most: int, over: threading.Event, found: Chaos) -> None:
    """Kill a worker that has done something every 200 ms. Those that only start would never do."""
    working: set[int] = set()
    read = 0
    while found.kills < most and not over.wait(0.2):
        said = app.said()
        working |= {int(words[2]) for words in said[read:]}
        read = len(said)
        victims = sorted(working & set(app.pids))
        if victims:
            with suppress(ProcessLookupError):
                os.kill(rng.choice(victims), signal.SIGKILL)
                found.kills += 1


def _judge(app: App, found: Chaos) -> None:
    confirmed = {
        int(line)
        for log in app.folder.glob("put*")
        for line in log.read_text("ascii").splitlines()
    }
    found.confirmed = len(confirmed)
    ends: dict[int, list[tuple[int, int]]] = {}  # number: (which note of its worker, worker)
    notes: dict[int, int] = {}
    for what, text, process in app.said():
        worker = int(process)
        notes[worker] = notes.get(worker, 0) + 1
        if what == "end":
            ends.setdefault(int(text), []).append((notes[worker], worker))
    lost = confirmed - set(ends)
    found.problems += [f"{number} was confirmed and never handled" for number in sorted(lost)]
    for number, each in ends.items():
        if len(each) > 1:
            found.twice += 1
        found.problems += [
            f"{number} was handled again although worker {worker} had gone on"
            for at, worker in each[:-1]
            if notes[worker] > at
        ]
    if found.twice > found.kills:
        found.problems.append(f"{found.twice} handled twice with {found.kills} kills")
    letters = app.letters("numbers")
    found.problems += [f"{letter.body!r} is dead: {letter.detail}" for letter in letters]


def _check_file(folder: Path, found: Chaos) -> None:
    with sqlite3.connect(folder / "app.db") as connection:
        (fine,) = connection.execute("PRAGMA integrity_check").fetchone()
        (messages,) = connection.execute("SELECT count(*) FROM msg").fetchone()
    connection.close()
    if fine != "ok":
        found.problems.append(f"the file is damaged: {fine}")
    if messages:
        found.problems.append(f"{messages} messages are left")
