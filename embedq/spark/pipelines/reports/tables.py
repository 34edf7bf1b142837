"""The tables of a report as files: CSV for people and sheets, Parquet for programs.

Knows: which columns each table has, how a cell cannot become a formula.
Does not know: Spark, what figures mean, the page.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyarrow import parquet

from embedq.printable import plain
from embedq.spark.pipelines.reports.figures import (
    Attempt,
    Failure,
    Figures,
    Letters,
    Measured,
    Slow,
)

#: With these a cell begins that a spreadsheet takes for a formula.
_FORMULAS: Final = ("=", "+", "-", "@", "\t", "\r", "\n")
_MOMENT: Final = pa.timestamp("us", tz="UTC")

#: A column: its type, and how its value is got from a row.
Columns = Mapping[str, tuple[pa.DataType, Callable[[Any], object]]]


def _get(name: str, kind: pa.DataType) -> tuple[pa.DataType, Callable[[Any], object]]:
    return kind, lambda row: getattr(row, name)


def _texts(*names: str) -> Columns:
    return {name: _get(name, pa.string()) for name in names}


def _counts(*names: str) -> Columns:
    return {name: _get(name, pa.int64()) for name in names}


def _moments(*names: str) -> Columns:
    return {name: _get(name, _MOMENT) for name in names}


def _times(of: str) -> Columns:
    def part(name: str) -> Callable[[Any], object]:
        return lambda row: getattr(getattr(row, of), name)

    names = ("p50", "p90", "p99", "longest", "total")
    return {f"{of}_{name}_s": (pa.float64(), part(name)) for name in names}


_FIGURES: Final[Columns] = {
    **_counts("deliveries", "messages", "acked", "acked_at_once", "failed", "timed_out"),
    **_counts("crashed", "dead", "expired", "cancelled", "waits"),
    **_times("wait"),
    **_times("run"),
    **_moments("first", "last"),
}
_IDS: Final[Columns] = {"ids": (pa.string(), lambda row: " ".join(row.ids))}
_SLOW: Final[Columns] = {
    **_texts("queue", "group", "id", "worker"),
    **_counts("attempt"),
    **_texts("outcome"),
    **_moments("started"),
    "wait_s": (pa.float64(), lambda row: row.wait),
    "run_s": (pa.float64(), lambda row: row.run),
}
_TABLES: Final[Mapping[str, Columns]] = {
    "queues": {**_texts("queue"), **_FIGURES},
    "consumers": {**_texts("queue", "group"), **_FIGURES},
    "workers": {**_texts("queue", "group", "worker"), **_FIGURES},
    "times": {**_moments("since"), **_FIGURES},
    "queue_times": {**_texts("queue"), **_moments("since"), **_FIGURES},
    "attempts": {**_texts("queue"), **_counts("attempt", "acked", "dead", "again")},
    "failures": {
        **_texts("fingerprint", "queue", "group", "type", "place", "message"),
        **_counts("deliveries", "timed_out", "crashed", "dead"),
        **_moments("first", "last"),
        **_IDS,
    },
    "dead_letters": {
        **_texts("fingerprint", "queue", "group", "reason", "type", "place", "message"),
        **_counts("letters"),
        **_moments("first", "last"),
        **_IDS,
    },
    "longest_runs": _SLOW,
    "longest_waits": _SLOW,
}
Row = Figures | Attempt | Failure | Letters | Slow


def write_tables(measured: Measured, folder: Path) -> tuple[Path, ...]:
    """Write each table as `<name>.csv` and `<name>.parquet`; return the paths.

    Times are UTC, durations seconds; an empty queue name stands for all others. In CSV a cell
    that a spreadsheet would take for a formula begins with an apostrophe, and what hides or turns
    text around is an escape; Parquet has the values as they are.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for name, columns in _TABLES.items():
        rows = _rows(measured, name)
        values = {column: [get(row) for row in rows] for column, (_, get) in columns.items()}
        written += [folder / f"{name}.csv", folder / f"{name}.parquet"]
        _write_csv(written[-2], columns, zip(*values.values(), strict=True))
        schema = pa.schema([(column, kind) for column, (kind, _) in columns.items()])
        parquet.write_table(pa.table(values, schema=schema), written[-1])
    return tuple(written)


def _rows(measured: Measured, name: str) -> Sequence[Row]:
    special: dict[str, Sequence[Row]] = {
        "times": measured.spans,
        "queue_times": measured.queue_spans,
        "dead_letters": measured.letters or [],
    }
    found: Sequence[Row] = special[name] if name in special else getattr(measured, name)
    return found


def _write_csv(path: Path, names: Iterable[str], rows: Iterable[tuple[object, ...]]) -> None:
    # A surrogate of a damaged text must not end the report.
    with path.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        writer.writerows(map(_cell, row) for row in rows)


def _cell(value: object) -> object:
    if isinstance(value, str):
        shown = plain(value, keep="\n\t\r")
        return f"'{shown}" if shown.startswith(_FORMULAS) else shown
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds")
    return value
