"""A program that puts numbers into a queue of another process and says which were confirmed.

Arguments: the database, a log, the first number, how many.
"""

from __future__ import annotations

import os
import sys

from embedq import Broker


def main(path: str, log: str, first: int, count: int) -> None:
    """Put the numbers one by one, and note each once the put has returned."""
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with Broker(path, role="client") as broker:
        numbers = broker.queue("numbers", int)
        for number in range(first, first + count):
            numbers.put(number)
            os.write(out, b"%d\n" % number)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
