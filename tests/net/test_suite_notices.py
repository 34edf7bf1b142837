"""The suite of transports notices a session that breaks its rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from embedq import Broker
from embedq.app.listeners import BrokerListener
from embedq.net import Connection, Delivery, Session, Site
from tests.conformance.transport_suite import TransportSuite
from tests.net.client import Client
from tests.net.lines import LinesSession, LinesTransport
from tests.net.test_lines import Lines


class Cuts(LinesSession):
    def deliver(self, delivery: Delivery) -> None:
        """Leave out the last byte."""
        self.held[delivery.id] = delivery
        self.say(f"MESSAGE {delivery.id} {delivery.body[:-1].decode()}")


class Early(LinesSession):
    def request(self, line: bytes) -> None:
        """Confirm, and never put."""
        if line.startswith(b"PUT"):
            self.say("STORED " + "0" * 32)
        else:
            super().request(line)


def broken(session: type[LinesSession]) -> Any:
    class Broken(LinesTransport):
        def open(self, site: Site) -> Callable[[Connection], Session]:
            return lambda connection: session(connection, create=True)

    class Speaks(Lines):
        options: ClassVar[dict[str, Any]] = {"transport": Broken()}

        def connect(self, listener: BrokerListener) -> Client:
            """Remember the client: a test that fails does not close it."""
            self.callers = [*getattr(self, "callers", []), super().connect(listener)]
            return self.callers[-1]

    return Speaks()


def test_a_body_that_is_changed_is_noticed(tmp_path):
    dialect = broken(Cuts)
    with Broker(tmp_path / "q.db") as broker, pytest.raises(AssertionError):
        TransportSuite().test_what_is_put_in_python_is_got_on_the_wire_byte_for_byte(
            broker, lambda: broker.listen(dialect.url, **dialect.options), dialect
        )
    dialect.callers[0].close()


def test_a_confirmation_before_the_commit_is_noticed(tmp_path):
    dialect = broken(Early)
    with pytest.raises(AssertionError):
        TransportSuite().test_what_is_confirmed_is_stored_when_the_host_ends(tmp_path, dialect)
    dialect.callers[0].close()


class Hasty(LinesSession):
    """Takes what has come so far for a line."""

    def received(self, data: bytes) -> None:
        super().received(data if data.endswith(b"\n") else data + b"\n")


class Trusting(LinesSession):
    """Admits everybody."""

    def __init__(self, connection: Connection, *, create: bool) -> None:
        super().__init__(connection, create=create)
        connection.admit()


def test_a_session_that_knows_whole_lines_only_is_noticed(tmp_path, monkeypatch):
    dialect = broken(Hasty)
    noticed = pytest.raises((AssertionError, ConnectionError))
    with Broker(tmp_path / "q.db") as broker, noticed:
        TransportSuite().test_bytes_that_come_one_at_a_time_mean_the_same(
            lambda: broker.listen(dialect.url, **dialect.options), dialect, monkeypatch
        )
    dialect.callers[0].close()


def test_a_session_that_admits_everybody_is_noticed(tmp_path, monkeypatch):
    dialect = broken(Trusting)
    with Broker(tmp_path / "q.db") as broker, pytest.raises(AssertionError):
        TransportSuite().test_who_has_not_logged_in_puts_nothing(broker, dialect, monkeypatch)
    dialect.callers[0].close()
