"""What a queue does with failure, age and length: RetryPolicy and the persisted QueuePolicy.

Knows: the settings with their units and bounds, the delay before an attempt, the stored JSON.
Does not know: who applies them; delays are computed in the broker, exceptions judged where the
handler runs.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal, Protocol, Self, cast, get_args

import msgspec

from embedq.clock import parse_duration
from embedq.errors import InvalidOption, StoreCorrupt, shown
from embedq.limits import LIMITS

Duration = str | float | timedelta
Jitter = Literal["full", "equal", "none"]
WhenFull = Literal["block", "reject", "drop_oldest"]
Exceptions = type[Exception] | tuple[type[Exception], ...]

_FACTOR_MAX: Final = 100.0
_LENGTH_MAX: Final = (1 << 48) - 1


class Rng(Protocol):
    """Source of jitter; random.Random is one."""

    def random(self) -> float:
        """Return a number from 0 up to, not including, 1."""
        ...


@dataclass(frozen=True, slots=True, init=False)
class RetryPolicy:
    """How a failed message is tried again; base, cap and max_age become seconds.

    The delay before the next attempt is base * factor ** (attempt - 1), at most cap; jitter
    "full" draws it from 0 up to that, "equal" from the upper half, "none" takes it as it is.
    `max_attempts` bounds the deliveries started (None: endless). A failure of a message older
    than `max_age` is its last. Exceptions of `give_up_on` are never tried again; with
    `retry_on` only those are.
    """

    max_attempts: int | None
    base: float
    cap: float
    factor: float
    jitter: Jitter
    max_age: float | None
    retry_on: tuple[type[Exception], ...]
    give_up_on: tuple[type[Exception], ...]

    def __init__(
        self,
        max_attempts: int | None = 5,
        *,
        base: Duration = "1s",
        cap: Duration = "10m",
        factor: float = 2.0,
        jitter: Jitter = "full",
        max_age: Duration | None = None,
        retry_on: Exceptions = (),
        give_up_on: Exceptions = (),
    ) -> None:
        """Check every argument; InvalidOption names the one at fault."""
        if max_attempts is not None:
            _whole("max_attempts", max_attempts, 1, LIMITS.attempts_max, hint="None is endless")
        longest = LIMITS.delay_max_s
        cap_s = _seconds("cap", cap, longest)
        base_s = _seconds("base", base, longest)
        if base_s > cap_s:
            raise _refused("base", base, f"at most cap={cap_s:g} seconds")
        if type(factor) not in (int, float) or not 1 <= factor <= _FACTOR_MAX:
            raise _refused("factor", factor, f"a number from 1 to {_FACTOR_MAX:g}")
        if jitter not in get_args(Jitter):
            raise _refused("jitter", jitter, '"full", "equal" or "none"')
        retried = _exceptions("retry_on", retry_on)
        refused = _exceptions("give_up_on", give_up_on)
        for kind in retried:
            if issubclass(kind, refused):
                raise _refused("retry_on", kind, "outside give_up_on, which wins")
        values: dict[str, object] = {
            "max_attempts": max_attempts,
            "base": base_s,
            "cap": cap_s,
            "factor": float(factor),
            "jitter": jitter,
            "max_age": None if max_age is None else parse_duration(max_age, "max_age"),
            "retry_on": retried,
            "give_up_on": refused,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def stored_max_attempts(self) -> int:
        """The bound as Draft and QueuePolicy write it: 0 is endless."""
        return self.max_attempts or 0

    def delay(self, attempt: int, rng: Rng) -> float:
        """Return the seconds to wait after attempt number `attempt` (1 is the first) failed."""
        if attempt < 1:
            raise _refused("attempt", attempt, "1 or more")
        try:
            full = min(self.cap, self.base * self.factor ** (attempt - 1))
        except OverflowError:
            # Endless retries get here after a thousand attempts, at the latest.
            full = self.cap if self.base else 0.0
        if self.jitter == "none":
            return full
        if self.jitter == "equal":
            return full / 2 + full / 2 * rng.random()
        return full * rng.random()

    def gives_up(self, error: Exception) -> bool:
        """Whether `error` ends the message whatever attempts are left."""
        if isinstance(error, self.give_up_on):
            return True
        return bool(self.retry_on) and not isinstance(error, self.retry_on)

    def too_old(self, age_s: float) -> bool:
        """Whether a message put `age_s` seconds ago is past max_age."""
        return self.max_age is not None and age_s > self.max_age


class QueuePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a queue, persisted as JSON with the queue.

    `max_attempts`: deliveries started, for messages that do not say (0 is endless).
    `max_crashes`: deaths of worker or host before a message is dead (0 is never).
    `retain_ms`: how long settled messages and their history are kept (None: not at all).
    `lease_ms`, `dedup_window_ms`: defaults of a delivery and of a dedup key.
    `max_length`: messages held (None: no bound), and what a put does `when_full`.
    """

    max_attempts: int = 5
    max_crashes: int = LIMITS.max_crashes
    retain_ms: int | None = None
    lease_ms: int = round(LIMITS.lease_default_s * 1000)
    dedup_window_ms: int = round(LIMITS.dedup_window_s * 1000)
    max_length: int | None = None
    when_full: WhenFull = "block"

    def __post_init__(self) -> None:
        """Check every setting; InvalidOption names the one at fault."""
        longest = round(LIMITS.delay_max_s * 1000)
        lease_min, lease_max = round(LIMITS.lease_min_s * 1000), round(LIMITS.lease_max_s * 1000)
        _whole("max_attempts", self.max_attempts, 0, LIMITS.attempts_max, hint="0 is endless")
        _whole("max_crashes", self.max_crashes, 0, LIMITS.attempts_max, hint="0 is never")
        _whole("lease_ms", self.lease_ms, lease_min, lease_max)
        _whole("dedup_window_ms", self.dedup_window_ms, 0, longest)
        if self.retain_ms is not None:
            _whole("retain_ms", self.retain_ms, 0, 100 * longest, hint="None keeps nothing")
        if self.max_length is not None:
            _whole("max_length", self.max_length, 1, _LENGTH_MAX, hint="None is no bound")
        if self.when_full not in get_args(WhenFull):
            raise _refused("when_full", self.when_full, '"block", "reject" or "drop_oldest"')

    def changed(self, **settings: object) -> Self:
        """Return a copy with other settings; InvalidOption also for a setting unknown here."""
        unknown = settings.keys() - set(self.__struct_fields__)
        if unknown:
            name = min(unknown)
            known = ", ".join(self.__struct_fields__)
            raise InvalidOption(f"a queue has no setting {name!r}", hint=f"there are {known}")
        return msgspec.structs.replace(self, **settings)

    def encode(self) -> bytes:
        """Return JSON with every setting, so that new defaults never change an old queue."""
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, data: bytes | str) -> Self:
        """Return the policy that encode() stored.

        Settings that a newer release added are left out, missing ones get their default.
        Raises StoreCorrupt when the text is not a policy.
        """
        try:
            return msgspec.json.decode(data, type=cls)
        except (msgspec.MsgspecError, UnicodeError, InvalidOption, RecursionError) as error:
            raise StoreCorrupt(f"the stored settings of a queue are damaged: {error}") from error


def _refused(argument: str, value: object, wanted: str, hint: str | None = None) -> InvalidOption:
    return InvalidOption(
        f"{argument}={shown(value)} is not {wanted}", hint=hint, argument=argument
    )


def _whole(argument: str, value: object, low: int, high: int, hint: str | None = None) -> None:
    if type(value) is not int or not low <= value <= high:
        raise _refused(argument, value, f"a whole number from {low} to {high}", hint)


def _seconds(argument: str, value: Duration, longest: float) -> float:
    seconds = parse_duration(value, argument)
    if seconds > longest:
        raise _refused(argument, value, f"at most {longest:g} seconds")
    return seconds


def _exceptions(argument: str, value: object) -> tuple[type[Exception], ...]:
    kinds = value if isinstance(value, tuple | list) else (value,)
    for kind in kinds:
        if not isinstance(kind, type) or not issubclass(kind, Exception):
            raise _refused(argument, kind, "a class of exceptions, or a tuple of them")
    return cast("tuple[type[Exception], ...]", tuple(kinds))
