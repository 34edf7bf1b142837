"""Parse every file of the Python standard library in worker threads, even through a kill -9.

    python examples/quickstart.py --crash    # kills itself in the middle
    python examples/quickstart.py            # does the rest: nothing is lost

One message per file is claimed, parsed and acknowledged. What cannot be parsed is tried three
times, with a pause before each retry, and is then kept as a dead letter with its traceback.
Another folder may be given as an argument. Queue and results lie in ./quickstart-data.
"""

import argparse
import ast
import logging
import random
import sysconfig
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from quickstart_progress import Progress
from quickstart_results import Results, data_folder, python_files, summary

from embedq import ErrorInfo, QueuePolicy, RetryPolicy
from embedq.broker.engine import Engine
from embedq.broker.host import open_engine
from embedq.broker.state import GroupState
from embedq.message import draft

RETRY = RetryPolicy(max_attempts=3, base="200ms", cap="2s")
THREADS = 4


def put(engine: Engine, group: GroupState, files: list[str]) -> None:
    """Put one message per file in one transaction; its dedup key makes a second put harmless."""
    # The key is remembered for a day; ten minutes, the default, may be too short for a demo.
    drafts = [draft(name.encode(), dedup_key=name, dedup_window_ms=86_400_000) for name in files]
    known = sum(receipt.duplicate for receipt in engine.put_drafts(group.queue, drafts))
    print(f"put {len(files) - known:,} messages; {known:,} are here from an earlier run")


def count_definitions(name: str) -> int:
    """Count the functions and classes of a file."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    tree = ast.parse(Path(name).read_bytes(), name)
    return sum(isinstance(node, kinds) for node in ast.walk(tree))


def work(engine: Engine, group: GroupState, results: Results, progress: Progress) -> None:
    """Claim, parse and acknowledge until the queue is empty."""
    while not progress.stopped and (group.queue.stored or not engine.counts_exact):
        parsed = {}
        for lease in engine.claim(group, most=10, lease_s=600):
            name = lease.message.body.decode()
            try:
                parsed[lease] = (name, count_definitions(name), lease.attempt)
            except Exception as error:  # noqa: BLE001  # whatever it is, the message keeps it
                delay = RETRY.delay(lease.attempt, random)
                engine.fail(lease, ErrorInfo.from_exception(error), delay)
        results.save(parsed.values())  # before the ack: a crash in between repeats the work
        progress.show()
        engine.ack(*parsed)
        if not parsed:
            progress.pause(0.05)  # the rest is with other threads, or waits for its retry


def main() -> int:
    """Run the demo; return 1 if a message was lost."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", default=sysconfig.get_path("stdlib"))
    parser.add_argument("--crash", action="store_true", help="kill the program in the middle")
    options = parser.parse_args()
    files = python_files(options.folder)
    warnings.simplefilter("ignore")  # those files' warnings are not ours
    logging.getLogger("embedq").setLevel(logging.ERROR)  # the summary lists the dead letters
    results = Results(data_folder())
    with open_engine(results.folder / "queue.db") as engine, ThreadPoolExecutor(THREADS) as pool:
        policy = QueuePolicy(max_attempts=RETRY.stored_max_attempts)
        group = engine.group(engine.queue("files", policy))
        put(engine, group, files)
        with Progress(results, group.queue, len(files), crash=options.crash) as progress:
            jobs = [pool.submit(work, engine, group, results, progress) for _ in range(THREADS)]
            for job in jobs:
                job.result()
        return summary(results, files, engine.store.dead(group.queue.id, 0, len(files)))


if __name__ == "__main__":
    raise SystemExit(main())
