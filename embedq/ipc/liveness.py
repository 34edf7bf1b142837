"""Which connections are closed, whose they were, and which processes have ended.

Knows: what a ZeroMQ monitor tells, that the numbers of descriptors are used again and again.
Does not know: sockets, frames, what follows from a death.

Sans-IO: somebody else reads the monitor and calls. A connection is known by its descriptor from
ACCEPTED to DISCONNECTED; whoever sends the first message over it becomes its owner.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import sys
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

_Owner = TypeVar("_Owner", bound=Hashable)

#: pid, uid, gid, as Linux hands out.
_CREDENTIALS: Final = struct.Struct("3i")
#: Bytes of an address that ZeroMQ has chosen, with the mark of its door.
_NAMED: Final = 6


class Connections(Generic[_Owner]):
    """The open connections of a socket. Read the monitor to its end before a first message.

    Messages of two connections that had the same descriptor may be read in any order, and some
    connections never send one. So a message is taken for one of the descriptor's newest
    connection. When that one's true owner shows up later, the first message turns out to have
    come from an earlier connection, which is closed.

    `came_before(a, b)`: whether it is known that `a` connected before `b`. Then a late message of
    an earlier connection takes nothing from the owner that has shown up already.
    """

    def __init__(
        self, came_before: Callable[[_Owner, _Owner], bool] = lambda _a, _b: False
    ) -> None:
        self._came_before = came_before
        self._owners: dict[int, _Owner | None] = {}
        self._fds: dict[_Owner, int] = {}

    def __len__(self) -> int:
        """How many connections are open."""
        return len(self._owners)

    def fds(self) -> list[int]:
        """Return the descriptors of all of them. Safe to call in a child made by fork."""
        return list(self._owners)

    def accepted(self, fd: int) -> _Owner | None:
        """Note a new connection. Returns whose the descriptor was, if its end was not told."""
        before = self.closed(fd)
        self._owners[fd] = None
        return before

    def closed(self, fd: int) -> _Owner | None:
        """Note that the connection of a descriptor is closed; return whose it was, if anyone's."""
        owner = self._owners.pop(fd, None)
        if owner is not None:
            del self._fds[owner]
        return owner

    def claim(self, fd: int, owner: _Owner) -> tuple[bool, _Owner | None]:
        """Say that `owner` has sent something over the connection of a descriptor.

        Returns whether that is open, and who has lost it by this.
        """
        self.release(owner)
        if fd not in self._owners:
            return False, None
        before = self._owners[fd]
        if before is not None:
            if self._came_before(owner, before):
                return False, None
            del self._fds[before]
        self._owners[fd] = owner
        self._fds[owner] = fd
        return True, before

    def release(self, owner: _Owner) -> None:
        """Forget an owner, whose connection may still be open."""
        fd = self._fds.pop(owner, None)
        if fd is not None:
            self._owners[fd] = None


def came_before(address: bytes, other: bytes) -> bool:
    """Whether ZeroMQ has named the sender `address` before `other`; no, if that is not known.

    ROUTER counts in four bytes behind a zero, from any number on, round and round; ours have the
    mark of their door before that. Who chooses an address of its own must not begin with a zero.
    """
    if not (len(address) == len(other) == _NAMED and address[:2] == other[:2]) or address[1]:
        return False
    behind = int.from_bytes(other[2:]) - int.from_bytes(address[2:])
    return 0 < behind % (1 << 32) < 1 << 31


def peer_of(fd: int) -> int | None:
    """Return the process at the other end of a local connection, None if that is not known.

    The kernel says it, in this container's numbers: a client's own word may be from another one.
    """
    if sys.platform != "linux":
        return None
    try:
        copy = socket.socket(fileno=os.dup(fd))
    except OSError:
        return None
    with copy:
        try:
            found = copy.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        except OSError:
            return None
    pid: int = _CREDENTIALS.unpack(found)[0]
    return pid if pid > 0 else None


def is_at(fd: int, path: str, port: int | None = None) -> bool:
    """Whether a descriptor is a local socket of that path, or one of that port here.

    Numbers of descriptors are used again at once.
    """
    try:
        copy = socket.socket(fileno=os.dup(fd))
    except OSError:
        return False
    with copy:
        try:
            name = copy.getsockname()
        except OSError:
            return False
        return bool(name == path or (isinstance(name, tuple) and name[1:2] == (port,)))


def watch_process(pid: int) -> int | None:
    """Return a descriptor that becomes readable when a process ends; the caller closes it.

    None where the system has no such thing, and for a process that is gone already.
    """
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def has_ended(watch: int) -> bool:
    """Whether the process of a descriptor from `watch_process` has ended."""
    poll = select.poll()
    poll.register(watch, select.POLLIN)
    return bool(poll.poll(0))
