"""A registered consumer: which function takes the messages of which group, and how.

Knows: the options of a consumer and their bounds, who else is registered for a group.
Does not know: how a consumer runs, the engine, messages.
"""

from __future__ import annotations

import random
import re
import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, ClassVar, Final, Protocol

from embedq.broker.redaction import Redact
from embedq.clock import parse_duration
from embedq.errors import DuplicateConsumer, InvalidOption, shown
from embedq.limits import LIMITS
from embedq.names import check_group_name, check_queue_name
from embedq.policy import RetryPolicy
from embedq.workers.harness import Harness, spark_harness
from embedq.workers.reference import refer
from embedq.workers.signature import Signature, described, read_signature, unreadable_part

Duration = str | float | timedelta

#: Threads of one consumer. More of them share one interpreter and only wait for each other.
THREADS_MAX: Final = 1_000
#: Tasks of one consumer on an event loop.
TASKS_MAX: Final = 10_000
_LINGER_MAX_S: Final = 3600.0
_AGE_LEAST_S: Final = 1.0
_RSS_LEAST: Final = 32 << 20
_SIZE: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMG]?i?B)\s*", re.IGNORECASE)
_UNITS: Final = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9} | {
    "KIB": 1 << 10,
    "MIB": 1 << 20,
    "GIB": 1 << 30,
}
#: Worker processes of one consumer.
PROCESSES_MAX: Final = 256
#: Attempts for which delays are drawn ahead; later ones wait like the last of them.
_DRAWN: Final = 16
_UNTYPED: Final = (None, object, Any)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSpec:
    """One consumer. Built by make_spec(), which checks everything.

    Times are seconds. `timeout` None: no bound. `batch` None: one message for each call, else at
    most so many, collected for at most `linger` seconds. `type` is the queue's type of bodies,
    for a handler that asks for nothing. `retry` None: the queue's policy. `in_process`: it runs in
    worker processes; `max_…`: after how many messages, bytes of memory or seconds one is replaced.
    `harness`: what surrounds its calls.
    """

    queue: str
    group: str
    name: str
    function: Callable[..., object]
    signature: Signature
    type: object = None
    concurrency: int = 1
    timeout: float | None = None
    batch: int | None = None
    linger: float = 0.0
    retry: RetryPolicy | None = None
    compete: bool = False
    in_process: bool = False
    max_messages: int | None = None
    max_rss: int | None = None
    max_age: float | None = None
    harness: Harness | None = None

    @property
    def body_type(self) -> object:
        """What bodies are decoded to: the handler's annotation, else the queue's type."""
        return self.type if self.signature.type is None else self.signature.type

    def delays(self) -> tuple[float, ...]:
        """Draw the seconds to wait after the first attempt failed, after the second, and so on."""
        policy = self.retry or RetryPolicy()
        rng = random.SystemRandom()
        return tuple(policy.delay(attempt, rng) for attempt in range(1, _DRAWN + 1))

    def __repr__(self) -> str:
        return f"<Consumer {self.name!r} of {self.queue!r}/{self.group!r}>"


def make_spec(
    function: Callable[..., object],
    *,
    queue: str,
    group: str = "default",
    type: object = None,
    concurrency: int = 1,
    timeout: Duration | None = None,
    batch: int | None = None,
    linger: Duration | None = None,
    pool: str | None = None,
    retry: RetryPolicy | None = None,
    compete: bool = False,
    name: str | None = None,
    max_messages: int | None = None,
    max_rss: int | str | None = None,
    max_age: Duration | None = None,
    spark: Callable[[], Any] | None = None,
) -> ConsumerSpec:
    """Check the options of a consumer and read its function.

    Raises InvalidOption naming the option and the fix, InvalidName for a bad queue or group.
    """
    check_queue_name(queue)
    check_group_name(group)
    if batch is not None:
        _whole("batch", batch, 1, LIMITS.batch_messages)
    harness = spark_harness(spark, function, pool)
    called = function if harness is None or not callable(function) else harness.adapt(function)
    signature = read_signature(called, batch=batch is not None)
    if signature.type is None:
        _check_type(type, queue)
    _check_pool(pool, is_async=signature.is_async)
    _whole("concurrency", concurrency, 1, _most_of(signature, batch, pool))
    _flag("compete", compete)
    _check_retry(retry)
    _check_name(name)
    name = name or _name_of(function)
    if pool == "process":
        refer(function, queue, group, name)
    kept = {"max_messages": max_messages, "max_rss": max_rss, "max_age": max_age}
    return ConsumerSpec(
        queue=queue,
        group=group,
        name=name,
        function=function,
        signature=signature,
        type=type,
        concurrency=concurrency,
        timeout=_timeout(timeout),
        batch=batch,
        linger=_linger(linger, batch),
        retry=retry,
        compete=compete,
        in_process=pool == "process",
        harness=harness,
        **_recycling(pool, kept),
    )


