"""A program that puts numbers into a queue of another process and says which were confirmed.

Arguments: the database, a log, the first number, how many are to be confirmed. A number whose put
found no host in time may be there or not: it goes into a log of its own, and the next one counts.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from pathlib import Path

from embedq import Broker
from embedq.errors import NoHost


def unknown_of(log: Path) -> Path:
    """Return where the numbers are of which nobody knows whether they were put."""
    return log.with_name(f"unknown-{log.name}")


def connected(path: str) -> Broker:
    """Return a client of the host, which a busy machine may keep from answering in time."""
    until = time.monotonic() + 60
    while True:
        broker = Broker(path, role="client")
        try:
            broker.start()
        except NoHost:
            if time.monotonic() > until:
                raise
        else:
            return broker


def main(path: str, log: str, first: int, count: int) -> None:
    """Put the numbers one by one, and note each once the put has returned."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    out, unknown = os.open(log, flags), os.open(unknown_of(Path(log)), flags)
    broker = connected(path)
    numbers = broker.queue("numbers", int)
    confirmed = 0
    for number in itertools.count(first):
        if confirmed == count:
            break
        try:
            numbers.put(number)
        except NoHost:
            os.write(unknown, b"%d\n" % number)
        else:
            os.write(out, b"%d\n" % number)
            confirmed += 1
    broker.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
