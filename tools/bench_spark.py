"""The benchmark of Spark: reading a queue by its file and by its host, beside Parquet and sqlite3.

Knows: which passes are compared, the ratios to reach, that all is warm before it is measured.
Does not know: how a pass is made (bench_spark_sides.py), the command line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

import bench_machine as machine
from bench_figures import Figure, Row, Value, number, ratio_table, value_table
from bench_run import Benchmark, Group, Options, Pace, Run, Say, Seen, size_of
from embedq.errors import MissingExtra

if TYPE_CHECKING:
    from bench_spark_sides import Bench

PATH7, PATH2, PATH11 = "path, 7 columns", "path, 2 columns", "path, all columns"
BARE2 = "path, 2 columns without the body"
HOST7 = "endpoint, 7 columns"
PARQUET = "Spark's Parquet, 7 columns"
RAW = "sqlite3 to Arrow, 7 columns"

DIRECT, ATOMIC = "direct write", "atomic write"
CLIENT = "put_many of a client"

_READ, _WRITE, _PIPELINES, _CANCEL = "read", "write", "pipelines", "cancel"
#: Ratios of CPU: how much of the other's CPU ours takes, turned over. All are of one run.
ROWS: Final = (
    Row(_READ, "read by path / Parquet", PATH7, PARQUET, 0.35, by="cpu_us"),
    Row(_READ, "read by path / sqlite3 to Arrow", PATH7, RAW, 0.75, by="cpu_us"),
    Row(_READ, "read by endpoint / by path", HOST7, PATH7, 0.7, by="cpu_us"),
    Row(_READ, "2 columns / 7 columns", PATH2, PATH7, 1.5, by="cpu_us"),
    Row(_READ, "2 columns without the body / 7 columns", BARE2, PATH7, by="cpu_us"),
    Row(_READ, "all columns / 7 columns", PATH11, PATH7, by="cpu_us"),
    Row(_READ, "read by path / Parquet, rows/s", PATH7, PARQUET),
    Row(_READ, "read by endpoint / by path, rows/s", HOST7, PATH7),
    Row(_WRITE, "direct write / bulk put of a client", DIRECT, CLIENT, 0.5),
    Row(_WRITE, "atomic / direct write", ATOMIC, DIRECT, 0.7),
)
KEYS: Final = (_READ, _WRITE, _PIPELINES, _CANCEL)

BUDGET_S: Final = 900.0
PLANTED_S: Final = 1.0
_NOTICED: Final = 0.5


@dataclass(frozen=True, slots=True)
class Size(Pace):
    """How many messages and cancellations there are, and how many passes are not counted."""

    messages: int
    warm: int
    cancels: int


FULL: Final = Size(3, slot_s=0.0, slices=1, syncs=40, messages=1_000_000, warm=2, cancels=10)
QUICK: Final = Size(1, slot_s=0.0, slices=1, syncs=8, messages=20_000, warm=1, cancels=1)


class SparkRun(Run):
    """One run. Its rounds are full passes of all sides, each in its turn."""

    def __init__(self, size: Size, keys: Sequence[str], folder: Path) -> None:
        super().__init__(size, keys, folder, budget_s=BUDGET_S, share=1.0)
        self.size = size
        self.values: list[Value] = []

    def groups(self) -> Sequence[Group]:
        """There are none: passes are not cut into slices."""
        return []

    def rows(self) -> list[Row]:
        """Return the rows that were wanted."""
        return [row for row in ROWS if row.key in self.keys]

    def do_passes(self, say: Say) -> None:
        """Warm up, then run every side once in each round, every other round backwards."""
        from bench_spark_processes import Meter  # noqa: PLC0415  # as above
        from bench_spark_sides import (  # noqa: PLC0415  # other benchmarks need no PySpark
            Bench,
            timed,
        )

        with self.fresh() as folder:
            bench = Bench(folder, self.size.messages)
            meter = Meter()
            try:
                if _PIPELINES in self.keys:
                    self._do_pipelines(bench, folder, say)
                sides = self._sides(bench)
                for turn in range(-self.size.warm, self.size.rounds):
                    begun = self.spent_s
                    found: dict[str, Figure] = {}
                    for name in list(sides)[:: 1 if turn % 2 == 0 else -1]:
                        work, messages = sides[name]
                        found[name] = timed(work, messages, meter=meter)
                    if turn >= 0:
                        self.look_at_machine(self.size.syncs)
                        for name, figure in found.items():
                            self.results.setdefault(name, [None] * turn).append(figure)
                        self.rounds = turn + 1
                    say(f"{'warm-up' if turn < 0 else 'round'}: {self.spent_s - begun:.0f} s")
                if _CANCEL in self.keys:
                    self._do_cancels(bench, folder, say)
            finally:
                bench.close()

    def _do_pipelines(self, bench: Bench, folder: Path, say: Say) -> None:
        from bench_spark_pipelines import pipelines  # noqa: PLC0415  # as above

        begun = self.spent_s
        self.values += pipelines(bench.spark, folder, self.size.messages)
        say(f"pipelines: {self.spent_s - begun:.0f} s")

    def _do_cancels(self, bench: Bench, folder: Path, say: Say) -> None:
        from bench_spark_cancel import Cancels, cancel_value  # noqa: PLC0415  # as above

        begun = self.spent_s
        self.values.append(cancel_value(Cancels(bench.spark, folder).seconds(self.size.cancels)))
        say(f"cancellations: {self.spent_s - begun:.0f} s")

    def _sides(self, bench: Bench) -> dict[str, tuple[Callable[[], None], int]]:
        """Return what is timed for the keys that are wanted, and how many messages each takes."""
        from bench_spark_sides import BARE, SEVEN, TWO  # noqa: PLC0415  # as above
        from bench_spark_writes import PART  # noqa: PLC0415  # as above

        every, some = self.size.messages, self.size.messages // PART
        sides: dict[str, tuple[Callable[[], None], int]] = {}
        if _READ in self.keys:
            sides |= {
                PATH7: (bench.read(SEVEN, path=bench.path), every),
                PATH2: (bench.read(TWO, path=bench.path), every),
                BARE2: (bench.read(BARE, path=bench.path), every),
                PATH11: (bench.read(_every_column(), path=bench.path), every),
                HOST7: (bench.read(SEVEN, endpoint=bench.path), every),
                PARQUET: (bench.read_parquet, every),
                RAW: (bench.read_raw, every),
            }
        if _WRITE in self.keys:
            writes = bench.writes(some)
            sides |= {
                DIRECT: (writes.by_spark("direct"), some),
                ATOMIC: (writes.by_spark("atomic"), some),
                CLIENT: (writes.by_client, some),
            }
        return sides

    def report(self) -> str:
        """Write everything as Markdown."""
        written = self.size.messages // 10
        size = f"{self.size.messages:,} messages of 200 bytes, {written:,} written in a pass, "
        size += f"{self.size.warm} passes not counted"
        known = self.circumstances(size).replace("rounds of cells of 0 s", "rounds of full passes")
        parts = [known]
        if self.results:
            parts.append(ratio_table(self.rows(), self.results, self.sync_ms))
        if self.values:
            parts.append(value_table(self.values))
        return "\n\n".join(parts) + "\n"


def _every_column() -> str:
    from embedq.spark.columns import schema_of  # noqa: PLC0415  # as above

    fields = schema_of("messages").fields
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in fields)


def measure(asked: Options, say: Say) -> SparkRun:
    """Do what was asked for. Raises MissingExtra before anything is measured."""
    _need_spark()
    size = size_of(asked, QUICK, FULL)
    with machine.scratch(asked.folder) as folder:
        run = SparkRun(size, asked.keys, folder)
        run.look_at_machine(size.syncs)
        run.do_passes(say)
        run.look_at_machine(size.syncs)
    return run


def _need_spark() -> None:
    from embedq.spark.needs import need  # noqa: PLC0415  # as above

    try:
        need("pyspark", "pyarrow")
    except MissingExtra as error:
        raise SystemExit(f"bench: {error}") from error


def self_test(folder: Path, rounds: int = 3) -> list[Seen]:
    """Tell whether CPU that is burnt in a pass is seen, and a request that is held back."""
    return [meter_test(rounds), _cancel_test(folder)]


def meter_test(rounds: int = 3) -> Seen:
    """Tell whether CPU that is burnt in a pass is seen. No Spark: the meter is what is tested."""
    from bench_spark_sides import timed  # noqa: PLC0415  # as above

    def middle(planted_s: float) -> float:
        return median(timed(_some_work, 1_000_000, planted_s).cpu_us for _ in range(rounds))

    plain, slowed = middle(0.0), middle(PLANTED_S)
    seen = slowed - plain >= _NOTICED * PLANTED_S
    return Seen("a pass, CPU µs of a message", number(plain), number(slowed), seen)


def _cancel_test(parent: Path) -> Seen:
    """Tell whether the row of cancellations is missed when the requests are held back."""
    _need_spark()
    from bench_spark_cancel import GOAL_S, Cancels, cancel_value  # noqa: PLC0415  # as above
    from embedq.spark import session  # noqa: PLC0415  # as above

    with machine.scratch(parent) as folder:
        spark = session("bench", **{"spark.local.dir": str(folder)})
        try:
            plain = cancel_value(Cancels(spark, folder).seconds(1))
            slowed = cancel_value(Cancels(spark, folder, GOAL_S).seconds(1))
        finally:
            spark.stop()
    seen = plain.reached is True and slowed.reached is False
    return Seen(plain.title, plain.text, slowed.text, seen)


def _some_work() -> None:
    sum(range(1_000_000))


SPARK: Final = Benchmark("queues as sources and sinks of Spark", KEYS, measure, self_test)
