"""A message for later, one that is tried again, and one that becomes a dead letter."""

import logging
import random
import tempfile
import time
from pathlib import Path

import msgspec

from embedq import AttemptRecord, ErrorInfo, QueuePolicy, RetryPolicy
from embedq.broker.host import open_engine
from embedq.message import draft

logging.getLogger("embedq").setLevel(logging.ERROR)  # what is dead is printed below
RETRY = RetryPolicy(max_attempts=3, base="100ms")
failures = {"late": 0, "flaky": 1, "broken": 99}  # before each task succeeds
story = dict.fromkeys(failures, "")


def perform(task: str) -> None:
    """Do a task, if it is in the mood."""
    failures[task] -= 1
    if failures[task] >= 0:
        raise ValueError(f"{task} did not work")


with tempfile.TemporaryDirectory() as folder, open_engine(Path(folder) / "tasks.db") as engine:
    tasks = engine.queue("tasks", QueuePolicy(max_attempts=RETRY.stored_max_attempts))
    group = engine.group(tasks)
    soon = engine.now_ms() + 300
    engine.put_drafts(
        tasks, [draft(b"late", available_at_ms=soon), draft(b"flaky"), draft(b"broken")]
    )
    while tasks.stored:
        for lease in engine.claim(group, most=10):
            task = lease.message.body.decode()
            try:
                perform(task)
            except ValueError as error:
                story[task] += f"attempt {lease.attempt} failed, "
                pause = RETRY.delay(lease.attempt, random)  # doubles each time, with jitter
                engine.fail(lease, ErrorInfo.from_exception(error), pause)
            else:
                early = task == "late" and engine.now_ms() < soon
                story[task] += f"attempt {lease.attempt} {'came too early' if early else 'done'}"
                engine.ack(lease)
        time.sleep(0.01)

    for task, text in story.items():
        print(f"{task}: {text.strip(', ')}")
    for letter in engine.store.dead(tasks.id, after=0, limit=10):
        print(f"dead: {letter.body.decode()}, reason {letter.reason} ({letter.detail})")
        for record in msgspec.msgpack.decode(letter.attempts, type=list[AttemptRecord]):
            print(f"  {record.attempt}: {record.error.type}: {record.error.message}")
