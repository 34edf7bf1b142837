"""From the options of a call to what the broker room understands.

Knows: how durations and times are written, which options a queue and a put have.
Does not know: what they do.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Final, TypedDict

import msgspec

from embedq.clock import parse_duration
from embedq.errors import InvalidOption, InvalidPayload, LimitExceeded, shown
from embedq.ids import SEQ_MAX
from embedq.limits import LIMITS, Limits
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
    max_messages: int | None
    max_rss: int | str | None
    max_age: Duration | None
    spark: Callable[[], Any] | None


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


#: What fits into the fields of QueuePolicy that have other names: those with a time.
_SPANS: Final = {
    "lease": f"a lease has {LIMITS.lease_min_s:g} to {LIMITS.lease_max_s:g} seconds",
    "dedup_window": "a key is kept for 365 days at most",
    "retain": "messages are kept for 36500 days at most",
}


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
        field, stored = _stored(name, value)
        try:
            QueuePolicy().changed(**{field: stored})  # refuses what is wrong, here at the call
        except InvalidOption as error:
            # The policy has its own names and units: the caller knows neither.
            told = error.message if field == name else f"{name}={shown(value)}: {_SPANS[name]}"
            raise InvalidOption(told, hint=error.hint, argument=name) from error
        changes[field] = stored
    return changes


def _stored(name: str, value: object) -> tuple[str, object]:
    """Return an option of a queue as its policy has it."""
    if name in {"lease", "dedup_window"}:
        return f"{name}_ms", _ms(value, name)
    if name == "retain":
        return "retain_ms", None if value is None else _ms(value, name)
    if name == "max_attempts":
        return name, _attempts(value)
    return name, value


def _attempts(value: object) -> int:
    """Return a bound of attempts as it is stored, where 0 is what None is here: endless."""
    if value is None:
        return 0
    if type(value) is not int or not 1 <= value <= LIMITS.attempts_max:
        raise InvalidOption(
            f"max_attempts={shown(value)} is not a whole number from 1 to {LIMITS.attempts_max}",
            hint="None is endless",
            argument="max_attempts",
        )
    return value


def _ms(value: object, what: str) -> int:
    return round(parse_duration(value, what) * 1000)  # type: ignore[arg-type]  # it checks


def _until(value: object, what: str, now_ms: int) -> int:
    """Return the time that lies a duration ahead, at most a year."""
    ahead = _ms(value, what)
    if ahead > LIMITS.delay_max_s * 1000:
        raise _too_far(what, value)
    return now_ms + ahead


def _too_far(what: str, value: object) -> InvalidOption:
    days = LIMITS.delay_max_s / 86_400
    return InvalidOption(
        f"{what}={shown(value)} is farther away than {days:g} days",
        hint="a larger one is mostly a wrong unit: numbers are seconds",
        argument=what,
    )


def wait_s(timeout: Duration | None) -> float | None:
    """Return how long to wait, in seconds; None is for ever."""
    return None if timeout is None else parse_duration(timeout, "timeout")


#: What somebody passes who means something else than the type of bodies.
_VALUES: Final = (
    *(str, bytes, int, float, dict, list, tuple, set, RetryPolicy),
    msgspec.Struct,  # an object: the class is no instance of itself
)


def _is_value(wanted: object) -> bool:
    """Whether it is a body, or a function, and no type of bodies."""
    if isinstance(wanted, _VALUES) or inspect.isroutine(wanted):
        return True
    # Dataclasses and models of pydantic: what has these is the class, so this is its object.
    return hasattr(type(wanted), "__dataclass_fields__") or hasattr(type(wanted), "model_validate")


class Encoder:
    """Makes bodies of objects, for a queue whose messages are of one type (or any)."""

    __slots__ = ("_kinds", "_wanted", "queue")

    def __init__(self, queue: str, wanted: object) -> None:
        """Raise InvalidOption for a value, or a function, in the place of a type."""
        if _is_value(wanted):
            raise InvalidOption(
                f"queue {queue!r}: type={shown(wanted)} is not a type",
                hint='write broker.queue("orders", Order): the class itself, dict, list[int], …',
                argument="type",
            )
        self.queue = queue
        self._wanted = wanted
        self._kinds = _classes(wanted)

    def __call__(self, body: object) -> tuple[int, bytes]:
        """Return (kind, bytes). Raises InvalidPayload for what is not of the queue's type."""
        if self._kinds is not None and not isinstance(body, self._kinds):
            raise InvalidPayload(
                f"queue {self.queue!r} takes {_name(self._wanted)}, not {type(body).__name__}",
                hint="put an object of the queue's type, or declare the queue with another one",
            )
        try:
            return encode(body)
        except InvalidPayload as error:
            text = f"queue {self.queue!r}: {error.message}"
            raise InvalidPayload(text, hint=error.hint) from error


