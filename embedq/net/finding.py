"""Find the transport of a URL among the installed entry points.

Knows: the group of entry points, that a package may bring more protocols.
Does not know: any protocol.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Final, cast

from embedq.errors import InvalidOption, TransportNotFound, shown
from embedq.net.port import ENTRY_POINTS, Transport

#: What every transport says of itself.
_HAS: Final = {"name": str, "default_port": int, "has_login": bool}


def find_transport(name: str) -> Transport:
    """Return a transport by its name. Raises TransportNotFound, which says what there is.

    Raises InvalidOption if what its entry point names is none.
    """
    found = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    point = found.get(name)
    if point is None:
        known = ", ".join(sorted(found)) or "none"
        raise TransportNotFound(f"there is no protocol {name!r}; installed are: {known}")
    try:
        found_there = point.load()
    except Exception as error:
        raise TransportNotFound(
            f"the protocol {name!r} cannot be loaded from {point.value}: "
            f"{type(error).__name__}: {error}",
            hint="correct its package; docs/guide-transports.md says what an entry point names",
        ) from error
    return check_transport(found_there, f"what the entry point {name!r} ({point.value}) names")


def check_transport(given: object, what: str) -> Transport:
    """Return a transport if it looks like one. Raises InvalidOption, which says what it lacks."""
    missing = [name for name, kind in _HAS.items() if not isinstance(_of(given, name), kind)]
    if isinstance(given, type) or not callable(_of(given, "open")):
        missing.append("open")
    if missing:
        raise InvalidOption(
            f"{what} is no Transport: {shown(given)} has no {', '.join(missing)}",
            hint="give an object, not its class, with name, default_port, has_login and open; "
            "leave transport= out for protocols that are installed",
            argument="transport",
        )
    return cast("Transport", given)


def _of(given: object, name: str) -> object:
    return getattr(given, name, None)
