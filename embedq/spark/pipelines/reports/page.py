"""The page of a report: one HTML file without scripts, that needs nothing from anywhere.

Knows: which sections there are, in which order, which columns their tables have.
Does not know: HTML (page.html has it, and escapes whatever it is given), Spark, files.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from embedq.spark.pipelines.reports import findings
from embedq.spark.pipelines.reports.figures import (
    Failure,
    Figures,
    Letters,
    Measured,
    Slow,
)
from embedq.spark.pipelines.reports.wording import (
    ABSENT,
    count,
    ending,
    moment,
    seconds,
    share,
    span,
    text,
)

#: Rows of a table on the page; the files have more.
SHOWN: Final = 15
#: Causes of failures on the page.
CAUSES: Final = 10
_NAME: Final = 120
_MESSAGE: Final = 600
_TRACEBACK: Final = 4000


class Picture(NamedTuple):
    """A plot, twice: PNG for a bright page and for a dark one."""

    title: str
    alt: str
    bright: bytes
    dark: bytes

    @property
    def sources(self) -> tuple[str, str]:
        """Both as URLs that contain them."""
        bright, dark = (b64encode(png).decode() for png in (self.bright, self.dark))
        return f"data:image/png;base64,{bright}", f"data:image/png;base64,{dark}"


class Cell(NamedTuple):
    """A cell of a table. `kind`: `name`, `number` or `code`; `part`: of a bar behind it, 0 to 1.

    `is_bad`: something that somebody should look at.
    """

    text: str
    kind: str = "number"
    part: float | None = None
    is_bad: bool = False


class Table(NamedTuple):
    """A table: what it shows, its columns with their kinds, its rows, what is left out."""

    caption: str
    columns: Sequence[tuple[str, str]]
    rows: Sequence[Sequence[Cell]]
    rest: str = ""


class Tile(NamedTuple):
    """A figure of the whole, and what it is."""

    value: str
    label: str
    more: str = ""
    is_bad: bool = False


def page(measured: Measured, pictures: Sequence[Picture], *, title: str, made: datetime) -> str:
    """Return the whole page. `made`: when the report was made, UTC."""
    return _template().render(
        title=text(title, _NAME),
        source=text(measured.source, 2 * _NAME),
        period=_period(measured.total),
        made=moment(made),
        slow=findings.slow(measured),
        failing=findings.failing(measured),
        tiles=_tiles(measured),
        pictures=pictures,
        queues=_queues(measured),
        consumers=_consumers(measured),
        workers=_workers(measured),
        causes=[_cause(one, measured) for one in measured.failures[:CAUSES]],
        more_causes=_more_causes(measured),
        letters=_letters(measured),
        letters_known=measured.letters is not None,
        runs=_slowest("Longest runs", measured.longest_runs, "run"),
        waits=_slowest("Longest waits for the first start", measured.longest_waits, "wait"),
        span=span(measured.span_s),
    )


@lru_cache(maxsize=1)
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html")


def _period(total: Figures) -> str:
    if total.first is None or total.last is None:
        return "no deliveries"
    length = (total.last - total.first).total_seconds()
    return f"{moment(total.first)} to {moment(total.last)} UTC ({seconds(length)})"


def _tiles(measured: Measured) -> list[Tile]:
    total = measured.total
    tried = max(total.deliveries, total.unsuccessful)
    waits = f"99 of 100 within {seconds(total.wait.p99)}"
    if total.waits < total.messages:
        waits += f"; known of {share(total.waits, total.messages)}"
    return [
        Tile(count(total.deliveries), "deliveries", f"of {count(total.messages)} messages"),
        Tile(seconds(total.wait.p50), "wait, half within", waits),
        Tile(
            seconds(total.run.p50),
            "run, half within",
            f"99 of 100 within {seconds(total.run.p99)}",
        ),
        Tile(
            share(total.unsuccessful, tried),
            "of deliveries fail",
            f"{share(total.acked_at_once, total.messages)} done at once",
            total.unsuccessful > 0,
        ),
        Tile(
            ABSENT if measured.letters is None else count(measured.letter_count),
            "dead letters",
            "not in the archive" if measured.letters is None else "kept now",
            measured.letter_count > 0,
        ),
        Tile(
            count(total.crashed),
            "crashes under a delivery",
            f"{count(total.timed_out)} timed out",
            total.crashed > 0,
        ),
    ]


# -------------------------------------------------------------------------------------- tables

_FIGURE_COLUMNS: Final = (
    ("deliveries", "number"),
    ("fail", "number"),
    ("dead", "number"),
    ("wait: half", "number"),
    ("99 of 100", "number"),
    ("longest", "number"),
    ("run: half", "number"),
    ("99 of 100", "number"),
    ("longest", "number"),
    ("of all run time", "number"),
)


def _figure_cells(one: Figures, most: int, run_total: float) -> list[Cell]:
    tried = max(one.deliveries, one.unsuccessful)
    return [
        Cell(count(one.deliveries), part=one.deliveries / most if most else 0),
        Cell(share(one.unsuccessful, tried), is_bad=one.unsuccessful > 0),
        Cell(count(one.dead), is_bad=one.dead > 0),
        *(Cell(seconds(value)) for value in (one.wait.p50, one.wait.p99, one.wait.longest)),
        *(Cell(seconds(value)) for value in (one.run.p50, one.run.p99, one.run.longest)),
        Cell(share(one.run.total, run_total), part=one.run.total / run_total if run_total else 0),
    ]


def _of_figures(
    caption: str,
    rows: Sequence[Figures],
    measured: Measured,
    keys: Sequence[str],
    there_are: int,
) -> Table:
    shown = rows[:SHOWN]
    most = max((one.deliveries for one in shown), default=0)
    names: Callable[[Figures], list[Cell]] = lambda one: [  # noqa: E731  # three lines, one use
        Cell(text(getattr(one, key), _NAME), "name") for key in keys
    ]
    left = there_are - len(shown)
    done = sum(one.deliveries for one in shown)
    rest = (
        f"and {count(left)} more, with {count(measured.total.deliveries - done)} deliveries: "
        "in the tables beside this page"
        if left > 0
        else ""
    )
    return Table(
        caption,
        [*((key, "name") for key in keys), *_FIGURE_COLUMNS],
        [[*names(one), *_figure_cells(one, most, measured.total.run.total)] for one in shown],
        rest,
    )


def _queues(measured: Measured) -> Table:
    caption = "Queues, the busiest first"
    return _of_figures(caption, measured.queues, measured, ["queue"], measured.queue_count)


def _consumers(measured: Measured) -> Table:
    caption = "Consumer groups, those that ran longest first"
    keys = ["queue", "group"]
    return _of_figures(caption, measured.consumers, measured, keys, measured.consumer_count)


def _workers(measured: Measured) -> Table:
    caption = "Workers, those that ran longest first"
    keys = ["worker", "queue", "group"]
    return _of_figures(caption, measured.workers, measured, keys, measured.worker_count)


def _letters(measured: Measured) -> Table:
    def row(one: Letters) -> list[Cell]:
        what = f"{one.type} in {one.place}" if one.place else one.type
        return [
            Cell(text(one.queue, _NAME), "name"),
            Cell(text(one.reason, _NAME), "name"),
            Cell(count(one.letters), part=one.letters / most),
            Cell(text(what, _NAME), "name"),
            Cell(text(one.message, _NAME) if one.message else ABSENT, "text"),
            Cell(moment(one.first)),
            Cell(moment(one.last)),
            Cell(text(one.fingerprint, _NAME), "code"),
        ]

    shown = (measured.letters or [])[:SHOWN]
    most = max((one.letters for one in shown), default=1)
    left = measured.letter_count - sum(one.letters for one in shown)
    columns = (
        ("queue", "name"),
        ("reason", "name"),
        ("letters", "number"),
        ("error", "name"),
        ("message of the latest", "text"),
        ("first died, UTC", "number"),
        ("last died, UTC", "number"),
        ("fingerprint", "code"),
    )
    rest = (
        f"and {count(left)} more of other causes: in the tables beside this page" if left else ""
    )
    return Table(
        "Dead letters by cause, the most frequent first", columns, list(map(row, shown)), rest
    )


def _slowest(caption: str, rows: Sequence[Slow], by: str) -> Table:
    def row(one: Slow) -> list[Cell]:
        value: float = getattr(one, by) or 0.0
        return [
            Cell(seconds(value), part=value / most if most else 0),
            Cell(text(one.queue, _NAME), "name"),
            Cell(text(one.id, _NAME), "code"),
            Cell(text(one.group, _NAME), "name"),
            Cell(count(one.attempt)),
            Cell(text(one.outcome, _NAME).replace("_", " "), "name"),
            Cell(moment(one.started)),
        ]

    shown = rows[:SHOWN]
    most = max((getattr(one, by) or 0.0 for one in shown), default=0.0)
    columns = (
        (by, "number"),
        ("queue", "name"),
        ("message", "code"),
        ("group", "name"),
        ("attempt", "number"),
        ("outcome", "name"),
        ("started, UTC", "number"),
    )
    return Table(caption, columns, [row(one) for one in shown])


# -------------------------------------------------------------------------------------- causes


class Cause(NamedTuple):
    """A cause of failures, in words."""

    type: str
    place: str
    where: str
    part: float
    often: str
    kinds: str
    message: str
    traceback: str
    seen: str
    ids: Sequence[str]
    fingerprint: str


def _cause(one: Failure, measured: Measured) -> Cause:
    all_of_them = measured.total.unsuccessful
    group = f", group {text(one.group, _NAME)}" if one.group not in {None, "default"} else ""
    return Cause(
        type=text(one.type, _NAME) if one.type else ABSENT,
        place=text(one.place, _NAME) if one.place else "",
        where=f"queue {text(one.queue, _NAME)}{group}",
        part=min(1.0, one.deliveries / all_of_them) if all_of_them else 0.0,
        often=f"{count(one.deliveries)} deliveries, {share(one.deliveries, all_of_them)}",
        kinds=_kinds(one),
        message=text(one.message, _MESSAGE) if one.message else "",
        traceback=ending(one.traceback, _TRACEBACK),
        seen=f"{moment(one.first)} to {moment(one.last)} UTC",
        ids=[text(id, _NAME) for id in one.ids],
        fingerprint=text(one.fingerprint, _NAME),
    )


def _kinds(one: Failure) -> str:
    kinds: Iterable[tuple[int, str]] = (
        (one.dead, "ended their message (dead)"),
        (one.crashed, "crashed"),
        (one.timed_out, "timed out"),
    )
    said = [f"{count(number)} {what}" for number, what in kinds if number]
    return ", ".join(said) if said else "all were to be tried again"


def _more_causes(measured: Measured) -> str:
    """Say what is not shown. Failures without a cause that is known are among them."""
    shown = sum(one.deliveries for one in measured.failures[:CAUSES])
    left = measured.total.unsuccessful - shown
    if len(measured.failures) <= CAUSES or left <= 0:
        return ""
    return f"{count(left)} more failures have other causes: in the tables beside this page."
