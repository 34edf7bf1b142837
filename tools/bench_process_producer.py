"""A process that puts through the host of another one: one message at a time, or many at once.

Knows: the public interface.
Does not know: who else puts. Started by bench_process_sides.py.

Each line of its input says for how many seconds; each answer is a line of JSON: how many puts,
the seconds, the CPU, the times of some.
"""

from __future__ import annotations

import asyncio
import json
import sys
from array import array
from pathlib import Path
from time import perf_counter, process_time

ROOT = Path(__file__).resolve().parent.parent
# Runs from a checkout that is not installed, too.
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from bench_sides import BODY  # noqa: E402
from embedq import Broker, Queue  # noqa: E402

#: Times of single puts that are told, at most: enough for a percentile.
_TOLD = 2_000


def one_by_one(queue: Queue[bytes], seconds: float, taken: array[float]) -> None:
    """Put one message after the other for a time."""
    now = perf_counter()
    end = now + seconds
    while now < end:
        queue.put(BODY)
        then = perf_counter()
        taken.append(then - now)
        now = then


async def windowed(queue: Queue[bytes], seconds: float, taken: array[float], window: int) -> None:
    """Keep so many puts under way for a time."""
    end = perf_counter() + seconds

    async def repeat() -> None:
        now = perf_counter()
        while now < end:
            await queue.aput(BODY)
            then = perf_counter()
            taken.append(then - now)
            now = then

    await asyncio.gather(*(repeat() for _ in range(window)))


def main(path: str, window: int) -> int:
    """Put for as long as the lines say."""
    broker = Broker(path, role="client")
    queue: Queue[bytes] = broker.queue("orders")
    with broker, asyncio.Runner() as runner:
        queue.put(BODY)
        print("null", flush=True)
        for line in sys.stdin:
            taken = array("d")
            cpu, begun = process_time(), perf_counter()
            if window == 1:
                one_by_one(queue, float(line), taken)
            else:
                runner.run(windowed(queue, float(line), taken, window))
            took, used = perf_counter() - begun, process_time() - cpu
            told = list(taken[:: max(1, len(taken) // _TOLD)])
            print(json.dumps([len(taken), took, used, told]), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
