"""TMQ keeps what every transport keeps."""

from __future__ import annotations

import pytest

from embedq.app.listeners import BrokerListener
from embedq_transports.tmq import TMQ
from tests.conformance.transport_suite import Dialect, TransportSuite
from tests.interop.tmq_client import Frame, TmqClient


class TmqCaller(TmqClient):
    last: Frame | None = None
    asked = False

    def put(self, body: bytes) -> None:  # type: ignore[override]
        super().put("q", 1, body)

    def ask(self) -> None:
        if not self.asked:
            assert self.join("q") == 200
        self.asked = True

    def get(self) -> bytes:
        self.ask()
        self.last = self.message()
        return self.last.body

    def settle(self) -> None:
        assert self.last is not None
        self.ack(self.last)


class TmqDialect(Dialect):
    url = "tmq://127.0.0.1:0?acknowledge=1&deliveries=stored"
    options = {"transport": TMQ}  # noqa: RUF012
    queue = "q/1"
    # Its first header announces ids of 255 bytes, which are read before the frame is refused.
    garbage = b"\x00\xff" * 256
    fragment = Frame(0x11, 1, b"id", b"", b"q", b"body").bytes()[:-2]

    def connect(self, listener: BrokerListener) -> TmqCaller:
        caller = TmqCaller(listener.address)
        caller.accepted()
        return caller


class TestConformance(TransportSuite):
    @pytest.fixture
    def dialect(self) -> Dialect:
        return TmqDialect()
