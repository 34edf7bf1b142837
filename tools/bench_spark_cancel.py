"""How long a handler's Spark job goes on after it was cancelled: from the request to its error.

Knows: a consumer whose job would take for ever, when its tasks are at work, who notes what.
Does not know: rounds of the other rows, tables (bench_spark.py), how jobs are cancelled.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any, Final

from bench_figures import Value, percentile
from embedq import Broker
from embedq.spark import cancel_job

KEY: Final = "cancel"
GOAL_S: Final = 1.0
#: Rows that no machine counts while a benchmark runs.
_ENDLESS: Final = 1 << 50
_PATIENCE_S: Final = 120.0
_LOOK_S: Final = 0.01


class Cancels:
    """A consumer in this process, one message after the other; each is cancelled while it runs.

    `planted_s`: how long each request is held back, for a test.
    """

    def __init__(self, spark: Any, folder: Path, planted_s: float = 0.0) -> None:  # noqa: ANN401 - PySpark's own type
        self._spark = spark
        self._path = folder / "cancelled.db"
        self._planted_s = planted_s
        self._ended = threading.Semaphore(0)
        self._raised: list[tuple[float, str]] = []

    def seconds(self, rounds: int, warm: int = 1) -> list[float]:
        """Return the seconds from each request to the error that the handler got.

        `warm`: requests before them that are not counted; the first one loads classes.
        """
        broker = Broker(self._path, durability="normal")
        queue = broker.queue("jobs", int)
        queue.consumer(spark=lambda: self._spark)(self._endless)
        logger = logging.getLogger("embedq")
        level = logger.level
        logger.setLevel(logging.ERROR)  # dead letters are meant
        try:
            with broker:
                found = [self._cancelled(queue.put(n).id) for n in range(warm + rounds)]
                return found[warm:]
        finally:
            logger.setLevel(level)

    def _endless(self, body: int) -> None:
        try:
            self._spark.range(_ENDLESS).where("id < 0").count()
        except BaseException as error:
            self._raised.append((perf_counter(), str(error)))
            raise
        finally:
            del body
            self._ended.release()

    def _cancelled(self, id: str) -> float:
        _wait(self._is_at_work, "the tasks of a job have not begun")
        begun = perf_counter()
        if self._planted_s:
            threading.Event().wait(self._planted_s)
        if not cancel_job(id, "measured"):
            raise SystemExit(f"bench: no handler is at message {id}")
        if not self._ended.acquire(timeout=_PATIENCE_S) or not self._raised:
            raise SystemExit("bench: a job that was cancelled has not ended with an error")
        at, text = self._raised.pop()
        if "cancel" not in text.lower():
            raise SystemExit(f"bench: a job ended with another error: {text[:300]}")
        _wait(lambda: not self._is_at_work(), "tasks of a cancelled job go on")
        return at - begun

    def _is_at_work(self) -> bool:
        tracker = self._spark.sparkContext.statusTracker()
        stages = map(tracker.getStageInfo, tracker.getActiveStageIds())
        return any(stage is not None and stage.numActiveTasks for stage in stages)


def _wait(is_so: Callable[[], bool], trouble: str) -> None:
    until = monotonic() + _PATIENCE_S
    while not is_so():
        if monotonic() > until:
            raise SystemExit(f"bench: {trouble} in {_PATIENCE_S:.0f} s")
        threading.Event().wait(_LOOK_S)


def cancel_value(seconds: list[float]) -> Value:
    """Return the row of the requests: the slowest counts."""
    slowest = max(seconds)
    text = f"p50 {percentile(seconds, 0.5):.2f} s, max {slowest:.2f} s of {len(seconds)} requests"
    goal = f"max ≤ {GOAL_S:g} s"
    return Value(KEY, "cancel to the handler's error", text, goal, slowest <= GOAL_S)
