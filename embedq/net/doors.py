"""The doors of a network: that nobody can be let in, for want of descriptors, is told in a line.

Knows: the sockets that listen, what asyncio says when it cannot accept at one, when it was told.
Does not know: connections; when there is room again: the loop tries once a second.
"""

from __future__ import annotations

import errno
import logging
import socket
from asyncio import AbstractEventLoop
from collections.abc import Callable
from typing import Any, Final

_log = logging.getLogger("embedq.net")
#: Seconds after which it is told again of a listener.
AGAIN_S: Final = 60.0
_MEMORY: Final = "free some memory of this machine"
#: What asyncio tries again at, and what helps.
_HELP: Final = {
    errno.EMFILE: "let this process have more open files (`ulimit -n`, LimitNOFILE=), or fewer "
    "clients",
    errno.ENFILE: "let this machine have more open files (`sysctl fs.file-max`)",
    errno.ENOBUFS: _MEMORY,
    errno.ENOMEM: _MEMORY,
}


class Doors:
    """The exception handler of the loop. Belongs to its thread."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._urls: dict[int, str] = {}
        self._told: dict[str, float] = {}

    def opened(self, sock: socket.socket, url: str) -> None:
        """Know a socket that listens."""
        self._urls[sock.fileno()] = url

    def closing(self, sock: socket.socket) -> None:
        """Forget it: another one may get its number."""
        url = self._urls.pop(sock.fileno(), "")
        self._told.pop(url, None)

    def failed(self, loop: AbstractEventLoop, context: dict[str, Any]) -> None:
        """Tell what the loop could not do: a full process in a line, all else as it would."""
        error, sock = context.get("exception"), context.get("socket")
        if isinstance(error, ValueError) and "._start_serving(" in context["message"]:
            return  # it tries again, at a socket that was closed meanwhile
        url = None if sock is None else self._urls.get(sock.fileno())
        if url is None or not isinstance(error, OSError) or error.errno not in _HELP:
            loop.default_exception_handler(context)
            return
        now = self._monotonic()
        last = self._told.get(url)
        if last is None or now - last >= AGAIN_S:
            self._told[url] = now
            what = "%s cannot let clients in: %s. They wait; %s"
            _log.warning(what, url, error.strerror, _HELP[error.errno])
