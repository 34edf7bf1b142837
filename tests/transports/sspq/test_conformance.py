"""SSPQ keeps what every transport keeps."""

from __future__ import annotations

import pytest

from embedq.app.listeners import BrokerListener
from tests.conformance.transport_suite import Dialect, TransportSuite
from tests.interop.sspq_client import SEND, Whole, packet


class SspqCaller(Whole):
    """The client, in the words of the suite."""

    def put(self, body: bytes) -> None:
        self.send(body)

    def ask(self, *, dead: bool = False) -> None:
        if not self.has_received:
            super().ask(dead=dead)

    def get(self) -> bytes:
        return self.receive()

    def settle(self) -> None:
        self.confirm()


class SspqDialect(Dialect):
    url = "sspq://127.0.0.1:0?queue=q"
    confirms = False
    fragment = packet(SEND, 3, b"hello")[:-3]

    def connect(self, listener: BrokerListener) -> SspqCaller:
        address = listener.address
        assert isinstance(address, tuple)
        return SspqCaller(address)


class TestConformance(TransportSuite):
    @pytest.fixture
    def dialect(self) -> Dialect:
        return SspqDialect()
