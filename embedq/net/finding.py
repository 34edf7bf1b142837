"""Find the transport of a URL among the installed entry points.

Knows: the group of entry points, that a package may bring more protocols.
Does not know: any protocol.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import cast

from embedq.errors import TransportNotFound
from embedq.net.port import ENTRY_POINTS, Transport


def find_transport(name: str) -> Transport:
    """Return a transport by its name. Raises TransportNotFound, which says what there is."""
    found = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    point = found.get(name)
    if point is None:
        known = ", ".join(sorted(found)) or "none"
        raise TransportNotFound(f"there is no protocol {name!r}; installed are: {known}")
    return cast("Transport", point.load())
