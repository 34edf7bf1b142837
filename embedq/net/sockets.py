"""Bind the socket of a listener: an address, or a path that only its owner can use.

Knows: that a socket file whose listener died is in the way, and that a live one must stay.
Does not know: loops, who connects.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from pathlib import Path
from typing import Final

from embedq.net.url import Place

_BACKLOG: Final = 512
_PATH_MOST: Final = 107
_MODE: Final = 0o600


def bind(place: Place, port: int) -> list[socket.socket]:
    """Return listening sockets: one for each address that the host means. Raises OSError."""
    if place.path is not None:
        return [_bind_path(place.path)]
    found = socket.getaddrinfo(place.host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    bound: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            sock = socket.socket(family, kind, protocol)
            bound.append(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            if port == 0 and len(bound) > 1:
                address = (address[0], bound[0].getsockname()[1], *address[2:])  # noqa: PLW2901
            sock.bind(address)
            _listen(sock)
    except BaseException:
        for sock in bound:
            sock.close()
        raise
    return bound


def _listen(sock: socket.socket) -> None:
    sock.setblocking(False)
    sock.listen(_BACKLOG)


def _bind_path(path: str) -> socket.socket:
    if len(os.fsencode(path)) > _PATH_MOST:
        raise OSError(errno.ENAMETOOLONG, f"a path of a socket has at most {_PATH_MOST} bytes")
    _clear(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Bound under another name and then renamed: the path never shows a socket that is open
        # to others, nor one at which nobody listens yet.
        draft = f"{path}.{os.getpid()}"
        Path(draft).unlink(missing_ok=True)
        sock.bind(draft)
        try:
            os.chmod(draft, _MODE)  # noqa: PTH101  # a socket, by its path
            _listen(sock)
            os.rename(draft, path)  # noqa: PTH104
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise
    except BaseException:
        sock.close()
        raise
    return sock


def _clear(path: str) -> None:
    """Remove a socket at which nobody listens. Raises OSError for anything else."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise OSError(errno.EEXIST, "there is a file that is no socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            Path(path).unlink(missing_ok=True)
        else:
            raise OSError(errno.EADDRINUSE, "somebody listens there")


def identity(path: str) -> tuple[int, int]:
    """Return what tells whether a socket file is still the same."""
    found = os.lstat(path)
    return found.st_dev, found.st_ino


def remove(path: str, known: tuple[int, int]) -> None:
    """Remove a socket file, unless another one has taken its place."""
    try:
        if identity(path) == known:
            Path(path).unlink()
    except FileNotFoundError:
        pass
