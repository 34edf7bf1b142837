"""Responses to messages that were pulled: they reach their producer, under its own id, once."""

from __future__ import annotations

import pytest

from tests.interop.speakers import until
from tests.interop.tmq_client import RESPONSE, Frame, TmqClient

NOT_FOUND = 404


@pytest.fixture
def jobs(connect):
    """The producer `c1`, and a pull queue of the content type 300 in the channel `ch-1`."""
    producer = connect("c1")
    producer.create("ch-1", 300, queue_status="pull")
    return producer


@pytest.fixture
def member(connect):
    def member(name: str) -> TmqClient:
        client = connect(name)
        client.join("ch-1")
        return client

    return member


def synced(client: TmqClient) -> TmqClient:
    assert client.command(602, "no such channel") == NOT_FOUND
    return client


def asks(producer: TmqClient, id: bytes, body: bytes = b"?") -> None:
    producer.push("ch-1", 300, body, id=id, wants_response=True)
    synced(producer)


def pull(client: TmqClient, id: bytes) -> Frame:
    client.push("ch-1", 300, b"", id=id, wants_response=True)
    return client.answer(id)


def answers(client: TmqClient, id: bytes, body: bytes, target: bytes = b"ch-1") -> None:
    client.send(Frame(RESPONSE, 777, id, client.id, target, body))
    synced(client)


def dropped(listen) -> int:
    return listen().stats.counts.get("dropped response", 0)


def test_the_bytes_are_those_of_the_specification(jobs, member):
    consumer = member("c2")
    jobs.socket.sendall(bytes.fromhex("11900202042c01026d70633163682d31713f"))
    synced(jobs)
    consumer.socket.sendall(bytes.fromhex("11900202042c01006739633263682d31"))
    assert consumer.answer(b"g9").wants_response
    consumer.socket.sendall(bytes.fromhex("1410020204bc02026739633263682d316121"))
    assert jobs.receive().bytes().hex() == "140f020204bc02026d70633263682d316121"


@pytest.mark.parametrize("target", [b"ch-1", b"CH-1", b"c1"])
def test_it_reaches_the_producer_whether_it_names_the_channel_or_the_producer(
    jobs, member, target
):
    consumer = member("c2")
    asks(jobs, b"mp")
    pull(consumer, b"g1")
    answers(consumer, b"g1", b"!", target)
    assert jobs.receive() == Frame(RESPONSE, 777, b"mp", b"c2", target, b"!", ttl=15)


@pytest.mark.parametrize("target", [b"ch-1", b""])
def test_it_reaches_a_producer_whose_name_is_hidden(jobs, member, target):
    consumer = member("c2")
    jobs.update("ch-1", 300, hide_client_names=True)
    asks(jobs, b"mp")
    assert pull(consumer, b"g1").source == b""
    answers(consumer, b"g1", b"!", target)
    assert jobs.answer(b"mp").body == b"!"


def test_consumers_that_pull_under_the_same_id_answer_what_they_have_pulled(jobs, connect, member):
    other, first, second = connect("c9"), member("c2"), member("c3")
    asks(jobs, b"m1", b"a")
    asks(other, b"m1", b"b")
    asks(jobs, b"m2", b"c")
    assert [pull(each, b"g").body for each in (first, second, first)] == [b"a", b"b", b"c"]
    answers(second, b"g", b"to b")
    answers(first, b"g", b"to a")
    answers(first, b"g", b"to c")
    assert other.receive().body == b"to b"
    got = [jobs.receive() for _ in range(2)]
    assert [(each.id, each.body) for each in got] == [(b"m1", b"to a"), (b"m2", b"to c")]


def test_only_the_first_response_goes_to_the_producer(jobs, member, listen):
    consumer = member("c2")
    asks(jobs, b"mp")
    pull(consumer, b"g1")
    for body in (b"first", b"second"):
        answers(consumer, b"g1", body)
    assert synced(jobs).inbox.popleft().body == b"first"
    assert not jobs.inbox
    assert dropped(listen) == 1


def test_whoever_has_not_pulled_it_cannot_answer_for_its_puller(jobs, member, listen):
    consumer, other = member("c2"), member("c3")
    asks(jobs, b"mp")
    pull(consumer, b"g1")
    answers(other, b"g1", b"not mine")
    assert dropped(listen) == 1
    answers(consumer, b"g1", b"mine")
    assert jobs.answer(b"mp").body == b"mine"


def test_a_message_that_nobody_wants_answered_sends_no_response_to_anybody(jobs, member, listen):
    consumer = member("c2")
    jobs.push("ch-1", 300, b"x", id=b"mp")
    synced(jobs)
    assert not pull(consumer, b"g1").wants_response
    answers(consumer, b"g1", b"!")
    synced(jobs)
    assert not jobs.inbox
    assert dropped(listen) == 1


def test_when_its_puller_has_gone_the_next_one_answers(jobs, connect, member, listen):
    jobs.update("ch-1", 300, request_acknowledge=True)
    first, second = member("c2"), member("c3")
    asks(jobs, b"mp")
    pull(first, b"g1")
    first.close()
    until(lambda: listen().stats.connections == 2)
    again = member("c2")
    answers(again, b"g1", b"of another connection")
    until(lambda: pull(second, b"g2").body == b"?")
    answers(second, b"g2", b"!")
    assert jobs.receive().body == b"!"
    assert dropped(listen) == 1


def test_a_producer_that_has_gone_is_answered_when_it_is_there_again(
    jobs, connect, member, listen
):
    consumer = member("c2")
    for id in (b"m1", b"m2"):
        asks(jobs, id)
    pull(consumer, b"g1")
    pull(consumer, b"g2")
    jobs.close()
    until(lambda: listen().stats.connections == 1)
    answers(consumer, b"g1", b"to nobody")
    again = connect("c1")
    answers(consumer, b"g2", b"!")
    assert again.receive().id == b"m2"
    assert dropped(listen) == 1


@pytest.mark.parametrize(("after_s", "is_late"), [(29, False), (31, True)])
def test_it_is_waited_for_no_longer_than_its_producer_does(
    jobs, member, clock, listen, after_s, is_late
):
    consumer = member("c2")
    asks(jobs, b"mp")
    pull(consumer, b"g1")
    clock.advance(after_s)
    answers(consumer, b"g1", b"!")
    synced(jobs)
    assert [each.id for each in jobs.inbox] == ([] if is_late else [b"mp"])
    assert dropped(listen) == is_late


def test_a_response_to_another_client_under_the_id_of_a_pull_is_that_clients(
    jobs, connect, member
):
    other, consumer = connect("c9"), member("c2")
    asks(jobs, b"mp")
    pull(consumer, b"g1")
    answers(consumer, b"g1", b"for c9", b"c9")
    assert other.receive().id == b"g1"
    answers(consumer, b"g1", b"!")
    assert jobs.answer(b"mp").body == b"!"