def _most_of(signature: Signature, batch: int | None, pool: str | None) -> int:
    if pool == "process":
        return PROCESSES_MAX
    return TASKS_MAX if signature.is_async and batch is None else THREADS_MAX


def _check_type(kind: object, queue: str) -> None:
    """Refuse what would dead-letter every message of a handler that asks for nothing itself."""
    unreadable = None if kind in _UNTYPED else unreadable_part(kind)
    if unreadable is not None:
        raise InvalidOption(
            f"queue {queue!r} is of the type {unreadable}, and no body can become that",
            hint="declare the queue with a type that JSON can become, or annotate the handler",
            argument="type",
        )


def _check_pool(pool: object, *, is_async: bool) -> None:
    if pool not in (None, "thread", "process"):
        raise _refused("pool", pool, '"thread" or "process"', "leave it out: def runs on threads")
    if pool == "thread" and is_async:
        raise _refused("pool", pool, "for an async def", "leave it out: it runs on a loop")


def _recycling(pool: object, options: Mapping[str, object]) -> dict[str, Any]:
    """Check after what a worker process is replaced."""
    given = {name: value for name, value in options.items() if value is not None}
    if given and pool != "process":
        name, value = next(iter(given.items()))
        raise _refused(name, value, 'possible without pool="process"')
    found: dict[str, Any] = {}
    if "max_messages" in given:
        _whole("max_messages", given["max_messages"], 1, 1_000_000_000)
        found["max_messages"] = given["max_messages"]
    if "max_rss" in given:
        found["max_rss"] = _bytes("max_rss", given["max_rss"])
    if "max_age" in given:
        seconds = parse_duration(given["max_age"], "max_age")  # type: ignore[arg-type]  # it checks
        if seconds < _AGE_LEAST_S:
            raise _refused("max_age", given["max_age"], f"{_AGE_LEAST_S:g} seconds or more")
        found["max_age"] = seconds
    return found


def _bytes(argument: str, value: object) -> int:
    """Return a size in bytes: a whole number, or a text like "500MB" or "2GiB"."""
    wanted = 'a number of bytes, or a text like "500MB"'
    if type(value) is int:
        size = value
    elif isinstance(value, str) and (found := _SIZE.fullmatch(value)) is not None:
        size = int(float(found[1]) * _UNITS[found[2].upper()])
    else:
        raise _refused(argument, value, wanted)
    if size < _RSS_LEAST:
        raise _refused(argument, value, f"{_RSS_LEAST >> 20} MiB or more: Python alone needs some")
    return size


def _timeout(value: Duration | None) -> float | None:
    if value is None:
        return None
    seconds = parse_duration(value, "timeout")
    if not 0 < seconds <= LIMITS.delay_max_s:
        raise _refused("timeout", value, "a time that passes", "None lets a handler run for ever")
    return seconds


def _linger(value: Duration | None, batch: int | None) -> float:
    if value is None:
        return 0.0
    if batch is None:
        raise _refused("linger", value, "possible without batch=", "add batch=100")
    seconds = parse_duration(value, "linger")
    if seconds > _LINGER_MAX_S:
        raise _refused("linger", value, f"at most {_LINGER_MAX_S:g} seconds")
    return seconds


def _whole(argument: str, value: object, low: int, high: int) -> None:
    if type(value) is not int or not low <= value <= high:
        raise _refused(argument, value, f"a whole number from {low} to {high}")


def _check_retry(value: object) -> None:
    if value is not None and not isinstance(value, RetryPolicy):
        raise _refused("retry", value, "a RetryPolicy", "write retry=RetryPolicy(max_attempts=3)")


def _check_name(value: object) -> None:
    if value is not None and (not isinstance(value, str) or not value):
        raise _refused("name", value, "a text", "leave it out to use the function's name")


def _flag(argument: str, value: object) -> None:
    if type(value) is not bool:
        raise _refused(argument, value, "True or False")


