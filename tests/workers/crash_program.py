"""A program whose handlers end it: run by test_crashes.py, again and again, on one store.

Arguments: the store, a log, "thread", "async" or "batch", how the killers kill, and how many
handlers run at once. Bodies: "k…" kill, others are done after a moment. It ends by itself once
everything is settled.
"""

import asyncio
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable

from embedq.broker.host import open_engine
from embedq.policy import QueuePolicy
from embedq.workers.batches import Batch
from embedq.workers.crews import ConsumerRunner
from embedq.workers.spec import make_spec

PATH, LOG, KIND, HOW, SLOTS = sys.argv[1:6]
log = os.open(LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def kill() -> None:
    if HOW == "segfault":
        ctypes.string_at(0)
    elif HOW == "exit":
        os._exit(7)
    else:
        os.kill(os.getpid(), getattr(signal, HOW))


def work(body: str) -> None:
    os.write(log, f"start {body}\n".encode())
    if body.startswith("k"):
        threading.Event().wait(0.02)  # neighbours start meanwhile
        kill()
    threading.Event().wait(0.05)


def done(body: str) -> None:
    os.write(log, f"done {body}\n".encode())


def handle(body: str) -> None:
    work(body)
    done(body)


async def ahandle(body: str) -> None:
    os.write(log, f"start {body}\n".encode())
    await asyncio.to_thread(threading.Event().wait, 0.02)
    if body.startswith("k"):
        kill()
    await asyncio.to_thread(threading.Event().wait, 0.05)
    done(body)


def load(batch: Batch[str]) -> None:
    for body in batch:
        os.write(log, f"start {body}\n".encode())
    for body in batch:
        if body.startswith("k"):
            kill()
    for body in batch:
        done(body)


handlers: dict[str, Callable[..., object]] = {"thread": handle, "async": ahandle, "batch": load}
with open_engine(PATH) as desk:
    policy = QueuePolicy(
        max_attempts=int(os.environ["MOST"]), max_crashes=int(os.environ["CRASHES"])
    )
    queue = desk.queue("orders", policy)
    spec = make_spec(
        handlers[KIND],
        queue="orders",
        concurrency=1 if KIND == "batch" else int(SLOTS),
        batch=int(SLOTS) if KIND == "batch" else None,
    )
    runner = ConsumerRunner(desk, [spec])
    runner.start()
    (group,) = queue.groups
    nap = threading.Event()
    while group.waiting or group.leases:
        nap.wait(0.01)
    runner.drain(10)
