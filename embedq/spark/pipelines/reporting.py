"""Report: what is slow and why does it fail, as tables, plots and one page.

Knows: the order of the work, where each file goes.
Does not know: how anything is computed or shown.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from embedq.clock import SystemClock
from embedq.spark.needs import need
from embedq.spark.pipelines.folders import local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from embedq.spark.pipelines.reports.figures import Measured

PAGE: Final = "report.html"
#: Called with what comes next.
Progress = Callable[[str], None]


class Reported(NamedTuple):
    """Where a report is, and of how many deliveries and dead letters it is made."""

    page: Path
    plots: tuple[Path, ...]
    tables: tuple[Path, ...]
    deliveries: int
    letters: int


def report(
    spark: SparkSession,
    source: str | Path | Mapping[str, str],
    folder: str | Path,
    *,
    title: str = "Queue report",
    progress: Progress | None = None,
) -> Reported:
    """Write what the history of queues says to `folder`: a page, plots and tables.

    `source`: the folder of an archive, or the options of the source, from
    `queue.spark_options()`; with `startingTimestamp` and `endingTimestamp` of a time only. The
    history is there as far back as `retain=` of each queue says. `folder` gets `report.html`,
    which needs no other file, `plots/*.png`, and `tables/*.csv` and `*.parquet`; what an earlier
    report has left there is replaced. The rows are read once and kept by Spark while it computes,
    in memory or on disk. `progress` is called with what comes next, for people.

    Raises MissingExtra; InvalidOption for a source that is no archive, for `folder` that is no
    local path, and for options that cannot be; and what Spark raises for errors of the source.
    """
    need("pyspark", "pyarrow", "matplotlib", "jinja2")
    from embedq.spark.pipelines.reports.evidence import evidence  # noqa: PLC0415  # loads pyspark
    from embedq.spark.pipelines.reports.measuring import measure  # noqa: PLC0415  # loads pyspark

    target = local(folder)
    tell = progress if progress is not None else _silent
    measured = measure(evidence(spark, source), tell)
    tell("writing tables, plots and the page")
    return write_report(measured, target, title=title)


def write_report(measured: Measured, folder: Path, *, title: str) -> Reported:
    """Write everything that is shown of figures; the page last."""
    from embedq.spark.pipelines.reports import page, plots, tables  # noqa: PLC0415  # matplotlib

    folder.mkdir(parents=True, exist_ok=True)
    written = tables.write_tables(measured, folder / "tables")
    images = folder / "plots"
    images.mkdir(exist_ok=True)
    for old in images.glob("*.png"):
        old.unlink()
    pictures, paths = [], []
    for plot in plots.plots(measured):
        bright = plot.draw(plots.BRIGHT)
        paths.append(images / f"{plot.name}.png")
        paths[-1].write_bytes(bright)
        pictures.append(page.Picture(plot.title, plot.alt, bright, plot.draw(plots.DARK)))
    made = datetime.fromtimestamp(SystemClock.time(), UTC)
    whole = page.page(measured, pictures, title=title, made=made)
    # Whoever has the page open while it is replaced sees one or the other.
    beside = folder / f".{PAGE}.{os.getpid()}"
    beside.write_text(whole, encoding="utf-8", errors="backslashreplace")
    beside.replace(folder / PAGE)
    return Reported(
        folder / PAGE,
        tuple(paths),
        written,
        measured.total.deliveries,
        measured.letter_count,
    )


def _silent(_: str) -> None:
    """Say nothing."""
