"""An application that can be busy in Python, with two workers, with or without a sidecar.

Knows: its consumer, the thread that keeps its interpreter busy, its own puts.
Does not know: rounds, figures, who watches it from outside. Started by bench_sidecar.py.

Each line of its input is a word and a number, each answer a line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).resolve().parent.parent
# Runs from a checkout that is not installed, too.
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from bench_process_names import MODE, PATH, WORKERS  # noqa: E402
from bench_sides import BODY  # noqa: E402
from embedq import Broker  # noqa: E402

broker = Broker(os.environ[PATH], sidecar=os.environ[MODE] == "sidecar")
orders = broker.queue("orders")
#: Nobody takes these.
own = broker.queue("own")


@orders.consumer(pool="process", concurrency=WORKERS)
def handle(_: bytes) -> None:
    """Do nothing with a message."""


class Busy:
    """A thread that computes in Python while it is asked to."""

    def __init__(self) -> None:
        self._wanted = threading.Event()
        threading.Thread(target=self._compute, daemon=True).start()

    def be(self, busy: float) -> None:
        """Begin, or rest."""
        (self._wanted.set if busy else self._wanted.clear)()

    def _compute(self) -> None:
        number = 1
        while True:
            self._wanted.wait()
            for _ in range(10_000):
                number = number * 1_103_515_245 + 12_345 & 0x7FFFFFFF


def put(seconds: float) -> list[float]:
    """Put one message after the other for a time; returns how long each took."""
    taken = []
    end = perf_counter() + seconds
    while (begun := perf_counter()) < end:
        own.put(BODY)
        taken.append(perf_counter() - begun)
    return taken


def main() -> int:
    """Do what the lines say, until there are no more."""
    busy = Busy()
    with broker:
        broker.backing.wait_until_served()
        print("null", flush=True)
        for line in sys.stdin:
            word, number = line.split()
            if word == "busy":
                busy.be(float(number))
            print(json.dumps(put(float(number)) if word == "put" else None), flush=True)
        busy.be(0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
