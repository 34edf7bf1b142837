"""From the options of a call to what the broker room understands.

Knows: how durations and times are written, which options a queue and a put have.
Does not know: what they do.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from datetime import datetime
from difflib import get_close_matches
from typing import TypedDict

from embedq.clock import parse_duration
from embedq.errors import InvalidOption, InvalidPayload, shown
from embedq.message import Draft, draft
from embedq.payload import encode
from embedq.policy import Duration, QueuePolicy, RetryPolicy, WhenFull

#: A time: a datetime with its zone, or seconds since 1970.
At = datetime | float


class QueueOptions(TypedDict, total=False):
    """Settings that are stored with a queue. `max_attempts` None is endless."""

    max_attempts: int | None
    max_crashes: int
    lease: Duration
    retain: Duration | None
    dedup_window: Duration
    max_length: int | None
    when_full: WhenFull


class PutOptions(TypedDict, total=False):
    """What a message may have beside its body. `max_attempts` None is endless."""

    delay: Duration | None
    at: At | None
    ttl: Duration | None
    priority: int
    dedup_key: str | None
    ordering_key: str | None
    max_attempts: int | None
    headers: Mapping[str, str] | None


class ConsumerOptions(TypedDict, total=False):
    """How a consumer runs."""

    group: str
    concurrency: int
    timeout: Duration | None
    batch: int | None
    linger: Duration | None
    pool: str | None
    retry: RetryPolicy | None
    compete: bool
    name: str | None


def check_known(call: str, options: Mapping[str, object], known: type) -> None:
    """Raise InvalidOption for an option that a call does not have."""
    names = known.__annotations__
    unknown = options.keys() - names.keys()
    if unknown:
        name = min(unknown)
        near = get_close_matches(name, names, 1)
        raise InvalidOption(
            f"{call} has no option {name!r}",
            hint=f"did you mean {near[0]}=?" if near else f"options are {', '.join(names)}",
            argument=name,
        )


def policy_changes(retry: RetryPolicy | None, options: QueueOptions) -> dict[str, object]:
    """Return the fields of QueuePolicy that are said explicitly; errors name the option."""
    check_known("broker.queue", options, QueueOptions)
    changes: dict[str, object] = {}
    if retry is not None:
        if not isinstance(retry, RetryPolicy):
            raise InvalidOption(
                f"retry={shown(retry)} is not a RetryPolicy",
                hint="write retry=RetryPolicy(max_attempts=3)",
                argument="retry",
            )
        changes["max_attempts"] = retry.stored_max_attempts
    for name, value in options.items():
        if name in {"lease", "dedup_window"}:
            changes[f"{name}_ms"] = _ms(value, name)
        elif name == "retain":
            changes["retain_ms"] = None if value is None else _ms(value, name)
        elif name == "max_attempts":
            changes[name] = 0 if value is None else value
        else:
            changes[name] = value
    QueuePolicy().changed(**changes)  # refuses what is wrong, here at the call
    return changes


def _ms(value: object, what: str) -> int:
    return round(parse_duration(value, what) * 1000)  # type: ignore[arg-type]  # it checks


def wait_s(timeout: Duration | None) -> float | None:
    """Return how long to wait, in seconds; None is for ever."""
    return None if timeout is None else parse_duration(timeout, "timeout")


class Encoder:
    """Makes bodies of objects, for a queue whose messages are of one type (or any)."""

    __slots__ = ("_kinds", "_queue", "_wanted")

    def __init__(self, queue: str, wanted: object) -> None:
        self._queue = queue
        self._wanted = wanted
        self._kinds = _classes(wanted)

    def __call__(self, body: object) -> tuple[int, bytes]:
        """Return (kind, bytes). Raises InvalidPayload for what is not of the queue's type."""
        if self._kinds is not None and not isinstance(body, self._kinds):
            raise InvalidPayload(
                f"queue {self._queue!r} takes {shown(self._wanted)}, not {type(body).__name__}",
                hint="put an object of the queue's type, or declare the queue with another one",
            )
        return encode(body)


def _classes(kind: object) -> tuple[type, ...] | None:
    """Return what an object must be an instance of; None if only decoding can tell."""
    if kind is None or kind is object or not inspect.isclass(kind):
        return None
    if hasattr(kind, "__origin__"):  # list[int]: its class says too little
        return None
    if kind is float:
        return (float, int)
    if kind is bytes:
        return (bytes, bytearray, memoryview)
    return (kind,)


def make_draft(kind: int, body: bytes, now_ms: int, window_ms: int, options: PutOptions) -> Draft:
    """Return a checked draft, put at `now_ms`; errors name the option.

    `window_ms`: how long a dedup key is remembered.
    """
    check_known("put", options, PutOptions)
    ttl = options.get("ttl")
    available = _available(options.get("delay"), options.get("at"), now_ms)
    expires = None if ttl is None else now_ms + _ms(ttl, "ttl")
    if expires is not None and available is not None and expires <= available:
        raise InvalidOption(
            "the message would expire before it is available",
            hint="ttl counts from the put: choose one longer than the delay",
            argument="ttl",
        )
    attempts: int | None = None
    if "max_attempts" in options:
        attempts = options["max_attempts"]
        if attempts == 0:
            raise InvalidOption("max_attempts=0", hint="None is endless", argument="max_attempts")
        attempts = attempts or 0
    return draft(
        body,
        kind,
        options.get("headers"),
        priority=options.get("priority", 0),
        available_at_ms=available,
        expires_at_ms=expires,
        dedup_key=options.get("dedup_key"),
        dedup_window_ms=window_ms,
        ordering_key=options.get("ordering_key"),
        max_attempts=attempts,
        now_ms=now_ms,
    )


def _available(delay: Duration | None, at: At | None, now_ms: int) -> int | None:
    if delay is not None:
        if at is not None:
            raise InvalidOption("delay= and at= were both given", hint="say one", argument="at")
        return now_ms + _ms(delay, "delay")
    if at is None:
        return None
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise InvalidOption(
                f"at={at.isoformat()} has no time zone",
                hint="use datetime.now(UTC), or give tzinfo=",
                argument="at",
            )
        return max(0, round(at.timestamp() * 1000))
    if type(at) not in (int, float):
        raise InvalidOption(
            f"at={shown(at)} is not a time",
            hint="give a datetime with a time zone, or seconds since 1970",
            argument="at",
        )
    return max(0, round(at * 1000))
