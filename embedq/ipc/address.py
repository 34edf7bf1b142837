"""Addresses of hosts on other machines: `tcp://host:port`, told apart from paths of files.

Knows: how they are written.
Does not know: sockets, keys, who listens there.
"""

from __future__ import annotations

import re
from typing import Final

#: A name, an IPv4 address, an IPv6 address in brackets, or "*" for all interfaces; then the port.
_ADDRESS: Final = re.compile(
    r"tcp://(\*|\[[0-9A-Fa-f:.]+(?:%\w+)?\]|[A-Za-z0-9_.-]+):([0-9]{1,5})"
)
_PORTS: Final = 1 << 16


def is_address(text: str) -> bool:
    """Whether a text was meant as an address, and not as the path of a file."""
    return text.startswith(("tcp:/", "tcp:\\"))


def is_endpoint(text: str, *, to_bind: bool) -> bool:
    """Whether an address is complete and well formed.

    `to_bind`: a host may listen at "*", and at port 0, for which the system chooses one.
    """
    found = _ADDRESS.fullmatch(text)
    if found is None:
        return False
    host, port = found[1], int(found[2])
    return port < _PORTS and (to_bind or (port > 0 and host != "*"))
