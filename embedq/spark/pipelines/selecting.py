"""Which messages of the past are meant: by queue, time, outcome and cause; and their bodies.

Knows: how messages, dead letters and the history are read, from queues or from an archive, and the
position of each message in what it was chosen from.
Does not know: what is done with them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from embedq.errors import InvalidOption, NotRetained, shown
from embedq.lifecycle import Outcome
from embedq.spark.pipelines.causes import marked
from embedq.spark.places import open_place
from embedq.spark.reading import parse, wrong
from embedq.storage.feed import Feed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The queues that messages come from: options of the source, or the folder of an archive.
Source = str | Path | Mapping[str, str]
#: A moment, or so long ago.
Moment = datetime | timedelta

#: What a message takes along.
KEPT: Final = "queue id key kind body headers priority".split()
_TYPES: Final = {
    "seq": "long",
    "queue": "string",
    "id": "string",
    "key": "string",
    "kind": "string",
    "body": "binary",
    "headers": "map<string,string>",
    "priority": "int",
    "put_at": "timestamp",
    "closed": "long",
    "number": "long",
    "outcome": "string",
    "reason": "string",
    "detail": "string",
    "error_type": "string",
    "error_message": "string",
    "error_traceback": "string",
}
_ERROR: Final = "error_type error_message error_traceback".split()
_MESSAGE: Final = [*KEPT, "put_at"]


@dataclass(frozen=True)
class Choice:
    """What is chosen. Without outcomes and fingerprints: all messages that are there.

    `dead`: among the dead letters. `outcomes`: among the deliveries of the history that ended so;
    a message is chosen once, however many of them it has. `fingerprints`: of the errors.
    """

    queues: tuple[str, ...] = ()
    since: Moment | None = None
    until: Moment | None = None
    dead: bool = False
    outcomes: tuple[str, ...] = ()
    fingerprints: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        queues: Sequence[str],
        since: Moment | None,
        until: Moment | None,
        *,
        dead: bool,
        outcomes: Sequence[str],
        fingerprints: Sequence[str],
    ) -> Choice:
        """Check what was said. Raises InvalidOption."""
        for name, texts in (
            ("queues", queues),
            ("outcomes", outcomes),
            ("fingerprints", fingerprints),
        ):
            if isinstance(texts, str):
                raise wrong(name, texts, "is a text, not several")
        known = [outcome.name.lower() for outcome in Outcome]
        for outcome in outcomes:
            if outcome not in known:
                raise wrong("outcomes", outcome, f"is none of {', '.join(known)}")
        if dead and outcomes:
            raise InvalidOption(
                "dead=True and outcomes exclude each other",
                hint='leave out one: outcomes=["dead"] are deliveries, dead=True is what is still '
                "a dead letter",
                argument="dead",
            )
        for name, moment in (("since", since), ("until", until)):
            _check_moment(name, moment)
        # A fingerprint is what triage() gives: a cause of dead letters.
        return cls(
            tuple(sorted(set(queues))),
            since,
            until,
            dead or bool(fingerprints and not outcomes),
            tuple(sorted(set(outcomes))),
            tuple(sorted(set(fingerprints))),
        )

    @property
    def feed(self) -> Feed:
        """Where they are chosen from."""
        if self.outcomes:
            return "history"
        return "dead" if self.dead else "messages"

    def name(self, place: str) -> str:
        """Return a name for this choice from a place: the same for the same, as it was said.

        "An hour ago" is the same tomorrow, though it chooses others.
        """
        said = repr((place, self.queues, self.since, self.until, self.feed, self.outcomes))
        return sha256(f"{said}{self.fingerprints}".encode()).hexdigest()[:16]


def _check_moment(name: str, moment: object) -> None:
    if moment is None or isinstance(moment, timedelta):
        return
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise InvalidOption(
            f"{name}={shown(moment)} is neither a moment with a time zone nor a timedelta",
            hint="write datetime(2027, 1, 31, tzinfo=UTC), or timedelta(hours=1): so long ago",
            argument=name,
        )


def _ms(moment: Moment | None, now: datetime) -> int | None:
    if moment is None:
        return None
    at = now - moment if isinstance(moment, timedelta) else moment
    return max(round(at.astimezone(UTC).timestamp() * 1000), 0)


class Past:
    """What there is to choose from: the feeds of queues, or what an archive has kept of them."""

    def __init__(self, spark: SparkSession, source: Source) -> None:
        self._spark = spark
        self._options: dict[str, str] | None = None
        self._folder: Path | None = None
        #: Queues that keep nothing that is settled.
        self.fleeting: list[str] = []
        if isinstance(source, Mapping):
            self._options = {name.lower(): value for name, value in source.items()}
        else:
            self._folder = _folder(source)

    @property
    def place(self) -> str:
        """Where that is, as a text."""
        if self._options is None:
            return str(self._folder)
        given = self._options
        where = given.get("endpoint") or given.get("path", "")
        return f"{where} {given.get('subscribe') or given.get('subscribepattern')}"

    def queues(self, choice: Choice) -> list[str]:
        """Return the queues that are read. Raises QueueNotFound, InvalidOption, NotRetained."""
        if self._options is None:
            return self._archived(choice)
        from embedq.spark.ranges import choose  # noqa: PLC0415  # loads pyspark

        reading = parse({**self._options, "include": choice.feed})
        with open_place(reading) as place:
            chosen = choose(place, reading)
        names = {chosen.survey.queues[number]: number for number in chosen.queues}
        missing = set(choice.queues) - names.keys()
        if missing:
            raise wrong("queues", min(missing), "is not among the queues of the source")
        found = [name for name in names if not choice.queues or name in choice.queues]
        self.fleeting = [name for name in found if names[name] not in chosen.survey.retained]
        if choice.feed == "history" and self.fleeting:
            raise NotRetained(
                f"queue {self.fleeting[0]!r} keeps no history, so nothing says how its deliveries "
                "have ended",
                hint="give the queue retain= for the next time; dead letters are kept without it",
            )
        return found

    def _archived(self, choice: Choice) -> list[str]:
        from pyspark.sql import functions as f  # noqa: PLC0415  # whoever has a session has it

        rows = self.feed(choice.feed, ["queue"])
        found = rows.agg(f.collect_set("queue")).head()
        assert found is not None  # noqa: S101  # an aggregate without groups has one row
        names = sorted(found[0])
        missing = set(choice.queues) - set(names)
        if missing:
            raise wrong(
                "queues", min(missing), f"is not in {self._folder}, which has {', '.join(names)}"
            )
        return [name for name in names if not choice.queues or name in choice.queues]

    def feed(self, feed: Feed, columns: Sequence[str], since_ms: int | None = None) -> DataFrame:
        """Return rows of a feed. `since_ms`: nothing older is needed."""
        if self._options is None:
            return self._parquet(feed).select(*columns)
        given = {**self._options, "include": feed}
        if since_ms is not None:
            given["startingtimestamp"] = str(since_ms)
        schema = ", ".join(f"`{name}` {_TYPES[name]}" for name in columns)
        return self._spark.read.format("embedq").options(**given).schema(schema).load()

    def _parquet(self, feed: Feed) -> DataFrame:
        folder = cast("Path", self._folder) / feed
        if not any(folder.glob("batch=*")):
            raise InvalidOption(
                f"the archive {self._folder} has no {feed}",
                hint=f'write them with archive(…, include="{feed}"), or correct the folder',
                argument="source",
            )
        return self._spark.read.parquet(str(folder))


def _folder(source: object) -> Path:
    if not isinstance(source, str | Path) or "://" in str(source):
        raise InvalidOption(
            f"source={shown(source)} is neither a folder nor options of the source",
            hint="give queue.spark_options(), or the folder that archive() has written",
            argument="source",
        )
    folder = Path(source).resolve()
    if not folder.is_dir():
        raise InvalidOption(
            f"there is no folder {folder}",
            hint="name the one that archive() has written",
            argument="source",
        )
    return folder


def select(past: Past, choice: Choice, now: datetime) -> DataFrame:
    """Return the chosen messages: the columns KEPT, `position`, and `put_at`.

    `position` only rises: what is chosen later by the same choice comes after everything that is
    chosen now. `body` is NULL where the history knows a message that is not kept any more.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415  # whoever has a session has it

    since, until = _ms(choice.since, now), _ms(choice.until, now)
    if choice.feed == "history":
        rows = _delivered(past, choice)
    elif choice.feed == "dead":
        wanted = [*_MESSAGE, "number"]
        if choice.fingerprints:
            wanted += ["reason", "detail", *_ERROR]
        letters = past.feed("dead", wanted)
        if choice.fingerprints:
            found = marked(letters, "reason", "detail")
            letters = found.where(found.fingerprint.isin(list(choice.fingerprints)))
        # A message that has died in several groups is chosen once.
        first = [f.min_by(name, "number").alias(name) for name in _MESSAGE if name != "id"]
        rows = letters.groupBy("id").agg(*first, f.min("number").alias("position"))
    else:
        rows = past.feed("messages", ["seq", *_MESSAGE], since).withColumnRenamed(
            "seq", "position"
        )
    if choice.queues:
        rows = rows.where(f.col("queue").isin(list(choice.queues)))
    if since is not None:
        rows = rows.where(f.col("put_at") >= f.timestamp_millis(f.lit(since)))
    if until is not None:
        rows = rows.where(f.col("put_at") < f.timestamp_millis(f.lit(until)))
    return rows.select("position", *KEPT, "put_at")


def _delivered(past: Past, choice: Choice) -> DataFrame:
    """Return the messages with deliveries that ended as chosen, at the first one of them."""
    from pyspark.sql import functions as f  # noqa: PLC0415  # whoever has a session has it

    wanted = [
        "id",
        "queue",
        "closed",
        "outcome",
        "put_at",
        *(_ERROR if choice.fingerprints else ()),
    ]
    ended = past.feed("history", wanted)
    ended = ended.where(ended.outcome.isin(list(choice.outcomes)))
    if choice.fingerprints:
        found = marked(ended, "outcome", "outcome")
        ended = found.where(found.fingerprint.isin(list(choice.fingerprints)))
    firsts = ended.groupBy("id", "queue").agg(
        f.min("closed").alias("position"), f.min("put_at").alias("put_at")
    )
    bodies = past.feed("messages", [name for name in KEPT if name != "queue"])
    return firsts.join(bodies, "id", "left")
