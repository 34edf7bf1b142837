"""Figures of a benchmark and what follows from them: ratios, verdicts, Markdown tables.

Knows: that a ratio is the median of ratios taken inside one round, how a table is written.
Does not know: what is measured, how long it takes, the product. No clock, no files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

NOTHING = "–"

#: What the cells of all rounds measured, by name; None where a round has no such figure.
Results = Mapping[str, Sequence["Figure | None"]]


@dataclass(frozen=True, slots=True)
class Figure:
    """One cell in one round.

    `rate` is messages per second, `cpu_us` process CPU per message, `commits` transactions per
    message. Latencies are those of one call, in milliseconds.
    """

    rate: float
    cpu_us: float
    commits: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    max_ms: float | None = None


class Spread(NamedTuple):
    """The median of some values, and their ends."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Row:
    """A cell, what it is measured against, and the ratio to reach; no goal: only reported.

    `syncs` bounds the goal to disks whose sync takes that many milliseconds. `by`: the field of
    the figures that is compared; of times, the ratio says how often ours fits into the other.
    """

    key: str
    title: str
    cell: str
    against: str
    goal: float | None = None
    syncs: tuple[float, float] | None = None
    by: str = "rate"


@dataclass(frozen=True, slots=True)
class Value:
    """A single measured value with its goal in words. `reached` None: there is no goal."""

    key: str
    title: str
    text: str
    goal: str = NOTHING
    reached: bool | None = None


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that `share` (0 to 1) of the values do not exceed. They are not empty."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def spread(values: Sequence[float]) -> Spread | None:
    """Return median, lowest and highest value; None if there is none."""
    if not values:
        return None
    return Spread(median(values), min(values), max(values))


def rates(results: Results, cell: str) -> list[float]:
    """Return the rates of a cell in all rounds that have it."""
    return [figure.rate for figure in results.get(cell, ()) if figure is not None]


def ratios(results: Results, cell: str, against: str, by: str = "rate") -> list[float]:
    """Return a cell's rate over another's, for each round that has both.

    By another field than the rate, a time: the other's over the cell's.
    """
    pairs = zip(results.get(cell, ()), results.get(against, ()), strict=False)
    found = [(getattr(a, by), getattr(b, by)) for a, b in pairs if a is not None and b is not None]
    if by != "rate":
        found = [(b, a) for a, b in found]
    return [a / b for a, b in found if a is not None and b]


def applies(row: Row, sync_ms: float) -> bool:
    """Whether a row's goal is meant for a disk that takes so long to sync."""
    return row.syncs is None or row.syncs[0] <= sync_ms <= row.syncs[1]


def reached(row: Row, results: Results, sync_ms: float) -> bool | None:
    """Whether a row reaches its goal; None where there is nothing to say."""
    found = spread(ratios(results, row.cell, row.against, row.by))
    if row.goal is None or found is None or not applies(row, sync_ms):
        return None
    return found.median >= row.goal


# ---------------------------------------------------------------------------- writing


def number(value: float) -> str:
    """Write a number with about three digits that mean something."""
    if value >= 100:  # noqa: PLR2004  # digits
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"  # noqa: PLR2004  # digits


def spread_text(found: Spread | None) -> str:
    """Write a spread as median (low–high)."""
    if found is None:
        return NOTHING
    return f"{number(found.median)} ({number(found.low)}–{number(found.high)})"


def verdict(answer: bool | None) -> str:  # noqa: FBT001  # it is the value to be written
    """Write whether a goal is reached."""
    return NOTHING if answer is None else "yes" if answer else "**no**"


def middle(results: Results, cell: str, field: str) -> str:
    """Write the median of one field of a cell."""
    values = [getattr(figure, field) for figure in results.get(cell, ()) if figure is not None]
    found = spread([value for value in values if value is not None])
    return NOTHING if found is None else number(found.median)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a Markdown table whose columns line up; all but the first two are set right."""
    widths = [max(len(line[column]) for line in (head, *rows)) for column in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return "| " + " | ".join(padded) + " |"

    rule = "| " + " | ".join(
        "-" * width if column == 0 else "-" * (width - 1) + ":"
        for column, width in enumerate(widths)
    )
    return "\n".join([line(head), rule + " |", *map(line, rows)])


def ratio_table(rows: Sequence[Row], results: Results, sync_ms: float) -> str:
    """Write what each row reaches."""
    head = (
        "row",
        "messages/s",
        "against",
        "its messages/s",
        "ratio",
        "goal",
        "reached",
        "CPU µs",
        "its CPU µs",
        "commits/message",
    )
    lines = [
        (
            row.title,
            spread_text(spread(rates(results, row.cell))),
            row.against,
            spread_text(spread(rates(results, row.against))),
            spread_text(spread(ratios(results, row.cell, row.against, row.by))),
            _goal(row, sync_ms),
            verdict(reached(row, results, sync_ms)),
            middle(results, row.cell, "cpu_us"),
            middle(results, row.against, "cpu_us"),
            middle(results, row.cell, "commits"),
        )
        for row in rows
    ]
    return table(head, lines)


def _goal(row: Row, sync_ms: float) -> str:
    goal = NOTHING if row.goal is None else f"≥ {row.goal:g}"
    if row.syncs and not applies(row, sync_ms):
        goal += f" if a sync takes {row.syncs[0]:g}–{row.syncs[1]:g} ms"
    return goal


def latency_table(rows: Sequence[Row], results: Results, sync_ms: float) -> str:
    """Write rows that compare times: the ratio is the other's over ours, more than 1 is faster."""
    head = (
        *("row", "p50 ms", "p99 ms", "against", "its p50 ms", "its p99 ms", "ratio of p50"),
        *("goal", "reached", "CPU µs", "its CPU µs"),
    )
    lines = [
        (
            row.title,
            middle(results, row.cell, "p50_ms"),
            middle(results, row.cell, "p99_ms"),
            row.against,
            middle(results, row.against, "p50_ms"),
            middle(results, row.against, "p99_ms"),
            spread_text(spread(ratios(results, row.cell, row.against, row.by))),
            _goal(row, sync_ms),
            verdict(reached(row, results, sync_ms)),
            middle(results, row.cell, "cpu_us"),
            middle(results, row.against, "cpu_us"),
        )
        for row in rows
    ]
    return table(head, lines)


def value_table(values: Sequence[Value]) -> str:
    """Write single values and whether they reach their goals."""
    lines = [(item.title, item.text, item.goal, verdict(item.reached)) for item in values]
    return table(("row", "measured", "goal", "reached"), lines)


def busy_table(operations: Sequence[tuple[str, str, str]], results: Results) -> str:
    """Write each operation (title, cell, cell beside a thread that computes) alone and beside it.

    The last column is the share of the rate that is left.
    """
    lines = []
    for title, alone, busy in operations:
        lines.append(
            (
                title,
                spread_text(spread(rates(results, alone))),
                middle(results, alone, "p99_ms"),
                spread_text(spread(rates(results, busy))),
                middle(results, busy, "p99_ms"),
                spread_text(spread(ratios(results, busy, alone))),
            )
        )
    head = ("operation", "alone, messages/s", "p99 ms", "beside it, messages/s", "p99 ms", "left")
    return table(head, lines)
