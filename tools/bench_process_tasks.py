"""The tasks of other libraries: what their own worker processes import, and who enqueues them.

Knows: how each library is opened so that what it keeps is synced, that its task does nothing.
Does not know: clocks, when workers run (bench_process_peers.py).

A program, too: it reads a number from each line of its input, enqueues as many tasks, answers ok.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from bench_process_names import COUNTED, FOLDER, PEER, REDIS

BODY = bytes(range(256)) * 4
#: Two of them send JSON.
TEXT = BODY.hex()[: len(BODY)]
_BUSY_S = 60


class Counter:
    """How many tasks this process has run, in a file that the benchmark reads."""

    def __init__(self) -> None:
        self._pid = 0
        self._map: mmap.mmap | None = None
        self._count = 0

    def add(self) -> None:
        """Count one."""
        if self._pid != os.getpid():  # workers are forked
            self._open()
        self._count += 1
        assert self._map is not None  # noqa: S101  # it was opened
        struct.pack_into("=Q", self._map, 0, self._count)

    def _open(self) -> None:
        self._pid, self._count = os.getpid(), 0
        path = Path(os.environ[FOLDER]) / f"{self._pid}{COUNTED}"
        path.write_bytes(bytes(mmap.PAGESIZE))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), mmap.PAGESIZE)


counter = Counter()


def handle(_: object) -> None:
    """Do nothing with a message, but count it."""
    counter.add()


Enqueue = Callable[[], object]


def _huey(storage: str) -> tuple[Any, Enqueue]:
    library = import_module("huey")
    if storage == "sqlite":
        path = str(Path(os.environ[FOLDER]) / "huey.db")
        huey = library.SqliteHuey(
            "orders", filename=path, fsync=True, timeout=_BUSY_S, results=False
        )
    else:
        huey = library.RedisHuey("orders", url=_redis_url(), blocking=True, results=False)
    task = huey.task(name="handle")(handle)
    return huey, lambda: task(BODY)


def _dramatiq() -> tuple[Any, Enqueue]:
    library = import_module("dramatiq")
    broker = import_module("dramatiq.brokers.redis").RedisBroker(url=_redis_url())
    library.set_broker(broker)
    actor = library.actor(handle, actor_name="handle")
    return broker, lambda: actor.send(TEXT)


def _rq() -> tuple[Any, Enqueue]:
    redis = import_module("redis").Redis.from_url(_redis_url())
    queue = import_module("rq").Queue("orders", connection=redis)
    return queue, lambda: queue.enqueue(handle, BODY, result_ttl=0)


def _celery() -> tuple[Any, Enqueue]:
    app = import_module("celery").Celery("orders", broker=_redis_url("redis+socket"))
    app.conf.update(
        task_acks_late=True,
        task_ignore_result=True,
        worker_prefetch_multiplier=16,
        broker_connection_retry_on_startup=True,
    )
    task = app.task(handle, name="handle")
    return app, lambda: task.delay(TEXT)


def _redis_url(scheme: str = "unix") -> str:
    return f"{scheme}://{os.environ[REDIS]}"


_OPENERS: dict[str, Callable[[], tuple[Any, Enqueue]]] = {
    "huey-sqlite": lambda: _huey("sqlite"),
    "huey-redis": lambda: _huey("redis"),
    "dramatiq": _dramatiq,
    "rq": _rq,
    "celery": _celery,
}

if PEER in os.environ and __name__ != "__main__":
    #: What their workers look for in this module.
    app, enqueue = _OPENERS[os.environ[PEER]]()


def main() -> int:
    """Enqueue as many tasks as each line says."""
    # By its name: tasks are known to workers by the module that they are in.
    tasks = import_module(Path(__file__).stem)
    if os.environ[PEER] == "huey-sqlite":
        # This process only prepares what is measured; the workers have connections of their own.
        tasks.app.storage.sql("pragma synchronous=off")
    put: Enqueue = tasks.enqueue
    for line in sys.stdin:
        for _ in range(int(line)):
            put()
        print("ok", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
