"""A program of users: the original Python client of zbus, which comes back when its server does.

Run it with the address. It writes a line of JSON each time it has subscribed and for each message,
and ends with its standard input. Not a test.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import websocket
import zbus  # type: ignore[import-untyped]

PATIENCE_S = 60


def tell(what: str, value: object) -> None:
    """Write a line at once: threads of the client do, too."""
    sys.stdout.write(json.dumps([what, value]) + "\n")
    sys.stdout.flush()


def subscribe(client: Any) -> None:
    """Create and subscribe; the client runs it after each connect."""
    answers = []
    for command in ({"cmd": "create"}, {"cmd": "sub", "window": 2}):
        message = zbus.Message()
        message.headers.update(command, mq="q", channel="c")
        answer = client.invoke(message, timeout=PATIENCE_S)
        answers.append(answer and answer["status"])
    tell("subscribed", answers)


def main(address: str) -> None:
    """Connect, and stay."""
    client = zbus.MqClient(address)
    client.log.setLevel("CRITICAL")
    client.reconnect_delay = 0.1
    client.onopen = subscribe
    client.add_mq_handler(
        mq="q", channel="c", handler=lambda message: tell("message", message["body"]), window=2
    )
    if int(websocket.__version__.split(".")[0]) >= 1:
        # These tell why a connection was closed, which the client of 2018 does not expect: it
        # would stay away for ever.
        closed = client._on_close
        client._on_close = lambda socket, *_why: closed(socket)
    client.connect()
    while os.read(0, 4096):
        pass
    os._exit(0)


main(*sys.argv[1:])
