"""Parse every file of the Python standard library in the background, even through a kill -9.

    python examples/quickstart.py --crash    # kills itself in the middle
    python examples/quickstart.py            # does the rest: nothing is lost

One message per file; the consumer parses it. What cannot be parsed is tried three times, with a
pause before each retry, and is then a dead letter with its traceback. Another folder may be given
as an argument. Queue and results lie in ./quickstart-data.
"""

import argparse
import ast
import logging
import sysconfig
import warnings
from pathlib import Path

from quickstart_progress import Progress
from quickstart_results import FOLDER, Results, make_folder, python_files, summary

from embedq import Broker, Delivery, RetryPolicy

RETRY = RetryPolicy(max_attempts=3, base="200ms", cap="2s")

broker = Broker(FOLDER / "queue.db")
queue = broker.queue("files", str, retry=RETRY)
results = Results()


@queue.consumer(concurrency=4, timeout="1m")
def count_definitions(name: str, delivery: Delivery[str]) -> None:
    """Count the functions and classes of a file."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    tree = ast.parse(Path(name).read_bytes(), name)
    number = sum(isinstance(node, kinds) for node in ast.walk(tree))
    # One row per file: a message that is delivered again after a crash replaces its own.
    results.save(name, number, delivery.attempt)


def put(files: list[str]) -> None:
    """Put one message per file: all of them in one transaction, or none."""
    stats = queue.stats()
    if stats.stored or stats.dead or results.rows():
        print(f"the {len(files):,} messages of an earlier run are here")
    else:
        queue.put_many(files)
        print(f"put {len(files):,} messages")


def main() -> int:
    """Run the demo; return 1 if a message was lost."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", default=sysconfig.get_path("stdlib"))
    parser.add_argument("--crash", action="store_true", help="kill the program in the middle")
    options = parser.parse_args()
    files = python_files(options.folder)
    warnings.simplefilter("ignore")  # those files' warnings are not ours
    logging.getLogger("embedq").setLevel(logging.ERROR)  # the summary lists the dead letters
    make_folder()
    results.open()
    put(files)
    progress = Progress(results, queue, len(files), crash=options.crash)
    with broker:
        with progress:
            while queue.stats().length:
                progress.show()
                progress.pause(0.1)
        return summary(results, files, queue.dead.list(limit=len(files)))


if __name__ == "__main__":
    raise SystemExit(main())
