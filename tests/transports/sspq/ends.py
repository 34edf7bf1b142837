"""What the tests of SSPQ sessions are written with: every way in which a client can end.

Knows: sockets, and how to wait without sleeping for long.
Does not know: what a session does.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.interop.sspq_client import Sspq
from tests.transports.sspq.vectors import BY_NAME

URL = "sspq://127.0.0.1:0?queue=orders"
QUIET_S = 0.2  # in which a client would have got what it must not get


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.005)


def reset(client: Sspq) -> None:
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    os.close(client.socket.detach())


def shut_down(client: Sspq) -> None:
    client.socket.shutdown(socket.SHUT_WR)


def break_protocol(client: Sspq) -> None:
    client.socket.sendall(BY_NAME["S22"].data)


ENDS: dict[str, Callable[[Any], object]] = {
    "close": Sspq.close,
    "reset": reset,
    "end of file": shut_down,
    "wrong magic": break_protocol,
}
every_end = pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)


def gets_nothing(client: Sspq) -> bool:
    client.socket.settimeout(QUIET_S)
    try:
        client.socket.recv(1)
    except TimeoutError:
        return True
    finally:
        client.socket.settimeout(30)
    return False


def is_cut(client: Sspq) -> bool:
    try:
        return client.socket.recv(1) == b""
    except ConnectionError:
        return True