def _refused(argument: str, value: object, wanted: str, hint: str | None = None) -> InvalidOption:
    return InvalidOption(
        f"consumer({argument}={shown(value)}): it is not {wanted}", hint=hint, argument=argument
    )


def _name_of(function: Callable[..., object]) -> str:
    name = getattr(function, "__qualname__", None) or getattr(
        getattr(function, "func", None), "__qualname__", None
    )
    return str(name or type(function).__qualname__).rpartition("<locals>.")[2]


class Companion(Protocol):
    """What runs beside the consumers of a broker. Neither call may take long, or fail."""

    def start(self) -> None:
        """Begin, in the background: the consumers run."""
        ...

    def stop(self) -> None:
        """End: the consumers are about to be drained."""
        ...


class Consumers:
    """All registered consumers of a broker. Safe to use from any thread."""

    _all: ClassVar[weakref.WeakSet[Consumers]] = weakref.WeakSet()

    @classmethod
    def everywhere(cls) -> list[Consumers]:
        """Return the consumers of all brokers of this process."""
        return list(cls._all)

    def __init__(self, redact: Callable[[], Redact | None] = lambda: None) -> None:
        #: What hides secrets in texts of errors, as the broker's settings say.
        self.redact = redact
        #: What starts and stops with them.
        self.companions: list[Companion] = []
        self._all.add(self)
        self._lock = threading.Lock()
        self._by_group: dict[tuple[str, str], list[ConsumerSpec]] = {}

    def add(self, spec: ConsumerSpec) -> list[ConsumerSpec]:
        """Register a consumer; the same function again takes the place of the earlier one.

        Returns those whose place it takes.

        Raises DuplicateConsumer for a second, different function in a group, unless both say
        compete=True.
        """
        with self._lock:
            members = self._by_group.setdefault((spec.queue, spec.group), [])
            others = [known for known in members if not _same(known.function, spec.function)]
            for other in others:
                if not (spec.compete and other.compete):
                    raise _duplicate(spec, other)
            former = [known for known in members if _same(known.function, spec.function)]
            members[:] = [*others, spec]
            return former

    def keep(self, queues: Collection[str]) -> None:
        """Forget the consumers of all other queues."""
        with self._lock:
            kept = {key: specs for key, specs in self._by_group.items() if key[0] in queues}
            self._by_group = kept

    def move_to_processes(self, number: int) -> None:
        """Let each consumer run in so many worker processes, whatever it says itself.

        Raises InvalidOption for a handler that another process cannot find by its name.
        """
        _whole("processes", number, 1, PROCESSES_MAX)
        with self._lock:
            for members in self._by_group.values():
                for spec in members:
                    if spec.harness is not None:
                        raise InvalidOption(
                            f"{spec!r} starts Spark jobs, on threads of the driver: it cannot be "
                            "moved to worker processes",
                            hint="use `embedq run`, or `embedq worker` without --processes",
                            argument="processes",
                        )
                    refer(spec.function, spec.queue, spec.group, spec.name)
                members[:] = [
                    replace(spec, in_process=True, concurrency=number) for spec in members
                ]

    def __iter__(self) -> Iterator[ConsumerSpec]:
        """Go through the consumers in the order of registration of their groups."""
        with self._lock:
            specs = [spec for members in self._by_group.values() for spec in members]
        return iter(specs)

    def __len__(self) -> int:
        with self._lock:
            return sum(map(len, self._by_group.values()))


def _same(one: Callable[..., object], other: Callable[..., object]) -> bool:
    """Whether two functions are one: a module or a notebook's cell that was run again."""
    if one is other:
        return True
    names = [
        (getattr(f, "__module__", None), getattr(f, "__qualname__", None)) for f in (one, other)
    ]
    # Functions made inside a function, and lambdas, share a name although they differ.
    return names[0] == names[1] and None not in names[0] and "<" not in str(names[0][1])


def _duplicate(spec: ConsumerSpec, other: ConsumerSpec) -> DuplicateConsumer:
    hint = None
    if spec.compete != other.compete:
        hint = "both consumers must say compete=True to share the messages"
    return DuplicateConsumer(
        f"the group {spec.group!r} of queue {spec.queue!r} has the consumer "
        f"{described(other.function)} already; {described(spec.function)} is another one",
        hint=hint,
        queue=spec.queue,
        group=spec.group,
    )
