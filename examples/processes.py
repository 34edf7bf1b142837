"""Worker processes: every core works, and a message that kills its worker takes nobody with it."""

import logging
import os
import signal
import tempfile
import threading
from pathlib import Path

from embedq import Broker, RetryPolicy

# Each worker imports this file: it has to find the same database. What it inherits tells it.
os.environ.setdefault("EMBEDQ_PATH", str(Path(tempfile.mkdtemp()) / "primes.db"))
KILLER, ENDLESS = 13, 21
broker = Broker()
numbers = broker.queue("numbers", int, retry=RetryPolicy(3, base=0, cap=0))
primes = broker.queue("primes", int)


@numbers.consumer(pool="process", concurrency=2, timeout="500ms")
def examine(number: int) -> None:
    """Put a number among the primes if it is one."""
    if number == KILLER:
        os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does when memory runs out
    if number == ENDLESS:
        while True:  # no thread could be ended here
            pass
    if all(number % divisor for divisor in range(2, number)):
        primes.put(number)  # through the connection of the worker


def main() -> None:
    """Let two processes examine numbers, two of which are no good."""
    logging.getLogger("embedq").setLevel(logging.ERROR)  # the deaths are told below
    deaths = []
    all_done = threading.Event()
    broker.on("worker_died", deaths.append)
    broker.on("dead", lambda _: numbers.stats().length or all_done.set(), queue="numbers")

    with broker:
        numbers.put_many(range(2, 30))
        all_done.wait(60)
        print("primes:", sorted(delivery.body for delivery in primes.get_many(100, 5)))
        print("workers that died:", [notice.fields["cause"].split(":")[0] for notice in deaths])
        for letter in numbers.dead.list():
            errors = [attempt.error.type for attempt in letter.attempts]
            print(f"{letter.body.decode()} is dead: {letter.reason}, {errors}")


if __name__ == "__main__":  # else every worker would start the broker again
    main()
