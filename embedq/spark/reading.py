"""The options of the source: read, checked, and named when they are wrong.

Knows: every option for reading, its default, what it accepts.
Does not know: PySpark, where the rows come from, what an offset leads to.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Final, Literal, NamedTuple, TypeVar, cast

from embedq.clock import parse_duration
from embedq.errors import InvalidName, InvalidOption, shown
from embedq.lifecycle import Outcome, Reason
from embedq.names import check_group_name, check_queue_name
from embedq.storage.feed import Feed

T = TypeVar("T")
Start = Literal["earliest", "latest", "committed"]

#: Rows that one task reads, unless told otherwise.
ROWS_PER_PARTITION: Final = 250_000
_SEQ_MAX: Final = (1 << 63) - 1

#: Options for reading, as they are written; options of the sink may be among them.
OPTIONS: Final = (
    "endpoint path keys subscribe subscribePattern include startingOffsets endingOffsets "
    "startingTimestamp endingTimestamp maxOffsetsPerTrigger minPartitions maxRecordsPerPartition "
    "failOnDataLoss group maxHold states"
).split()
_OF_THE_SINK: Final = "queue sinkId batchId mode olderBatches".split()
_FEEDS: Final = ("messages", "history", "dead")


class Reading(NamedTuple):
    """What is to be read, as the options say.

    `start`, `end`: a word, or the offset after which reading starts and up to which it goes.
    `states`: outcomes by number for the history, reasons for dead letters. `max_hold_s` None:
    for ever.
    """

    endpoint: str | None
    path: str | None
    keys: str | None
    names: tuple[str, ...]
    pattern: str | None
    feed: Feed
    start: Start | int | None
    end: int | None
    since_ms: int | None
    until_ms: int | None
    per_trigger: int | None
    min_partitions: int
    per_partition: int
    fails_on_loss: bool
    group: str | None
    max_hold_s: float | None
    states: tuple[int | str, ...]

    def chooses(self, name: str) -> bool:
        """Whether a queue is among those that are read."""
        if self.pattern is not None:
            return re.fullmatch(self.pattern, name) is not None
        return name in self.names


def wrong(option: str, value: object, must: str) -> InvalidOption:
    """Return the error of an option: its value, and what it should be."""
    return InvalidOption(
        f"{option}={shown(value)} {must}",
        hint=f"correct the option `{option}`; docs/guide-spark.md lists them all",
        argument=option,
    )


def parse(options: Mapping[str, str]) -> Reading:
    """Read the options of a source. Names count without case. Raises InvalidOption."""
    given = {name.lower(): value for name, value in options.items()}
    _check_names(given)
    endpoint, path = _text(given, "endpoint"), _text(given, "path")
    if endpoint is None and path is None:
        raise InvalidOption(
            "neither endpoint nor path says where the queues are",
            hint="set the option `endpoint` (what Broker takes) or `path` (the database file, on "
            "the same machine); queue.spark_options() has them",
            argument="endpoint",
        )
    feed = _one_of(given, "include", _FEEDS, "messages")
    names, pattern = _queues(given)
    return Reading(
        endpoint=endpoint,
        path=path,
        keys=_text(given, "keys"),
        names=names,
        pattern=pattern,
        feed=cast("Feed", feed),
        start=_start(given),
        end=_end(given),
        since_ms=_number(given, "startingTimestamp", 0),
        until_ms=_number(given, "endingTimestamp", 0),
        per_trigger=_number(given, "maxOffsetsPerTrigger", 1),
        min_partitions=_number(given, "minPartitions", 1) or 1,
        per_partition=_number(given, "maxRecordsPerPartition", 1) or ROWS_PER_PARTITION,
        fails_on_loss=_one_of(given, "failOnDataLoss", ("true", "false"), "true") == "true",
        group=_group(given, endpoint),
        max_hold_s=_duration(given, "maxHold"),
        states=_states(given, feed),
    )


def _check_names(given: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in (*OPTIONS, *_OF_THE_SINK)}
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, 1)
            raise InvalidOption(
                f"{name} is no option of the source",
                hint=f"did you mean `{known[near[0]]}`?"
                if near
                else "leave it out; there are " + ", ".join(OPTIONS),
                argument=name,
            )


def _text(given: Mapping[str, str], option: str) -> str | None:
    return given.get(option.lower()) or None


def _one_of(given: Mapping[str, str], option: str, accepted: tuple[str, ...], default: str) -> str:
    value = (_text(given, option) or default).lower()
    if value not in accepted:
        raise wrong(option, value, f"is none of {', '.join(accepted)}")
    return value


def _number(given: Mapping[str, str], option: str, low: int) -> int | None:
    text = _text(given, option)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or not low <= int(text) <= _SEQ_MAX:
        raise wrong(option, text, f"is not a whole number from {low}")
    return int(text)


def _duration(given: Mapping[str, str], option: str) -> float | None:
    text = _text(given, option)
    return (
        None
        if text is None
        else _or_wrong(option, text, lambda value: parse_duration(value, option))
    )


def _or_wrong(option: str, text: str, read: Callable[[str], T]) -> T:
    try:
        return read(text)
    except (InvalidOption, InvalidName) as error:
        raise wrong(option, text, f"cannot be read: {error.message}") from error


def _queues(given: Mapping[str, str]) -> tuple[tuple[str, ...], str | None]:
    listed, pattern = _text(given, "subscribe"), _text(given, "subscribePattern")
    if (listed is None) == (pattern is None):
        raise InvalidOption(
            "subscribe and subscribePattern exclude each other"
            if listed
            else "neither subscribe nor subscribePattern says which queues are read",
            hint="set the option `subscribe` to a queue, or to several with commas between them",
            argument="subscribe",
        )
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise wrong("subscribePattern", pattern, f"is no pattern: {error}") from error
        return (), pattern
    names = tuple(dict.fromkeys(name.strip() for name in (listed or "").split(",")))
    for name in names:
        _or_wrong("subscribe", name, check_queue_name)
    return names, None


def _group(given: Mapping[str, str], endpoint: str | None) -> str | None:
    group = _text(given, "group")
    if group is not None and endpoint is None:
        raise InvalidOption(
            f"group={shown(group)} needs the option `endpoint`: only a host keeps messages for it",
            hint="set `endpoint` as well; rows are still read by `path` where that is set",
            argument="group",
        )
    return None if group is None else _or_wrong("group", group, check_group_name)


def _offset(option: str, text: str) -> int:
    """Read an offset as it stands in a checkpoint: {"v": 1, "seq": n}, the "v" may be absent."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    seq = value.get("seq") if isinstance(value, dict) and value.get("v", 1) == 1 else None
    if type(seq) is not int or not 0 <= seq <= _SEQ_MAX:
        raise wrong(option, text, 'is no offset: write {"seq": 1234}')
    return seq


def _start(given: Mapping[str, str]) -> Start | int | None:
    text = _text(given, "startingOffsets")
    if text is None:
        return None
    if text.lower() in {"earliest", "latest", "committed"}:
        word = cast("Start", text.lower())
        if word == "committed" and _text(given, "group") is None:
            raise wrong("startingOffsets", word, "needs the option `group`")
        return word
    return _offset("startingOffsets", text)


def _end(given: Mapping[str, str]) -> int | None:
    text = _text(given, "endingOffsets")
    return None if text is None or text.lower() == "latest" else _offset("endingOffsets", text)


def _states(given: Mapping[str, str], feed: str) -> tuple[int | str, ...]:
    text = _text(given, "states")
    if text is None:
        return ()
    if feed == "messages":
        raise wrong("states", text, "is only for include=history and include=dead")
    known: dict[str, int | str]
    if feed == "history":
        known = {outcome.name.lower(): int(outcome) for outcome in Outcome}
    else:
        known = {str(reason): str(reason) for reason in Reason}
    names = [name.strip().lower() for name in text.split(",")]
    for name in names:
        if name not in known:
            raise wrong("states", name, f"is none of {', '.join(known)}")
    return tuple(known[name] for name in names)
