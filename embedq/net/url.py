"""Addresses of listeners: `sspq://127.0.0.1:8888?queue=orders`, `sspq+unix:///run/a.sock`.

Knows: how a URL is written, that a host defaults to this machine and a port to the protocol's.
Does not know: which protocols there are, what their options mean, sockets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from embedq.errors import InvalidOption, shown

_UNIX: Final = "+unix"
_HOST: Final = "127.0.0.1"
_EXAMPLE: Final = "sspq://127.0.0.1:8888?queue=orders"
_UNIX_EXAMPLE: Final = "sspq+unix:///run/sspq.sock?queue=orders"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a listener listens. `path`: a Unix socket; then host and port mean nothing.

    `port` None is the protocol's own, 0 one that is free.
    """

    transport: str
    host: str
    port: int | None
    path: str | None
    options: Mapping[str, str]

    def at(self, address: tuple[str, int] | str) -> str:
        """Return the URL of where it listens."""
        if isinstance(address, str):
            return f"{self.transport}{_UNIX}://{address}"
        host, port = address
        return f"{self.transport}://{f'[{host}]' if ':' in host else host}:{port}"


def parse_url(url: str) -> Place:
    """Return what a URL says. Raises InvalidOption, which names the part at fault."""
    if not isinstance(url, str):
        raise _refused(url, "it is a text such as 'sspq://127.0.0.1:8888'")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise _refused(url, str(error)) from None
    scheme = parts.scheme
    if not scheme or "//" not in url:
        raise _refused(url, "it begins with a protocol and '://'")
    if parts.fragment or parts.username is not None or parts.password is not None:
        raise _refused(url, "it has no user and no '#'")
    options = _options(url, parts.query)
    is_unix = scheme.endswith(_UNIX)
    path = unquote(parts.path) if is_unix else options.pop("unix", None)
    if not is_unix and path is not None and (parts.netloc or port is not None):
        raise _refused(url, "it has an address and the path of a Unix socket")
    if is_unix and parts.netloc:
        raise _refused(url, "the path of a Unix socket follows three slashes", _UNIX_EXAMPLE)
    if path == "" or (is_unix and path == "/"):
        raise _refused(url, "the path of the Unix socket is missing", _UNIX_EXAMPLE)
    if not is_unix and parts.path not in ("", "/"):
        raise _refused(url, f"a path ({parts.path}) means nothing here")
    _check_bindable(url, parts.hostname or _HOST, path)
    name = scheme.removesuffix(_UNIX)
    return Place(name, parts.hostname or _HOST, port, path, options)


def _check_bindable(url: str, host: str, path: str | None) -> None:
    """Refuse what the socket module would refuse in its own words."""
    if path is not None and "\0" in path:
        raise _refused(url, "the path of a Unix socket has no zero byte", _UNIX_EXAMPLE)
    try:
        host.encode("idna")
    except UnicodeError:
        raise _refused(url, f"{shown(host)} is no name of a host") from None


def _options(url: str, query: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name in options:
            raise _refused(url, f"the option {name!r} is there twice")
        options[name] = value
    return options


def _refused(url: object, why: str, example: str = _EXAMPLE) -> InvalidOption:
    return InvalidOption(
        f"the listener address {shown(url, 80)} cannot be used: {why}",
        hint=f"write for example '{example}'",
        argument="url",
    )
