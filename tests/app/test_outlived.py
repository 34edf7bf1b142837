"""A host ends in order while a client has a message in work: the client keeps it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from embedq import Broker, Empty


class Client:
    """An application that only connects; its handler goes on when it is told."""

    def __init__(self, path: Path) -> None:
        self.broker = Broker(path, role="client", grace="5s")
        self.begun, self.go = threading.Event(), threading.Event()
        self.handled: list[int] = []
        self.broker.queue("q", int).consumer(self.handle)

    def handle(self, number: int) -> None:
        """Work."""
        self.begun.set()
        assert self.go.wait(30)
        self.handled.append(number)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with Broker(tmp_path / "q.db", role="host") as host:
        client = Client(tmp_path / "q.db")
        client.broker.start()
        host.queue("q").put(1)
        assert client.begun.wait(60)
    yield client
    client.go.set()
    client.broker.stop()


def test_what_a_client_finishes_at_the_next_host_is_not_delivered_again(
    tmp_path: Path, client: Client
) -> None:
    with Broker(tmp_path / "q.db", role="host") as host:
        client.broker.queue("q").stats()  # it is here again, within the grace
        with pytest.raises(Empty):
            host.queue("q").get(timeout=0.5)
        client.go.set()
        client.broker.stop()
        assert client.handled == [1]
        assert host.queue("q").stats().length == 0
