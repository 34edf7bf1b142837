"""Bind the socket of a listener: an address, or a path that only its owner can use.

Knows: that a socket file whose listener died is in the way, and that a live one must stay.
Does not know: loops, who connects.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from embedq.net.url import Place

#: Connections that may wait to be accepted: of a whole crowd that comes at once.
BACKLOG: Final = 512
#: Bytes of a path: 107, less those that are added to it while the socket is made.
_PATH_MOST: Final = 98
#: How often a free port is looked for that is free at all addresses of a host.
_TRIES: Final = 20
_NOT_HERE: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
_MODE: Final = 0o600
#: Seconds without a byte until the kernel asks whether a client is still there, seconds between
#: two such questions, and how many stay unanswered: or who lost power would hold its messages for
#: ever, where a protocol has no ping. Where the kernel has no such setting its own one counts.
_ALIVE: Final = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))


def bind(place: Place, port: int, *, resets: bool = False) -> list[socket.socket]:
    """Return listening sockets: one for each address that the host means. Raises OSError.

    Addresses of a family that this machine does not have are left out, if there are others.
    `resets`: see `reset_at_close`, of whatever connects; a Unix socket knows no reset.
    """
    if place.path is not None:
        return [_bind_path(place.path)]
    found = socket.getaddrinfo(place.host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    addresses = list(dict.fromkeys(found))
    for _ in range(_TRIES - 1):
        try:
            return _bind_all(addresses, port, resets=resets)
        except OSError as error:
            # The port that was free at the first address is taken at another one.
            if error.errno != errno.EADDRINUSE or port or len(addresses) == 1:
                raise
    return _bind_all(addresses, port, resets=resets)


def reset_at_close(sock: socket.socket, *, on: bool) -> None:
    """Let the kernel reset a connection that is closed, also by a death, not end it in order.

    Connections begin with what is set at the socket that listens: nobody, not even who is never
    accepted as a client, is then ended in order unless that is meant.
    """
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", on, 0))


def _bind_all(
    addresses: Sequence[tuple[Any, ...]], port: int, *, resets: bool
) -> list[socket.socket]:
    bound: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for family, kind, protocol, _, address in addresses:
            if port == 0 and bound:
                address = (address[0], bound[0].getsockname()[1], *address[2:])  # noqa: PLW2901
            try:
                bound.append(_bind_one(family, kind, protocol, address, resets=resets))
            except OSError as error:
                if error.errno not in _NOT_HERE:
                    raise
                missing = error
    except BaseException:
        for sock in bound:
            sock.close()
        raise
    if missing is not None and not bound:
        raise missing
    return bound


def _bind_one(
    family: int, kind: int, protocol: int, address: tuple[Any, ...], *, resets: bool
) -> socket.socket:
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        _keep_alive(sock)
        if resets:
            reset_at_close(sock, on=True)
        sock.bind(address)
        _listen(sock)
    except BaseException:
        sock.close()
        raise
    return sock


def _keep_alive(sock: socket.socket) -> None:
    """Let the kernel notice that the machine of a client is gone; connections inherit it."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _ALIVE:
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def _listen(sock: socket.socket) -> None:
    sock.setblocking(False)
    sock.listen(BACKLOG)


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
