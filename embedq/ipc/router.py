"""The sockets of a host: their options, each with its reason, and their monitors.

Knows: ZeroMQ.
Does not know: frames, sessions, when anything is read, who is allowed (gate.py).
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

import zmq

from embedq.ipc.door import Door
from embedq.ipc.gate import DOMAIN
from embedq.ipc.keys import Pair

LOCAL: Final = b"l"
REMOTE: Final = b"r"
#: Messages in the queues of one connection, beyond what waits in its session.
_QUEUED: Final = 16
#: The host itself asks rarely: clients do (line.py), and this is for programs that do not.
_HEARTBEAT_MS: Final = 15_000
_DEAD_MS: Final = 3_000


#: A program that connects and says nothing has that long.
_HANDSHAKE_MS: Final = 5_000
_ASKED: Final = "inproc://zeromq.zap.01"

Context = zmq.Context[zmq.Socket[bytes]]


def local_door(context: Context, most_bytes: int) -> Door:
    """Return a socket for the other processes of this machine and user, not yet bound.

    `most_bytes`: of one message; a client that sends more loses its connection.
    """
    socket = _router(context, most_bytes)
    with suppress(zmq.ZMQError):  # only on Linux: elsewhere the folder's mode says it
        socket.setsockopt(zmq.IPC_FILTER_UID, os.getuid())
    events = zmq.EVENT_LISTENING | zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED
    return Door(LOCAL, socket, socket.get_monitor_socket(events))


def remote_door(context: Context, most_bytes: int, pair: Pair, endpoint: str) -> Door:
    """Return a socket for clients on other machines that have a key. `asked` must be open."""
    socket = _router(context, most_bytes)
    socket.setsockopt(zmq.CURVE_SERVER, 1)
    socket.setsockopt(zmq.CURVE_PUBLICKEY, pair.public)
    socket.setsockopt(zmq.CURVE_SECRETKEY, pair.secret)
    socket.setsockopt(zmq.ZAP_DOMAIN, DOMAIN)
    socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)  # nobody is let in while nobody is asked
    socket.setsockopt(zmq.HANDSHAKE_IVL, _HANDSHAKE_MS)
    socket.setsockopt(zmq.IPV6, int("[" in endpoint))
    events = zmq.EVENT_LISTENING | zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED
    events |= zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    return Door(REMOTE, socket, socket.get_monitor_socket(events))


def asked(context: Context) -> zmq.Socket[bytes]:
    """Return the socket over which ZeroMQ asks who may come in, bound."""
    socket = context.socket(zmq.ROUTER)
    socket.setsockopt(zmq.LINGER, 0)
    socket.bind(_ASKED)
    return socket


def _router(context: Context, most_bytes: int) -> zmq.Socket[bytes]:
    socket = context.socket(zmq.ROUTER)
    options: tuple[tuple[int, int], ...] = (
        (zmq.LINGER, 0),
        (zmq.ROUTER_HANDOVER, 1),  # the same address again is the same client, back
        (zmq.ROUTER_MANDATORY, 1),  # says when a client does not read, and loses nothing
        (zmq.MAXMSGSIZE, most_bytes),
        (zmq.SNDHWM, _QUEUED),
        (zmq.RCVHWM, _QUEUED),
        (zmq.IMMEDIATE, 1),
        (zmq.HEARTBEAT_IVL, _HEARTBEAT_MS),
        (zmq.HEARTBEAT_TIMEOUT, _DEAD_MS),
    )
    for option, value in options:
        socket.setsockopt(option, value)
    return socket
