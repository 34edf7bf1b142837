"""A fresh process with five queues and eight idle consumers, which says what CPU it used.

Knows: which consumers there are.
Does not know: what is judged. Run by bench_broker_alone.py; prints a number.
"""

from __future__ import annotations

import sys
from pathlib import Path
from time import perf_counter, process_time, sleep

ROOT = Path(__file__).resolve().parent.parent
# Runs from a checkout that is not installed, too.
sys.path.insert(0, str(ROOT))

from embedq import Broker  # noqa: E402

#: Consumers of each of the five queues: on threads, on the loop.
CONSUMERS = ((1, 1), (1, 1), (1, 1), (1, 0), (0, 1))
#: What follows a start (a checkpoint, free pages) is over by then.
_SETTLE_S = 2.5


def _sync(_: bytes) -> None:
    """Handle a message on a thread."""


async def _async(_: bytes) -> None:
    """Handle a message on the loop."""


def main(path: str, seconds: float) -> int:
    """Handle one message in each queue, then do nothing; print the share of a core, in percent."""
    broker = Broker(path)
    for number, (threads, coroutines) in enumerate(CONSUMERS):
        queue = broker.queue(f"queue-{number}")
        if threads:
            queue.consumer(group="threads", concurrency=2)(_sync)
        if coroutines:
            queue.consumer(group="loop", concurrency=10)(_async)
    with broker:
        for queue in broker.queues:
            queue.put(b"x")
        sleep(min(_SETTLE_S, seconds))
        cpu, begun = process_time(), perf_counter()
        sleep(seconds)
        print(100 * (process_time() - cpu) / (perf_counter() - begun), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2])))
