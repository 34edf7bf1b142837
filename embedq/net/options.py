"""The options of one listener, as its transport reads them.

Knows: which options were given, which were asked for; how texts become values.
Does not know: what an option means.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from embedq.clock import parse_duration
from embedq.errors import InvalidOption, shown

_TRUE = frozenset({"1", "true", "yes", "on", ""})
_FALSE = frozenset({"0", "false", "no", "off"})


class Options:
    """Options by name: texts from a URL, or values from a call or a file.

    Every method takes the name and the value that holds if nothing is given, and raises
    InvalidOption for a value that cannot be meant.
    """

    def __init__(self, given: Mapping[str, object]) -> None:
        self._given = given
        self._known: dict[str, None] = {}

    def text(self, name: str, default: str | None = None) -> str | None:
        """Return a text."""
        value = self._take(name)
        if value is None:
            return default
        if not isinstance(value, str) or not value:
            raise _refused(name, value, "a text")
        return value

    def required(self, name: str, what: str) -> str:
        """Return a text that has to be given; `what` says what it is."""
        value = self.text(name)
        if value is None:
            raise InvalidOption(
                f"the listener needs {name}=, {what}", hint=f"add ?{name}=… to its URL"
            )
        return value

    def number(self, name: str, default: int, low: int, high: int) -> int:
        """Return a whole number from `low` to `high`."""
        value = self._take(name)
        if value is None:
            return default
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:  # noqa: PLR2004  # what 64 bits hold
            value = int(value)
        if type(value) is not int or not low <= value <= high:
            raise _refused(name, value, f"a whole number from {low} to {high}")
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        """Return true or false; an option without a value is true."""
        value = self._take(name)
        if value is None:
            return default
        if isinstance(value, str):
            value = True if value.lower() in _TRUE else value.lower() not in _FALSE and value
        if type(value) is not bool:
            raise _refused(name, value, "true or false")
        return value

    def choice(self, name: str, default: str, among: Collection[str]) -> str:
        """Return one of the words of `among`."""
        value = self._take(name)
        if value is None:
            return default
        if not isinstance(value, str) or value not in among:
            raise _refused(name, value, f"one of {', '.join(among)}")
        return value

    def seconds(self, name: str, default: float) -> float:
        """Return a duration in seconds: "200ms", "30s", a number."""
        value = self._take(name)
        if value is None:
            return default
        if isinstance(value, str) and value.replace(".", "", 1).isdigit():
            value = float(value)
        return parse_duration(value, name)  # type: ignore[arg-type]  # it checks

    def _take(self, name: str) -> object:
        self._known[name] = None
        return self._given.get(name)

    def check_all_known(self) -> None:
        """Raise InvalidOption for an option that nobody has asked for."""
        unknown = [name for name in self._given if name not in self._known]
        if unknown:
            known = ", ".join(self._known) or "none"
            raise InvalidOption(
                f"the listener has no option {shown(unknown[0])}",
                hint=f"its options are: {known}",
                argument=unknown[0],
            )


def _refused(name: str, value: object, wanted: str) -> InvalidOption:
    return InvalidOption(f"{name}={shown(value)} is not {wanted}", argument=name)