def _name(kind: object) -> str:
    return kind.__qualname__ if isinstance(kind, type) else shown(kind)


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
    expires = None if ttl is None else _until(ttl, "ttl", now_ms)
    if expires == now_ms:
        raise InvalidOption(
            f"ttl={shown(ttl)}: the message would be dead at once",
            hint="leave it out: None lets a message live for ever",
            argument="ttl",
        )
    if expires is not None and available is not None and expires <= available:
        raise InvalidOption(
            "the message would expire before it is available",
            hint="ttl counts from the put: choose one longer than the delay",
            argument="ttl",
        )
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
        max_attempts=_attempts(options["max_attempts"]) if "max_attempts" in options else None,
        now_ms=now_ms,
    )


def _available(delay: Duration | None, at: At | None, now_ms: int) -> int | None:
    if delay is not None:
        if at is not None:
            raise InvalidOption("delay= and at= were both given", hint="say one", argument="at")
        return _until(delay, "delay", now_ms)
    if at is None:
        return None
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise InvalidOption(
                f"at={at.isoformat()} has no time zone",
                hint="use datetime.now(UTC), or give tzinfo=",
                argument="at",
            )
        seconds = at.timestamp()
    elif type(at) is int or (type(at) is float and math.isfinite(at)):
        seconds = at
    else:
        raise InvalidOption(
            f"at={shown(at)} is not a time",
            hint="give a datetime with a time zone, or seconds since 1970",
            argument="at",
        )
    if seconds * 1000 > now_ms + LIMITS.delay_max_s * 1000:
        raise _too_far("at", at)
    return max(0, round(seconds * 1000))


def make_drafts(
    encode_body: Encoder,
    bodies: Iterable[object],
    options: PutOptions,
    limits: Limits,
    now_ms: int,
    window_ms: int,
) -> list[Draft]:
    """Return the checked drafts of one put_many; errors name the queue and what is wrong."""
    queue = encode_body.queue
    drafts: list[Draft] = []
    size = 0
    key = options.get("dedup_key")
    for kind, data in _encoded(encode_body, bodies):
        if drafts and key is not None:
            raise InvalidOption(
                f"queue {queue!r}: dedup_key={shown(key)} would make one message of them",
                hint="a key belongs to one message: put each with its own",
                argument="dedup_key",
            )
        size += len(data)
        if len(drafts) >= limits.batch_messages or size > limits.batch_bytes:
            raise LimitExceeded(
                f"queue {queue!r}: one put_many is at most {limits.batch_messages} "
                f"messages and {limits.batch_bytes} bytes",
                hint="put them in parts: each put_many is one transaction",
            )
        if options or len(data) > limits.body_bytes:
            drafts.append(make_draft(kind, data, now_ms, window_ms, options))
        else:
            drafts.append(Draft(data, kind))
    return drafts


def _encoded(encode_body: Encoder, bodies: Iterable[object]) -> Iterator[tuple[int, bytes]]:
    try:
        stream = None if isinstance(bodies, str | bytes | Mapping) else iter(bodies)
    except TypeError:
        stream = None
    if stream is None:
        raise InvalidOption(
            f"queue {encode_body.queue!r}: put_many takes an iterable of bodies, not one "
            f"{type(bodies).__name__}",
            hint="put_many([body]), or put(body)",
            argument="bodies",
        )
    for number, body in enumerate(stream, 1):
        try:
            yield encode_body(body)
        except InvalidPayload as error:
            if number == 1:
                raise
            text = f"{error.message} (body number {number} of the call)"
            raise InvalidPayload(text, hint=error.hint) from error


# --------------------------------------------------------------------- small arguments


def check_flag(value: object, argument: str) -> None:
    """Raise InvalidOption unless `value` is True or False."""
    if type(value) is not bool:
        raise InvalidOption(
            f"{argument}={shown(value)} is not True or False",
            hint=f"write {argument}=True, or leave it out",
            argument=argument,
        )


def check_most(most: object, limits: Limits) -> None:
    """Raise InvalidOption unless `most` is a number of messages that one call may have."""
    if type(most) is not int or not 1 <= most <= limits.batch_messages:
        raise InvalidOption(
            f"most={shown(most)} is not a whole number from 1 to {limits.batch_messages}",
            hint="ask again for more: each call takes so many at most",
            argument="most",
        )


def check_after(after: object) -> None:
    """Raise InvalidOption unless `after` is a seq, or 0."""
    if type(after) is not int or not 0 <= after <= SEQ_MAX:
        raise InvalidOption(
            f"after={shown(after)} is not the seq of a message",
            hint="give message.seq of the last one seen, or 0",
            argument="after",
        )
