"""A session that raises where it is told of a settlement is one client's defect: others go on."""

from __future__ import annotations

import logging

import pytest

from tests.net.client import Client
from tests.net.lines import LinesSession


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
