"""The plots of a report: what they show, drawn by matplotlib, bright or dark.

Knows: matplotlib's figures (no pyplot, so nothing is left behind), colours, axes.
Does not know: pages, files' places, Spark.

Names of queues are texts of others: they are never read as formulas, and signs that the font
lacks are shown as boxes.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from embedq.spark.pipelines.reports.figures import OTHERS, Figures, Measured
from embedq.spark.pipelines.reports.wording import count, seconds, share, span, text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

    _Edges = np.ndarray[tuple[int], np.dtype[np.float64]]

#: Inches: two beside each other on a wide page, and readable on a narrow one.
_WIDE: Final = 5.6
_HIGH: Final = 3.1
_DPI: Final = 200
_SIZE: Final = 9.5
#: Queues with a colour of their own; and lines of a plot with one for each queue.
_COLOURED: Final = 6
_LINES: Final = 15
_NAME: Final = 24
_SHORT: Final = 14
#: Seconds: nothing shorter is told apart, and where an axis of times has its marks.
_LEAST_S: Final = 0.0001
_ROUND: Final = (1e-4, 1e-3, 0.01, 0.1, 1, 10, 60, 600, 3600, 36_000, 86_400, 864_000, 8_640_000)
#: Marks where fewer than three of those are in sight.
_FINE: Final = sorted(
    {n * mark for mark in (1e-4, 1e-3, 0.01, 0.1, 1, 60, 600, 3600, 36_000) for n in (1, 2, 5)}
    | {10, 20, 30, 1800, 86_400, 172_800, 432_000, 864_000, 8_640_000}
)
_FEW: Final = 3


class Ink(NamedTuple):
    """The colours of a plot. `series` differ in brightness, too, for those who see no colours."""

    ground: str
    text: str
    faint: str
    grid: str
    series: tuple[str, ...]
    others: str


BRIGHT: Final = Ink(
    "#ffffff",
    "#1b1f24",
    "#59636e",
    "#e3e6ea",
    ("#0b5cad", "#e07a1f", "#2a9d6e", "#b5387a", "#7a5fc0", "#a88a00"),
    "#a9b1ba",
)
DARK: Final = Ink(
    "#161b22",
    "#e6edf3",
    "#9aa5b1",
    "#2c333b",
    ("#5aa9f0", "#f0964a", "#4fc79a", "#ea7fb4", "#a993ea", "#d9bd3c"),
    "#5d6773",
)


class Plot(NamedTuple):
    """A plot: the name of its file, its title, what it shows in words, and how it is drawn."""

    name: str
    title: str
    alt: str
    draw: Callable[[Ink], bytes]


def plots(measured: Measured) -> list[Plot]:
    """Return the plots that there is something to show in."""
    made: list[Plot] = []
    if measured.spans:
        made += [_throughput(measured), _durations(measured)]
    if any(one.wait.p50 is not None or one.run.p50 is not None for one in measured.queues):
        made.append(_ranges(measured))
    if measured.total.unsuccessful and measured.spans:
        made.append(_failures(measured))
    if any(row.attempt > 1 for row in measured.attempts):
        made.append(_attempts(measured))
    return made


# ------------------------------------------------------------------------------------ plot by plot


def _throughput(measured: Measured) -> Plot:
    names = _busiest(measured)
    starts = _starts(measured)
    heights = {name: [0] * len(starts) for name in names}
    place = {start: n for n, start in enumerate(starts)}
    for one in measured.queue_spans:
        name = one.queue if one.queue in heights and one.queue is not None else OTHERS
        if one.since is not None:
            heights.setdefault(name, [0] * len(starts))[place[one.since]] += one.deliveries
    most = max(measured.spans, key=lambda one: one.deliveries)
    each = span(measured.span_s)

    def draw(axes: Axes, ink: Ink) -> None:
        each_one = iter(ink.series)
        colours = [ink.others if name == OTHERS else next(each_one) for name in heights]
        _stack(axes, ink, measured, heights, colours)
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))

    return Plot(
        "throughput",
        f"Deliveries that ended in each {each}, by queue",
        f"Bars over time, {len(starts)} in all; the highest has {count(most.deliveries)} "
        f"deliveries and begins at {most.since:%Y-%m-%d %H:%M} UTC.",
        _drawn(draw),
    )


def _durations(measured: Measured) -> Plot:
    known = {one.since: one for one in measured.spans}
    spans = [known.get(start, Figures()) for start in _starts(measured)]

    def draw(axes: Axes, ink: Ink) -> None:
        edges = _edges(measured)
        when = (edges[:-1] + edges[1:]) / 2
        lines: tuple[tuple[str, int, str, Callable[[Figures], float | None]], ...] = (
            ("wait, 99 of 100 within", 0, "-", lambda one: one.wait.p99),
            ("wait, half within", 0, ":", lambda one: one.wait.p50),
            ("run, 99 of 100 within", 1, "-", lambda one: one.run.p99),
            ("run, half within", 1, ":", lambda one: one.run.p50),
        )
        for label, colour, style, of in lines:
            values = [
                float("nan") if (v := of(one)) is None else max(v, _LEAST_S) for one in spans
            ]
            # A line through one point is none.
            mark = "o" if len(spans) < 3 else None  # noqa: PLR2004
            axes.plot(
                when, values, style, color=ink.series[colour], label=label, marker=mark, lw=1.6
            )
        _log_times(axes.yaxis, axes.set_yscale)
        _dates(axes, edges)
        _legend(axes, ink, 2)

    total = measured.total
    return Plot(
        "durations",
        "How long messages waited and deliveries ran",
        f"Lines over time on a logarithmic scale. Over all: half of the messages waited up to "
        f"{seconds(total.wait.p50)}, 99 of 100 up to {seconds(total.wait.p99)}; half of the "
        f"deliveries ran up to {seconds(total.run.p50)}, 99 of 100 up to "
        f"{seconds(total.run.p99)}.",
        _drawn(draw),
    )


def _ranges(measured: Measured) -> Plot:
    rows = sorted(measured.queues, key=lambda one: one.wait.total + one.run.total, reverse=True)
    rows = rows[:_LINES]

    def draw(axes: Axes, ink: Ink) -> None:
        for n, one in enumerate(rows):
            for colour, shift, times in ((0, -0.16, one.wait), (1, 0.16, one.run)):
                if times.p50 is None or times.p99 is None:
                    continue
                ends = [max(times.p50, _LEAST_S), max(times.p99, _LEAST_S)]
                axes.plot(ends, [n + shift] * 2, color=ink.series[colour], lw=3, alpha=0.55)
                axes.plot(ends[:1], [n + shift], "o", color=ink.series[colour], ms=5)
                axes.plot(ends[1:], [n + shift], "|", color=ink.series[colour], ms=9, mew=2)
        axes.set_yticks(range(len(rows)), [_name(one.queue) for one in rows], parse_math=False)
        axes.set_ylim(len(rows) - 0.4, -0.6)
        _log_times(axes.xaxis, axes.set_xscale)
        for colour, label in ((0, "wait"), (1, "run")):
            axes.plot([], [], "o-", color=ink.series[colour], lw=3, label=label)
        _legend(axes, ink, 2)

    return Plot(
        "queues",
        "From half (dot) to 99 of 100 (stroke), by queue",
        "One line for each queue, those first whose messages took the most time together: "
        + "; ".join(
            f"{_name(one.queue)} waits {seconds(one.wait.p50)} to {seconds(one.wait.p99)}, "
            f"runs {seconds(one.run.p50)} to {seconds(one.run.p99)}"
            for one in rows[:5]
        )
        + ".",
        _drawn(draw, _HIGH if len(rows) < 8 else _HIGH + 0.24 * (len(rows) - 7)),  # noqa: PLR2004
    )


def _failures(measured: Measured) -> Plot:
    starts = _starts(measured)
    kinds = ("failed", "timed_out", "crashed", "dead")
    heights: dict[str, list[int]] = {
        kind.replace("_", " "): [0] * len(starts)
        for kind in kinds
        if getattr(measured.total, kind)
    }
    place = {start: n for n, start in enumerate(starts)}
    for one in measured.spans:
        if one.since is not None:
            for kind in kinds:
                if kind.replace("_", " ") in heights:
                    heights[kind.replace("_", " ")][place[one.since]] = getattr(one, kind)
    total = measured.total

    def draw(axes: Axes, ink: Ink) -> None:
        colours = {"failed": 1, "timed out": 5, "crashed": 4, "dead": 3}
        _stack(axes, ink, measured, heights, [ink.series[colours[kind]] for kind in heights])
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))

    return Plot(
        "failures",
        f"Deliveries that failed in each {span(measured.span_s)}, by outcome",
        "Bars over time. In all: "
        + ", ".join(f"{count(getattr(total, k))} {k.replace('_', ' ')}" for k in kinds)
        + ".",
        _drawn(draw),
    )


def _attempts(measured: Measured) -> Plot:
    numbers = sorted({row.attempt for row in measured.attempts})
    done, dead, again = (
        [sum(getattr(row, kind) for row in measured.attempts if row.attempt == n) for n in numbers]
        for kind in ("acked", "dead", "again")
    )
    tried = [sum(parts) or 1 for parts in zip(done, dead, again, strict=True)]

    def draw(axes: Axes, ink: Ink) -> None:
        bottom = [0.0] * len(numbers)
        series = (("done", done, ink.series[2]), ("dead", dead, ink.series[3]))
        for label, values, colour in (*series, ("tried again", again, ink.others)):
            part = [100 * value / all_ for value, all_ in zip(values, tried, strict=True)]
            axes.bar(range(len(numbers)), part, 0.7, bottom, color=colour, label=label)
            bottom = [low + more for low, more in zip(bottom, part, strict=True)]
        names = [f"{n}.\n{count(number)}" for n, number in zip(numbers, tried, strict=True)]
        axes.set_xticks(range(len(numbers)), names)
        axes.set_xlim(-0.7, max(len(numbers), 4) - 0.3)
        axes.set_ylim(0, 100)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f} %"))
        _legend(axes, ink, 3)

    return Plot(
        "attempts",
        "What became of each attempt (below: how many there were)",
        "; ".join(
            f"attempt {n}: {share(done[i], tried[i])} done, {share(dead[i], tried[i])} dead"
            for i, n in enumerate(numbers)
        )
        + ".",
        _drawn(draw),
    )


# ---------------------------------------------------------------------------- parts of all plots


def _drawn(draw: Callable[[Axes, Ink], None], high: float = _HIGH) -> Callable[[Ink], bytes]:
    """Return what draws a plot as PNG."""

    def drawn(ink: Ink) -> bytes:
        figure = Figure((_WIDE, high), dpi=_DPI, facecolor=ink.ground, layout="constrained")
        canvas = FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        axes.set_facecolor(ink.ground)
        axes.tick_params(colors=ink.faint, labelsize=_SIZE, length=0)
        axes.grid(visible=True, color=ink.grid, lw=0.8)
        axes.set_axisbelow(True)
        for spine in axes.spines.values():
            spine.set_visible(False)
        draw(axes, ink)
        image = io.BytesIO()
        canvas.print_png(image, metadata={"Software": None})  # type: ignore[no-untyped-call]
        return image.getvalue()

    return drawn


def _stack(
    axes: Axes, ink: Ink, measured: Measured, heights: dict[str, list[int]], colours: list[str]
) -> None:
    """Draw steps over time, one part upon the other; one shape each, not one for each bar."""
    edges = _edges(measured)
    bottom = [0] * (len(edges) - 1)
    for (name, values), colour in zip(heights.items(), colours, strict=True):
        top = [low + more for low, more in zip(bottom, values, strict=True)]
        axes.stairs(top, edges, baseline=bottom, fill=True, color=colour, label=_name(name))
        bottom = top
    axes.set_ylim(0, max(1, *bottom) * 1.05)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: count(round(value))))
    _dates(axes, edges)
    _legend(axes, ink, 2 if max(map(len, heights)) > _SHORT else 3)


def _busiest(measured: Measured) -> list[str]:
    names = [one.queue for one in measured.queues if one.queue is not None]
    return names[:_COLOURED]


def _starts(measured: Measured) -> list[datetime]:
    """Return the beginnings of all spans from the first to the last, empty ones, too."""
    known = [one.since for one in measured.spans if one.since is not None]
    many = round((known[-1] - known[0]).total_seconds() / measured.span_s)
    return [known[0] + n * timedelta(seconds=measured.span_s) for n in range(many + 1)]


def _edges(measured: Measured) -> _Edges:
    """Return where spans begin, and where the last one ends, as matplotlib counts time."""
    starts = _starts(measured)
    end = starts[-1] + timedelta(seconds=measured.span_s)
    return np.asarray(date2num([*starts, end]))  # type: ignore[no-untyped-call]


def _dates(axes: Axes, edges: _Edges) -> None:
    axes.set_xlim(edges[0], edges[-1])
    locator = AutoDateLocator(minticks=3, maxticks=6)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    axes.grid(visible=False, axis="x")
    offset = axes.xaxis.get_offset_text()
    offset.set_fontsize(_SIZE)
    offset.set_color(axes.yaxis.get_tick_params()["labelcolor"])


def _log_times(axis: Axis, scale: Callable[[str], None]) -> None:
    scale("log")
    # Decades of seconds are no round minutes.
    low, high = axis.get_view_interval()
    in_sight = [mark for mark in _ROUND if low <= mark <= high]
    axis.set_major_locator(FixedLocator(_ROUND if len(in_sight) >= _FEW else _FINE))
    if len(in_sight) < _FEW:
        below = max((mark for mark in _FINE if mark <= low), default=low)
        above = min((mark for mark in _FINE if mark >= high), default=high)
        axis.set_view_interval(below, above, ignore=True)
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: seconds(value)))


def _legend(axes: Axes, ink: Ink, columns: int) -> None:
    made = axes.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        ncols=columns,
        frameon=False,
        fontsize=_SIZE - 0.5,
        labelcolor=ink.text,
        handlelength=1.2,
        columnspacing=1.2,
        borderaxespad=0.2,
    )
    for label in made.get_texts():
        label.set_parse_math(False)


@lru_cache(maxsize=1)
def _known() -> frozenset[int]:
    return frozenset(get_font(findfont(FontProperties())).get_charmap())


def _name(name: str | None) -> str:
    if name == OTHERS:
        return "all others"
    known = _known()
    return "".join(c if ord(c) in known else "□" for c in text(name, _NAME))
