"""An application whose worker processes handle numbers, until somebody kills it or them.

Knows: what its handlers note, and that a third of the numbers are acked inside the handler.
Does not know: who else works on the file, who is killed and when, what the notes must prove.

    CHAOS_FOLDER=… CHAOS_WORKERS=… [CHAOS_PLANTED=…] python -m tests.reliability.chaos_application

The environment says where the database and the notes are, because the workers import this module,
too. No test does: a planted fault stays in the processes of one application.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from embedq import Broker, Delivery, RetryPolicy, StaleLease
from tests.reliability.chaos_faults import plant

FOLDER = Path(os.environ["CHAOS_FOLDER"])

plant(os.environ.get("CHAOS_PLANTED", ""))
broker = Broker(FOLDER / "app.db", grace="20s")
numbers = broker.queue("numbers", int, max_crashes=0, max_attempts=None)
_out = os.open(FOLDER / "out", os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def note(what: str, delivery: Delivery[int]) -> None:
    """Write a line at once: what, number, seq, process. It outlives the process."""
    os.write(_out, f"{what} {delivery.body} {delivery.seq} {os.getpid()}\n".encode())


@numbers.consumer(
    pool="process",
    concurrency=int(os.environ["CHAOS_WORKERS"]),
    retry=RetryPolicy(None, base=0, cap=0),
)
def work(number: int, delivery: Delivery[int]) -> None:
    """Take a while, and say so."""
    note("start", delivery)
    time.sleep(0.001)
    if number % 3:
        note("end", delivery)
        return
    note("acking", delivery)
    try:
        delivery.ack()
    except StaleLease:
        note("stale", delivery)
    else:
        note("acked", delivery)


if __name__ == "__main__":
    broker.run()
