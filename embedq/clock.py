"""Time: where it comes from and how durations are written.

Knows: the wall clock, the monotonic clock, a virtual pair for tests, milliseconds, "1h30m".
Does not know: what a time is used for, nor how anyone waits for it.
"""

import math
import re
import threading
import time as os_time
from datetime import timedelta
from functools import lru_cache
from typing import Final, Protocol

from embedq.errors import InvalidOption, shown

_UNIT_SECONDS: Final = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_NUMBER: Final = r"[0-9]{1,18}(?:\.[0-9]{1,9})?"
_DURATION: Final = re.compile(
    rf"(?:(?P<d>{_NUMBER})d)?(?:(?P<h>{_NUMBER})h)?(?:(?P<m>{_NUMBER})m)?"
    rf"(?:(?P<s>{_NUMBER})s)?(?:(?P<ms>{_NUMBER})ms)?",
    re.ASCII,
)


class Clock(Protocol):
    """The only source of time in embedq."""

    def time(self) -> float:
        """Wall clock: seconds since 1970, may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary moment; never goes back, so leases are measured with it."""
        ...


class SystemClock:
    """The clocks of the operating system."""

    __slots__ = ()

    # Bound directly: a wrapping method would double the cost of a call made for every message.
    time = staticmethod(os_time.time)
    monotonic = staticmethod(os_time.monotonic)

    def __repr__(self) -> str:
        """Return the call that makes an equal clock."""
        return "SystemClock()"


class VirtualClock:
    """Clocks that stand still until a test moves them; safe to share between threads."""

    __slots__ = ("_lock", "_monotonic", "_wall")

    def __init__(self, start: float = 1_700_000_000.0) -> None:
        """Start the wall clock at `start` seconds; the monotonic clock starts at 1000."""
        self._lock = threading.Lock()
        self._wall = float(start)
        # Not the wall time: whoever mixes up the two clocks then fails a test at once.
        self._monotonic = 1000.0

    def time(self) -> float:
        """Wall clock in seconds since 1970."""
        with self._lock:
            return self._wall

    def monotonic(self) -> float:
        """Monotonic clock in seconds."""
        with self._lock:
            return self._monotonic

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass on both clocks; InvalidOption when negative."""
        if not 0 <= seconds < math.inf:
            msg = f"advance({seconds!r}): time passes in finite steps, and only forwards"
            raise InvalidOption(msg, hint="use jump() to move the wall clock back")
        with self._lock:
            self._wall += seconds
            self._monotonic += seconds

    def jump(self, seconds: float) -> None:
        """Set the wall clock forwards or back, as an administrator or NTP would."""
        with self._lock:
            self._wall += seconds

    def __repr__(self) -> str:
        """Show both clocks."""
        return f"VirtualClock(time={self.time()}, monotonic={self.monotonic()})"


def to_ms(seconds: float) -> int:
    """Seconds to whole milliseconds, rounded to the nearest: 1.001 s is 1001 ms."""
    return round(seconds * 1000)


def parse_duration(value: str | float | timedelta, what: str) -> float:
    """Return a duration in seconds; `what` names the argument in errors.

    Accepts "200ms", "30s", "1h30m" (units d h m s ms, each once, in this order), numbers of
    seconds and timedelta. Raises InvalidOption for anything else, also for negative durations.
    """
    seconds: float | None = None
    if isinstance(value, str):
        seconds = _parse_text(value)
    elif isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif type(value) in (int, float):  # not bool
        try:
            seconds = float(value)
        except OverflowError:
            seconds = math.inf
    if seconds is None or not 0 <= seconds < math.inf:
        raise _refused(value, what)
    return seconds


# Applications say the same few durations with every message.
@lru_cache(maxsize=256)
def _parse_text(text: str) -> float | None:
    match = _DURATION.fullmatch(text)
    if match is None or not text:
        return None
    return math.fsum(
        float(number) * _UNIT_SECONDS[unit]
        for unit, number in match.groupdict().items()
        if number is not None
    )


def _refused(value: object, what: str) -> InvalidOption:
    return InvalidOption(
        f"{what}={shown(value)} is not a duration of zero or more",
        hint='write "200ms", "30s", "5m", "1h30m" or "7d", a number of seconds, or a timedelta',
        argument=what,
    )
