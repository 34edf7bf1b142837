"""PHPMQ keeps what every transport keeps."""

from __future__ import annotations

import pytest

from embedq.app.listeners import BrokerListener
from tests.conformance.transport_suite import Dialect, TransportSuite
from tests.interop.phpmq_client import Message, PhpmqClient


class PhpmqCaller(PhpmqClient):
    last: Message | None = None
    asked = False

    def put(self, body: bytes) -> None:
        self.publish(b"q", body)

    def ask(self) -> None:
        if not self.asked:
            self.consume(b"q", 1)
        self.asked = True

    def get(self) -> bytes:
        self.ask()
        self.last = self.receive()
        return self.last.content

    def settle(self) -> None:
        assert self.last is not None
        self.ack(b"q", self.last.id)


class PhpmqDialect(Dialect):
    url = "phpmq://127.0.0.1:0"
    confirms = False
    fragment = b"H0100102P01"

    def connect(self, listener: BrokerListener) -> PhpmqCaller:
        return PhpmqCaller(listener.address)


class TestConformance(TransportSuite):
    @pytest.fixture
    def dialect(self) -> Dialect:
        return PhpmqDialect()
