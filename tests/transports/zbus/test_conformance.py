"""zbus keeps what every transport keeps: on a WebSocket, and over HTTP."""

from __future__ import annotations

import base64
from typing import ClassVar

import pytest

from embedq.app.listeners import BrokerListener
from embedq_transports.zbus import ZBUS
from tests.conformance.transport_suite import Dialect, TransportSuite
from tests.transports.zbus.ends import Http, Ws
from tests.transports.zbus.frames_of import frame

BYTES = "application/octet-stream"


class WsCaller(Ws):
    """Puts, and subscribes with a window of one for each message that it asks for."""

    def __init__(self, listener: BrokerListener) -> None:
        super().__init__(listener)
        self.asked = False
        answer = self.do(cmd="create", mq="q", mqType="disk", channel="default")
        assert answer["status"] == 200, answer

    def put(self, body: bytes) -> None:
        text = base64.b64encode(body).decode()
        answer = self.do(text, **{"cmd": "pub", "mq": "q", "Content-Type": BYTES})
        assert answer["status"] == 200, answer

    def ask(self) -> None:
        self.say(cmd="sub", mq="q", channel="default", window=1, ack=False)
        self.asked = True

    def get(self) -> bytes:
        if not self.asked:
            self.ask()
        self.asked = False
        found = self.next()
        assert found["status"] is None, found
        return b"" if found["body"] is None else base64.b64decode(found["body"])

    def settle(self) -> None:
        """Nothing: what has been sent is settled."""


class HttpCaller(Http):
    """Puts, and subscribes: messages come as responses nobody has asked for."""

    def __init__(self, listener: BrokerListener) -> None:
        super().__init__(listener)
        self.asked = False
        assert self.query(cmd="create", mq="q", channel="default", mqType="disk").status == 200

    def put(self, body: bytes) -> None:
        self.request(body, cmd="pub", mq="q", Content_Type=BYTES)
        assert self.response().status == 200

    def ask(self) -> None:
        self.request(cmd="sub", mq="q", channel="default", window="1", ack="false")
        self.asked = True

    def get(self) -> bytes:
        if not self.asked:
            self.ask()
        self.asked = False
        return self.response().body

    def settle(self) -> None:
        """Nothing: what has been sent is settled."""


class ZbusDialect(Dialect):
    url = "zbus://127.0.0.1:0"
    options: ClassVar[dict[str, object]] = {"transport": ZBUS}
    acks = False

    def __init__(self, caller: type[WsCaller | HttpCaller], fragment: bytes) -> None:
        self.caller = caller
        self.fragment = fragment

    def connect(self, listener: BrokerListener) -> WsCaller | HttpCaller:
        return self.caller(listener)


class TestWebSocket(TransportSuite):
    @pytest.fixture
    def dialect(self) -> Dialect:
        return ZbusDialect(WsCaller, frame('{"headers":{"cmd":"pub"}}')[:-3])


class TestHttp(TransportSuite):
    @pytest.fixture
    def dialect(self) -> Dialect:
        return ZbusDialect(HttpCaller, b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nab")
