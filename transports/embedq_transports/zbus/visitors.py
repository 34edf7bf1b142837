"""Pages of strangers in a browser: which of them may send anything, and as which host.

Knows: what browsers say of a page (Origin, Sec-Fetch-Site), names that can be made to mean this
machine (Host), the lists of a listener.
Does not know: commands, signatures, sockets.

A browser lets every page send to this machine, and with a name of its own that it makes mean
this machine (DNS rebinding) a page is even of the same origin. Programs say nothing of pages.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

EVERYBODY: Final = "*"
#: How long a name of the DNS may be, with a port.
_HOST_MOST: Final = 260
#: What browsers say of a request that the user has made, or a page of the same origin.
_OWN_SITES: Final = ("same-origin", "none")
_PORTS: Final = (":80", ":443")
_HOST: Final = re.compile(r"(\[[^\]]*\]|[^:]*)(?::[0-9]*)?")


@dataclass(frozen=True, slots=True)
class Visitors:
    """`origins`: whose pages may open a WebSocket; `cors`: whose pages may send over HTTP.

    `hosts`: by which names the listener may be called, beside addresses and localhost; None: by
    any. "*" is everybody.
    """

    origins: frozenset[str] = frozenset()
    cors: frozenset[str] = frozenset()
    hosts: frozenset[str] | None = None

    def refuses(
        self, host: object, origin: object, site: object, *, websocket: bool
    ) -> str | None:
        """Say why a request may not come, None if it may. The first three are its headers."""
        if self.hosts is not None and host is not None and not self._is_ours(host):
            return f"this listener is not called {str(host)[:_HOST_MOST]}: name it in hosts"
        if origin is None and site is None:
            return None
        allowed = self.origins if websocket else self.cors
        if EVERYBODY in allowed:
            return None
        if origin is None:
            may = site in _OWN_SITES
        else:  # one that comes twice is a list, and nobody's
            may = isinstance(origin, str) and (origin in allowed or _is_of(origin, host))
        option = "origins" if websocket else "cors"
        return None if may else f"pages of other origins may not: name theirs in {option}"

    def _is_ours(self, host: object) -> bool:
        if not isinstance(host, str) or len(host) > _HOST_MOST:
            return False
        name = _name_of(host)
        return _is_here(name) or name in (self.hosts or ())


def _is_of(origin: str, host: object) -> bool:
    """Whether an origin is the host that the request names."""
    if not isinstance(host, str):
        return False
    return _without_port(origin.partition("://")[2].lower()) == _without_port(host.lower())


def _without_port(host: str) -> str:
    """Drop the port that need not be named."""
    return next((host.removesuffix(port) for port in _PORTS if host.endswith(port)), host)


@lru_cache(256)
def _name_of(host: str) -> str:
    """Return the name in a header Host, without its port."""
    found = _HOST.fullmatch(host)
    return "" if found is None else found[1].strip("[]").rstrip(".").lower()


@lru_cache(256)
def _is_here(name: str) -> bool:
    """Whether nobody can make a name mean another machine than it says."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
