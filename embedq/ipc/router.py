"""The socket of a host: its options, each with its reason, and its monitor.

Knows: ZeroMQ.
Does not know: frames, sessions, when anything is read.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

import zmq

#: Messages in the queues of one connection, beyond what waits in its session.
_QUEUED: Final = 16
_HEARTBEAT_MS: Final = 1_000
_DEAD_MS: Final = 3_000


def router(
    context: zmq.Context[zmq.Socket[bytes]], most_bytes: int
) -> tuple[zmq.Socket[bytes], zmq.Socket[bytes]]:
    """Return a socket for many clients, not yet bound, and its monitor.

    `most_bytes`: of one message; a client that sends more loses its connection.
    """
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
    with suppress(zmq.ZMQError):  # only on Linux: elsewhere the folder's mode says it
        socket.setsockopt(zmq.IPC_FILTER_UID, os.getuid())
    events = zmq.EVENT_LISTENING | zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED
    return socket, socket.get_monitor_socket(events)
