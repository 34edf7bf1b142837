"""How a listener ends: the grace that clients have, and who is in a hurry."""

from __future__ import annotations

import socket
import threading

import pytest

from embedq import Broker
from embedq.app import listeners
from embedq.app.listeners import BrokerListener
from tests.conformance.transport_suite import dial, eventually
from tests.net.lines import LINES

HOUR = 3_600


def clogged(broker: Broker) -> tuple[BrokerListener, socket.socket]:
    """A client that is sent more than any kernel keeps for who reads nothing."""
    broker.queue("large").put(b"b" * 8_000_000)
    listener = broker.listen("lines://127.0.0.1:0", transport=LINES)
    client = dial(listener)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.sendall(b"GET large\n")
    assert client.recv(1) == b"M"
    return listener, client


def hurry(broker: Broker) -> None:
    assert broker._listening is not None
    broker._listening.hurry()


@pytest.mark.parametrize("who", ["stop", "broker"])
def test_who_gives_a_grace_gives_it_to_clients_too(tmp_path, monkeypatch, who):
    monkeypatch.setattr(listeners, "GRACE_S", HOUR)
    broker = Broker(tmp_path / "q.db", grace=0.05 if who == "broker" else HOUR)
    broker.start()
    listener, client = clogged(broker)
    broker.stop(0.05 if who == "stop" else None)
    assert listener.cut == 1
    client.close()


def test_without_a_grace_clients_have_that_of_listeners(tmp_path, monkeypatch):
    monkeypatch.setattr(listeners, "GRACE_S", 0.05)
    broker = Broker(tmp_path / "q.db")
    broker.start()
    broker.stop(HOUR)  # which holds for this stop only
    broker.start()
    listener, client = clogged(broker)
    broker.stop()
    assert listener.cut == 1
    client.close()


def test_who_is_in_a_hurry_cuts_clients_that_have_not_finished(tmp_path):
    broker = Broker(tmp_path / "q.db")
    broker.start()
    listener, client = clogged(broker)
    drained = threading.Thread(target=broker.stop, args=(HOUR,))
    drained.start()
    inner = listener.inner
    assert inner is not None
    eventually(lambda: inner._site.is_draining)
    assert listener.stats.connections == 1
    hurry(broker)
    drained.join(60)
    assert not drained.is_alive()
    assert listener.cut == 1
    client.close()


def test_who_is_in_a_hurry_before_the_drain_begins_need_not_wait_for_it(tmp_path):
    broker = Broker(tmp_path / "q.db")
    broker.start()
    listener, client = clogged(broker)
    hurry(broker)
    broker.stop(HOUR)
    assert listener.cut == 1
    client.close()
