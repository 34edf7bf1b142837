"""A protocol of four requests on the port of transports: puts, deliveries, acks, disconnects."""

from __future__ import annotations

from typing import ClassVar

import pytest

from tests.conformance.transport_suite import Dialect, TransportSuite
from tests.net.client import Client
from tests.net.lines import LINES


class Lines(Dialect):
    url = "lines://127.0.0.1:0"
    options: ClassVar[dict[str, object]] = {"transport": LINES}
    garbage = b"HELLO?\n"
    fragment = b"PUT q "
    bodies = (b"", b"x", "Grüße".encode(), b"b" * 100_000)

    def connect(self, listener):
        return Client(listener)


class TestConformance(TransportSuite):
    @pytest.fixture
    def dialect(self):
        return Lines()
