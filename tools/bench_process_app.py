"""An application with worker processes, as a process of its own: module of its workers, too.

Knows: its consumers, what it measures inside itself: drains, latencies, doing nothing.
Does not know: rounds, figures, other libraries. Started by bench_process_sides.py.

Each line of its input is a word and numbers, each answer a line of JSON.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import sys
from collections.abc import Callable
from multiprocessing import active_children
from pathlib import Path
from time import perf_counter, process_time, sleep, thread_time
from typing import TYPE_CHECKING, cast

ROOT = Path(__file__).resolve().parent.parent
# Runs from a checkout that is not installed, too.
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from bench_broker_cells import wait_until  # noqa: E402
from bench_process_cpu import cpu_of_all  # noqa: E402
from bench_process_names import MODE, PATH, PLANTED, WORKERS  # noqa: E402
from bench_sides import BODY, LOT  # noqa: E402
from embedq import Broker  # noqa: E402

if TYPE_CHECKING:
    from embedq.broker.desk import Desk
    from embedq.broker.state import QueueState
    from embedq.storage.sqlite import SqliteStore

#: Worker processes of each of the five queues of an application that does nothing.
IDLE = (2, 2, 2, 1, 1)
_LOOK_S = 0.002
_TICK_S = 0.0005
#: What an idle broker rests between two puts.
_REST_S = 0.002
#: What follows a start (imports, a checkpoint, free pages) is over by then.
_SETTLE_S = 6.0

broker = Broker(os.environ[PATH])
orders = broker.queue("orders")
_mode = os.environ.get(MODE, "")
_planted_s = float(os.environ.get(PLANTED, "0"))


class Cell:
    """A number that this process and its workers share."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(mmap.PAGESIZE))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), mmap.PAGESIZE)

    def write(self, value: float) -> None:
        """Write it."""
        struct.pack_into("=d", self._map, 0, value)

    def read(self) -> float:
        """Read it."""
        return float(struct.unpack_from("=d", self._map, 0)[0])


_cell = Cell(Path(os.environ[PATH] + ".cell"))


def handle(_: bytes) -> None:
    """Do nothing with a message."""


def handle_slowly(_: bytes) -> None:
    """Compute in vain: the slowdown that a test of the benchmark plants."""
    until = thread_time() + _planted_s
    while thread_time() < until:
        pass


def note_start(_: bytes) -> None:
    """Tell when the handler has started."""
    _cell.write(perf_counter())


if _mode == "drain":
    handler = handle_slowly if _planted_s else handle
    orders.consumer(pool="process", concurrency=WORKERS)(handler)
elif _mode == "latency":
    orders.consumer(pool="process", concurrency=1)(note_start)
elif _mode == "idle":
    queues = [orders, *(broker.queue(f"queue-{number}") for number in range(1, len(IDLE)))]
    for queue, workers in zip(queues, IDLE, strict=True):
        queue.consumer(pool="process", concurrency=workers)(handle)


class Application:
    """The application while its broker runs."""

    def __init__(self) -> None:
        # This process is the host: what it gets is what it holds.
        desk, state = broker.state_of("orders")
        self._desk, self._state = cast("Desk", desk), cast("QueueState", state)
        self._group = self._desk.group(self._state)
        self._store = cast("SqliteStore", self._desk.store)

    def ready(self, workers: int) -> object:
        """Wait until so many workers wait for messages."""
        wait_until(lambda: len(self._group.waiters) >= workers, "the workers wait")
        return len(active_children())

    def fill(self, messages: int) -> object:
        """Put messages that wait until `drain`."""
        orders.pause()
        for _ in range(messages // LOT):
            self._desk.put_many(self._state, [BODY] * LOT)
        return self.checkpoint()

    def checkpoint(self) -> object:
        """Empty the log, and say how long it took."""
        begun = perf_counter()
        with self._desk.writer.lock:
            self._store.checkpoint()
        return perf_counter() - begun

    def drain(self, seconds: float) -> object:
        """Let the workers work for a time, until all that they have is done and committed."""
        group, desk = self._group, self._desk
        left = self._state.stored
        acked, commits, cpu = group.acked, desk.writer.groups, self._cpu()
        begun = now = perf_counter()
        orders.resume()
        while now < begun + seconds and group.acked - acked < left:
            sleep(_LOOK_S)
            now = perf_counter()
        wait_until(lambda: group.acked > acked, "a message is handled")
        orders.pause()
        wait_until(lambda: group.delivered == group.acked, "the last handlers have ended")
        took = perf_counter() - begun
        return [group.acked - acked, took, self._cpu() - cpu, desk.writer.groups - commits]

    def latency(self, seconds: float) -> object:
        """Put one message after the other, each when the one before is settled; how long each."""
        group, taken = self._group, []
        end, cpu = perf_counter() + seconds, self._cpu()
        while perf_counter() < end:
            wait_until(
                lambda: group.delivered == group.acked and bool(group.waiters), "a worker waits"
            )
            sleep(_REST_S)
            begun = perf_counter()
            orders.put(BODY)
            while (started := _cell.read()) < begun:
                sleep(_TICK_S)
            taken.append(started - begun)
        return [taken, self._cpu() - cpu]

    def idle(self, seconds: float) -> object:
        """Let each queue have messages, then do nothing; return the CPU of all, in percent."""
        for queue in queues:
            queue.put_many([b"x"] * 4)
        wait_until(lambda: not any(q.stats().length for q in queues), "the workers work")
        sleep(min(_SETTLE_S, seconds))
        cpu, begun = self._cpu(), perf_counter()
        sleep(seconds)
        return [100 * (self._cpu() - cpu) / (perf_counter() - begun), len(active_children())]

    @staticmethod
    def _cpu() -> float:
        return process_time() + cpu_of_all(
            child.pid for child in active_children() if child.pid is not None
        )


def main() -> int:
    """Do what the lines say, until there are no more."""
    with broker:
        application = Application()
        words: dict[str, Callable[..., object]] = {
            name: getattr(application, name)
            for name in ("ready", "fill", "checkpoint", "drain", "latency", "idle")
        }
        print("null", flush=True)
        for line in sys.stdin:
            word, *numbers = line.split()
            print(json.dumps(words[word](*map(json.loads, numbers))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
