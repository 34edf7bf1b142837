"""What pipelines over a long history take: time, CPU and memory, one run of each.

Knows: a history of deliveries that was really made, failures among them; how memory is watched.
Does not know: rounds, ratios (bench_spark.py), what a pipeline computes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from bench_figures import Value
from bench_spark_processes import Meter, memory_of_tree
from embedq.broker.host import open_engine
from embedq.message import ErrorInfo
from embedq.net import DONE, Rejected
from embedq.policy import QueuePolicy
from embedq.spark.pipelines import archive, report

KEY: Final = "pipelines"
QUEUES: Final = 5
LOT: Final = 1_000
#: One delivery of so many fails, of so many different errors.
FAILING, ERRORS = 20, 100
_RETAIN_MS: Final = 864_000_000
_LOOK_S: Final = 0.25
_MIB: Final = 1 << 20


def make_history(path: Path, deliveries: int) -> None:
    """Put, deliver and settle so many messages of 20 bytes in a file."""
    errors = [
        ErrorInfo("ValueError", f"order {n} failed", f'File "/srv/app.py", line 7, in f{n % 7}\n')
        for n in range(ERRORS)
    ]
    with open_engine(path, durability="normal", upkeep=False) as desk:
        queues = [desk.queue(f"q{n}", QueuePolicy(retain_ms=_RETAIN_MS)) for n in range(QUEUES)]
        groups = [desk.group(queue) for queue in queues]
        for lot in range(deliveries // LOT):
            desk.put_many(queues[lot % QUEUES], [b"x" * 20] * LOT)
            leases = desk.claim(groups[lot % QUEUES], LOT)
            desk.settle(
                [
                    (each, Rejected(error=errors[each.seq % ERRORS]) if _fails(each.seq) else DONE)
                    for each in leases
                ]
            )


def _fails(seq: int) -> bool:
    return seq % FAILING == 0


def pipelines(spark: Any, folder: Path, deliveries: int) -> list[Value]:  # noqa: ANN401 - PySpark's own type
    """Make a history, archive it, report on the archive and on the file."""
    path, kept = folder / "history.db", folder / "archive"
    logging.getLogger("embedq").setLevel(logging.ERROR)  # 50,000 dead letters are meant
    make_history(path, deliveries)
    options = {"path": str(path), "subscribePattern": ".*"}
    each: dict[str, Callable[[], int]] = {
        "archive": lambda: archive(spark, options, kept).rows,
        "report of the archive": lambda: report(spark, kept, folder / "report1").deliveries,
        "report of the file": lambda: report(spark, options, folder / "report2").deliveries,
    }
    return [_measured(title, work, deliveries) for title, work in each.items()]


def _measured(title: str, work: Callable[[], int], deliveries: int) -> Value:
    meter = Meter()
    cpu, begun = meter.seconds(), perf_counter()
    with _watched() as peak:
        found = work()
    if found != deliveries:
        raise SystemExit(f"bench: {title} found {found:,} deliveries of {deliveries:,}")
    seconds, used = perf_counter() - begun, meter.seconds() - cpu
    text = f"{seconds:.0f} s, {used:.0f} s of CPU, {peak[0] / _MIB:,.0f} MiB in all processes"
    return Value(KEY, f"{title}, {deliveries:,} deliveries", text)


@contextmanager
def _watched() -> Iterator[list[int]]:
    """Give a list whose only item is the most memory that was seen until the block ends."""
    peak, over = [memory_of_tree()], threading.Event()

    def watch() -> None:
        while not over.wait(_LOOK_S):
            peak[0] = max(peak[0], memory_of_tree())

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield peak
    finally:
        over.set()
        watcher.join()
