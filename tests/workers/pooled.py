"""An application with worker processes for tests: a module in a folder, imported here and there.

Knows: how its handlers tell what they did, how to wait for that, who has to be gone in the end.
Does not know: what is tested.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from textwrap import indent
from types import ModuleType
from typing import Any, Self

from embedq import Broker, Queue
from embedq.catalogue import CATALOGUE
from embedq.events import Notice
from embedq.workers.pool import ProcessCrew

#: Seconds after which a test has failed that waits for something.
PATIENCE = 90.0

HEAD = """
import asyncio, ctypes, os, re, signal, socket, sys, threading, time
from pathlib import Path
from embedq import Batch, Broker, Delivery, Reject, Retry, RetryPolicy
from embedq.workers.here import is_worker

FOLDER = Path(__file__).parent
broker = Broker(FOLDER / "app.db", grace="20s")
AT_ONCE = RetryPolicy(base=0, cap=0)

def note(*words):
    fd = os.open(FOLDER / "out", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(fd, (" ".join(map(str, words)) + "\\n").encode())
    os.close(fd)

"""


def until(condition: Callable[[], object], what: str = "", patience: float = PATIENCE) -> None:
    """Wait for a condition; the test fails if it does not come true."""
    end = time.monotonic() + patience
    nap = threading.Event()
    while not condition():
        assert time.monotonic() < end, f"it never happened: {what or condition}"
        nap.wait(0.01)


def is_running(pid: int) -> bool:
    """Whether a process lives; one that has ended and was not waited for does not."""
    try:
        os.kill(pid, 0)
        stat = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
    except ProcessLookupError:
        return False
    except FileNotFoundError:
        return not Path("/proc/self").exists()
    return stat.rpartition(")")[2].split()[0] != "Z"


def said(folder: Path) -> list[list[str]]:
    """Return what handlers noted: the words of each line."""
    out = folder / "out"
    return [line.split() for line in out.read_text().splitlines()] if out.exists() else []


def in_workers_only(fault: str) -> str:
    """Return statements that plant a fault in the workers: this process imports the module, too.

    What is replaced here stays replaced, for every test that runs in this process later on.
    """
    return "if is_worker():\n" + indent(fault, "    ") if fault else ""


class App:
    """A broker that runs in this process, on a module of its own; `planted`: in its workers."""

    def __init__(self, folder: Path, source: str, planted: str = "") -> None:
        self.folder = folder
        name = f"pooled_{uuid.uuid4().hex}"
        (folder / f"{name}.py").write_text(HEAD + in_workers_only(planted) + source)
        sys.path.insert(0, str(folder))
        try:
            self.module: ModuleType = importlib.import_module(name)
        except BaseException:
            sys.path.remove(str(folder))
            raise
        self.broker: Broker = self.module.broker
        self.heard: list[Notice] = []
        self.broker.on("*", self.heard.append)
        self.seen: set[int] = set()

    def __enter__(self) -> Self:
        self.broker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.seen.update(self.pids)
        try:
            self.broker.stop()
        finally:
            sys.path.remove(str(self.folder))
            left = [pid for pid in self.seen if is_running(pid)]
            for pid in left:
                os.kill(pid, signal.SIGKILL)
        assert not left, "a worker outlived its application"
        for (
            notice
        ) in self.heard:  # what tests of one process cannot make happen (test_every_event)
            assert set(notice.fields) == set(CATALOGUE[notice.name].fields), notice
            assert None not in notice.fields.values(), notice

    @property
    def crews(self) -> list[ProcessCrew]:
        """The pools."""
        runner = self.broker._runner
        assert runner is not None
        return [crew for crew in runner.crews if isinstance(crew, ProcessCrew)]

    @property
    def pids(self) -> list[int]:
        """The worker processes that live."""
        if self.broker._runner is None:
            return []
        found = [pid for crew in self.crews for pid in crew.pids]
        self.seen.update(found)
        return found

    def put(self, queue: str, *bodies: object) -> None:
        """Put messages."""
        self.broker.queue(queue).put_many(list(bodies))

    def said(self) -> list[list[str]]:
        """Return what handlers noted."""
        return said(self.folder)

    def told(self, event: str) -> list[dict[str, Any]]:
        """Return the fields of all events of a name."""
        return [dict(notice.fields) for notice in list(self.heard) if notice.name == event]

    def wait(self, *queues: str) -> None:
        """Wait until queues are empty."""
        for queue in map(self.broker.queue, queues):
            until(partial(self._is_empty, queue), f"{queue} is empty")

    @staticmethod
    def _is_empty(queue: Queue[Any]) -> bool:
        return not queue.stats().length

    def letters(self, queue: str) -> Sequence[Any]:
        """Return the dead letters of a queue."""
        return list(self.broker.queue(queue).dead.list())
