"""A program of users: the original Python client of zbus, unmodified, against one server.

Run it with the address, and a key and a secret if messages are to be signed. It writes what came
of each step as JSON. It knows both generations: 1.0.20 and 1.2.0. Not a test.
"""

from __future__ import annotations

import inspect
import json
import os
import queue
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.request import urlopen

import zbus  # type: ignore[import-untyped]

ALL = "url,method,body,h.*"
BODIES: list[Any] = [
    "hello",
    "héllo 你好 😀",
    "test",
    {"b": [1, 2.5, None], "a": "x"},
    [1],
    5,
    None,
]
PATIENCE_S = 30


class Spec(NamedTuple):
    """What services of the client ask of a function, in a way that Python 3.11 has no more."""

    args: list[str]
    varargs: str | None
    keywords: str | None
    defaults: tuple[Any, ...] | None

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Spec:
        """Return what inspect.getargspec did."""
        return cls(*inspect.getfullargspec(function)[:4])


class Adder:
    """A service."""

    def add(self, a: Any, b: Any) -> int:
        """Add what may be texts of a form."""
        return int(a) + int(b)


def client_of(address: str, signing: list[str]) -> Any:
    client = zbus.MqClient(address)
    client.log.setLevel("ERROR")
    if signing:
        client.enable_auth(*signing)
        client.sign_fields = ALL  # 1.0.20 knows no fields: it signs all there is

        def prepare(message: Any) -> None:
            # 1.2.0 removes a signature before it signs, and fails if there is none.
            message["headers"].setdefault("signature", "")

        if hasattr(zbus.zbus, "to_json_sign"):
            client.before_send = prepare
    return client


def ask(client: Any, body: Any = None, **headers: Any) -> dict[str, Any]:
    message = zbus.Message()
    message.headers.update(headers)
    if body is not None:
        message.body = body
    answer = client.invoke(message, timeout=PATIENCE_S)
    return {"status": answer["status"], "body": answer["body"]}


def wait_for(condition: Callable[[], object]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until, "the service did not come"
        time.sleep(0.02)


def messages(address: str, signing: list[str]) -> dict[str, Any]:
    """Put, subscribe with a small window, take, query, remove."""
    client, came = client_of(address, signing), queue.Queue[Any]()
    client.add_mq_handler(mq="z", channel="c", handler=came.put, window=2)
    client.connect()
    told: dict[str, Any] = {
        "create": ask(client, cmd="create", mq="z", channel="c"),
        "other": ask(client, cmd="create", mq="z", channel="d"),
        "sub": ask(client, cmd="sub", mq="z", channel="c", window=2, filter="a.*"),
    }
    publisher = client_of(address, signing)
    publisher.connect()
    told["pub"] = [ask(publisher, body, cmd="pub", mq="z", tag="a.b") for body in BODIES[:-1]]
    ask(publisher, "not wanted", cmd="pub", mq="z", tag="b")  # the window was set anew by now
    told["pub"].append(ask(publisher, BODIES[-1], cmd="pub", mq="z", tag="a.b"))
    pushes = [came.get(timeout=PATIENCE_S) for _ in BODIES]
    told["pushed"] = [each["body"] for each in pushes]
    told["tags"] = sorted({each["headers"]["tag"] for each in pushes})
    taken = ask(client, cmd="take", mq="z", channel="d", window=99)
    told["taken"] = [each["body"] for each in taken["body"] if each["headers"]["tag"] == "a.b"]
    told["nothing"] = ask(client, cmd="take", mq="z", channel="d")
    told["query"] = ask(client, cmd="query", mq="z")["body"]["name"]
    told["remove"] = ask(publisher, cmd="remove", mq="z")
    told["told"] = came.get(timeout=PATIENCE_S)["status"]
    return told


def calls(address: str) -> dict[str, Any]:
    """Call a service, with its own client and with a form over HTTP."""
    inspect.__dict__.setdefault("getargspec", Spec.of)
    processor = zbus.RpcProcessor()
    processor.mount("/m", Adder())
    server = zbus.RpcServer(processor)
    server.mq_server_address, server.mq, server.mq_mask = address, "/svc", 1
    server.start()
    there = client_of(address, [])
    there.connect()
    wait_for(lambda: ask(there, cmd="query", mq="/svc")["status"] == 200)
    wait_for(lambda: ask(there, cmd="query", mq="/svc")["body"]["consumerCount"])
    caller = zbus.RpcClient(address, url_prefix="/svc/m")
    form = urlopen(f"http://{address}/svc/m/add", b"a=3&b=4", PATIENCE_S)
    return {
        "sum": caller.invoke(method="add", params=[1, 2], url_prefix="/svc/m"),
        "form": json.loads(form.read()),
        "path": json.loads(urlopen(f"http://{address}/svc/m/add/5/6", None, PATIENCE_S).read()),
    }


def main(address: str, *signing: str) -> None:
    """Do it all; threads of the client never end by themselves."""
    told = messages(address, list(signing))
    if not signing:
        told |= calls(address)
    sys.stdout.write(json.dumps(told))
    sys.stdout.flush()
    os._exit(0)


main(*sys.argv[1:])
