"""An application that computes while others use its queue: the host is a process of its own."""

import logging
import os
import tempfile
import threading
from pathlib import Path

from embedq import Broker

# Each worker imports this file: it has to find the same database. What it inherits tells it.
os.environ.setdefault("EMBEDQ_PATH", str(Path(tempfile.mkdtemp()) / "squares.db"))
broker = Broker(sidecar=True)
numbers = broker.queue("numbers", int)
squares = broker.queue("squares", int)


@numbers.consumer(pool="process")
def square(number: int) -> None:
    """Run in a worker process, which talks to the sidecar: the application is not asked."""
    squares.put(number * number)


def compute(enough: threading.Event) -> None:
    """Keep the interpreter of the application busy, and with it every thread of it."""
    total = 0
    while not enough.is_set():
        total += sum(range(1_000))


def main() -> None:
    """Compute, while a worker does its own."""
    logging.getLogger("embedq").setLevel(logging.ERROR)
    enough = threading.Event()
    with broker:
        threading.Thread(target=compute, args=(enough,)).start()
        numbers.put_many(range(1, 9))
        print("squares:", sorted(squares.get(60).body for _ in range(8)))
        enough.set()
        print("left:", numbers.stats().length)


if __name__ == "__main__":  # else every worker would start the broker again
    main()
