"""What a report is made of: deliveries, failures and dead letters, from an archive or from queues.

Knows: which columns are read of each, that one report sees one end of the history.
Does not know: what is computed of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from embedq.errors import InvalidOption
from embedq.spark.places import open_place
from embedq.spark.reading import Reading, parse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DELIVERIES: Final = (
    "queue string, id string, `group` string, attempt int, worker string, "
    "started_at timestamp, ended_at timestamp, outcome string, put_at timestamp"
)
FAILURES: Final = (
    "queue string, id string, `group` string, ended_at timestamp, outcome string, "
    "error_type string, error_message string, error_traceback string"
)
LETTERS: Final = (
    "queue string, id string, `group` string, died_at timestamp, reason string, detail string, "
    "error_type string, error_message string, error_traceback string"
)
#: Outcomes that are failures.
FAILING: Final = ("failed", "timed_out", "crashed", "dead")
#: Options of a source that say something about one feed only.
_OF_ONE_FEED: Final = ("states", "startingOffsets", "endingOffsets")
#: Options that a report does without: it reads three feeds, once, to their ends.
_UNUSED: Final = ("include", "group", "maxhold", "maxoffsetspertrigger")


class Evidence(NamedTuple):
    """Three tables, and in words what they are of. `letters` None: the archive has none."""

    deliveries: DataFrame
    failures: DataFrame
    letters: DataFrame | None
    source: str


def evidence(spark: SparkSession, source: str | Path | Mapping[str, str]) -> Evidence:
    """Find what a report is made of; nothing is read yet but how far the history goes.

    Raises InvalidOption for a folder that is no archive and for options that fit one feed only,
    and what reading the queues raises.
    """
    if isinstance(source, Mapping):
        return _of_queues(spark, source)
    return _of_archive(spark, Path(source).resolve())


def _of_archive(spark: SparkSession, folder: Path) -> Evidence:
    history, dead = folder / "history", folder / "dead"
    checkpoint = folder / "_checkpoint"
    if not any(there.is_dir() for there in (history, dead, checkpoint)):
        raise InvalidOption(
            f"{str(folder)!r} is no archive: it has neither history/ nor dead/",
            hint="name the folder that archive() was given, or the options of the source",
            argument="source",
        )

    def rows(of: Path, schema: str) -> DataFrame:
        if not of.is_dir():  # archived, and there was nothing
            return spark.createDataFrame([], schema)
        return spark.read.schema(schema).parquet(str(of))

    failures = rows(history, FAILURES)
    # What was archived of dead letters stays there when they are redriven: it is what has died.
    asked = dead.is_dir() or (checkpoint / "dead").is_dir()
    return Evidence(
        rows(history, DELIVERIES),
        failures.where(failures.outcome.isin(*FAILING)),
        rows(dead, LETTERS) if asked else None,
        f"the archive {folder.name}",
    )


def _of_queues(spark: SparkSession, options: Mapping[str, str]) -> Evidence:
    given = {name.lower(): value for name, value in options.items()}
    for option in _OF_ONE_FEED:
        if given.get(option.lower()):
            raise InvalidOption(
                f"a report of {option}={given[option.lower()]!r} cannot be made: it is made of "
                "deliveries and of dead letters, whose states and offsets differ",
                hint="leave it out; startingTimestamp and endingTimestamp choose a time",
                argument=option,
            )
    given = {name: value for name, value in given.items() if name not in _UNUSED}
    reading = parse({**given, "include": "history"})
    # Deliveries and their errors are read one after another: both up to what has ended now.
    history = {**given, "include": "history", "endingoffsets": f'{{"seq": {_end(reading)}}}'}

    def rows(schema: str, **more: str) -> DataFrame:
        return spark.read.format("embedq").options(**{**history, **more}).schema(schema).load()

    return Evidence(
        rows(DELIVERIES),
        rows(FAILURES, states=",".join(FAILING)),
        rows(LETTERS, include="dead", endingoffsets="latest"),
        _in_words(reading),
    )


def _end(reading: Reading) -> int:
    from embedq.spark.ranges import choose  # noqa: PLC0415  # loads pyspark

    with open_place(reading) as place:
        return choose(place, reading).survey.extent.head


def _in_words(reading: Reading) -> str:
    """Say what is read; without the folder, for a report is passed on."""
    place = Path(reading.path).name if reading.path is not None else reading.endpoint
    if reading.pattern is not None:
        return f"queues like {reading.pattern} in {place}"
    many = "queue" if len(reading.names) == 1 else "queues"
    return f"{many} {', '.join(reading.names)} in {place}"
