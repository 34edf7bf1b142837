"""Who opens a file first is its host; whoever comes later is connected to it."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from embedq import Broker, StoreInUse
from embedq.app.hosting import Backing, open_backing
from embedq.broker.host import open_engine
from embedq.errors import Empty, NoHost
from tests.ipc.abroad import free_port, make_keys

OTHER = """
import sys
from embedq import Broker
with Broker(sys.argv[1]) as broker:
    orders = broker.queue("orders", int)
    receipt = orders.put(int(sys.argv[2]))
    print(receipt.id, orders.stats().length, type(broker.desk).__name__)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "app.db"


def other_process(path: Path, number: int) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", OTHER, str(path), str(number)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.split()


def test_a_second_process_puts_through_the_first(path: Path) -> None:
    with Broker(path) as broker:
        orders = broker.queue("orders", int)
        broker.backing.wait_until_served()
        ident, length, desk = other_process(path, 7)
        assert (length, desk) == ("1", "RemoteDesk")
        with orders.get(60) as delivery:
            assert (delivery.id, delivery.body) == (ident, 7)


def open_and_doze(*arguments: object) -> Backing:
    """Open a file, and go on only when others are served, as a thread that gets no processor."""
    backing = open_backing(*arguments)  # type: ignore[arg-type]
    backing.wait_until_served()
    return backing


def hears(broker: Broker, event: str) -> bool:
    heard = threading.Event()
    broker.on(event, lambda _: heard.set())
    with broker:
        broker.backing.wait_until_served()
        broker.desk.events.flush(60)
        return heard.is_set()


def test_what_happens_while_a_host_begins_to_serve_is_heard(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("embedq.app.openable.open_backing", open_and_doze)
    endpoint, keys = f"tcp://127.0.0.1:{free_port()}", make_keys(path.with_name("keys"), "ada")
    assert hears(Broker(path, endpoint=endpoint, keys=keys), "reachable")
    blocked = path.with_name("blocked.db")
    blocked.with_name("blocked.db.ipc").touch()
    assert hears(Broker(blocked), "not_served")


def test_a_process_alone_is_the_host(path: Path) -> None:
    ident, length, desk = other_process(path, 7)
    assert (length, desk) == ("1", "Desk")
    with Broker(path) as broker:
        assert [message.id for message in broker.queue("orders").peek()] == [ident]


def test_a_second_broker_of_a_process_is_connected_to_the_first(path: Path) -> None:
    with Broker(path) as host, Broker(path, role="client") as client:
        there, here = host.queue("orders", str), client.queue("orders", str)
        here.put("through the socket", priority=3, headers={"a": "b"})
        with there.get(60) as delivery:
            assert (delivery.body, delivery.priority) == ("through the socket", 3)
            assert dict(delivery.headers) == {"a": "b"}
        there.put_many(["one", "two"])
        first, second = here.get_many(2, 5)
        first.ack()
        second.reject("not wanted")
        with pytest.raises(Empty):
            here.get(0)
        (letter,) = here.dead.list()
        assert (letter.detail, letter.body) == ("not wanted", b"two")
        assert [receipt.seq for receipt in here.dead.redrive()] == [4]
        told, known = here.stats(), there.stats()
        assert (told.length, told.put, told.events) == (1, 4, known.events)
        here.pause()
        assert there.paused
        assert [group.name for group in here.groups] == ["default"]
        assert here.purge() == 1


def test_a_consumer_of_a_client_handles_what_the_host_puts(path: Path) -> None:
    seen: list[int] = []
    with Broker(path) as host:
        client = Broker(path, role="client")

        @client.queue("orders", int).consumer
        def see(number: int) -> None:
            seen.append(number)

        with client:
            orders = host.queue("orders", int)
            orders.put_many(range(20))
            while orders.stats().length:
                pass
        assert sorted(seen) == list(range(20))


def test_an_event_at_the_host_is_told_to_a_client_that_listens(path: Path) -> None:
    heard: list[str] = []
    with Broker(path) as host:
        client = Broker(path, role="client")
        client.on("paused", lambda notice: heard.append(str(notice.queue)))
        with client:
            client.queue("orders").put("x")  # what it listens to is known before the answer
            host.queue("orders").pause()
            while not heard:
                pass
    assert heard == ["orders"]


def test_a_client_without_a_host_says_so(path: Path) -> None:
    with pytest.raises(NoHost, match="hosts"):
        Broker(path, role="client").queue("orders").put("x")


def test_a_host_that_serves_nobody_is_in_use(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("embedq.app.hosting.PATIENCE_S", 0.2)
    with open_engine(path), pytest.raises(StoreInUse):
        Broker(path).queue("orders").put("x")
