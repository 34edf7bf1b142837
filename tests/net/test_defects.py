"""Who raises where it is told of something is one client's defect, or one call's: others go on."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from embedq.message import Draft
from embedq.net import Connection, Delivery, Session, Site
from tests.conformance.transport_suite import eventually
from tests.net.client import Client
from tests.net.lines import LinesSession, LinesTransport


def test_who_raises_when_it_is_told_of_a_settlement_keeps_nothing_from_the_others(
    broker, listen, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    queue = broker.queue("q")
    queue.put_many(["one", "two", "three", "four"])
    client = Client(listen())
    for _ in range(2):
        client.ask()
    held = [client.line().split()[1] for _ in range(2)]
    told, planted = LinesSession.settled, [AttributeError("planted")]

    def defective(session, error):
        if planted:
            raise planted.pop()
        told(session, error)

    monkeypatch.setattr(LinesSession, "settled", defective)
    # All of this is one commit: the second ack is answered, and what was claimed is handed out.
    lines = f"ACK {held[0]}\nACK {held[1]}\nGET q\nGET q\n"
    client.socket.sendall(lines.encode())
    answers = [client.line().split()[0] for _ in range(3)]
    client.close()
    assert answers == ["OK", "MESSAGE", "MESSAGE"]
    assert queue.stats().stored == 2
    (record,) = (each for each in caplog.records if each.levelno == logging.ERROR)
    assert record.message.startswith("a call of the listeners failed")


class Handing(LinesTransport):
    """Does with the queues of its listener what its tests say, when it begins."""

    def __init__(self, begin: Callable[[Site], object]) -> None:
        self._begin = begin

    def open(self, site: Site) -> Callable[[Connection], Session]:
        self._begin(site)
        return super().open(site)


def defects(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.message for each in caplog.records if each.levelno == logging.ERROR]


def test_a_message_whose_delivery_to_a_listener_raises_comes_again_and_the_others_come(
    broker, caplog
):
    queue = broker.queue("q", bytes)
    queue.put_many([b"%d" % n for n in range(6)])
    got: list[bytes] = []
    planted = [AttributeError("planted")]

    def deliver(delivery: Delivery) -> None:
        if planted:
            raise planted.pop()
        got.append(delivery.body)
        delivery.ack()

    begun = Handing(lambda site: site.broker.subscribe("q", deliver))
    listener = broker.listen("lines://127.0.0.1:0", transport=begun)
    eventually(lambda: queue.stats().stored == 0)
    assert sorted(got) == [b"%d" % n for n in range(6)]
    (told,) = defects(caplog)
    assert listener.url in told
    assert listener.stats.faults == {"defect": 1}


def test_what_a_listener_takes_and_raises_at_is_given_back(broker, caplog):
    queue = broker.queue("q", bytes)
    queue.put_many([b"a", b"b", b"c"])

    def taken(_got: object) -> None:
        raise AttributeError("planted")

    begun = Handing(lambda site: site.broker.take("q", 3, taken))
    listener = broker.listen("lines://127.0.0.1:0", transport=begun)
    eventually(lambda: listener.stats.faults == {"defect": 1})
    with queue.get(60) as first, queue.get(60) as second, queue.get(60) as third:
        assert [first.body, second.body, third.body] == [b"a", b"b", b"c"]
    assert len(defects(caplog)) == 1


def test_a_listener_that_raises_when_a_put_is_stored_keeps_nothing_from_the_others(broker, caplog):
    told: list[object] = []

    def stored(result: object) -> None:
        told.append(result)
        if len(told) == 1:
            raise AttributeError("planted")

    def begin(site: Site) -> None:
        for _ in range(3):
            site.broker.put("q", Draft(b"x"), stored)

    listener = broker.listen("lines://127.0.0.1:0", transport=Handing(begin))
    eventually(lambda: len(told) == 3)
    assert listener.stats.faults == {"defect": 1}
    assert len(defects(caplog)) == 1
