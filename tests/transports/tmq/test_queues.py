"""Who gets a message: route, push, in turn, pull, paused and stopped queues; first acquirers."""

from __future__ import annotations

import socket
import struct
import threading

import pytest

from embedq.app.listeners import BrokerListener
from tests.interop.speakers import until
from tests.interop.tmq_client import JOIN, SERVER, Frame, TmqClient

OK, NOT_FOUND, UNAUTHORIZED, UNACCEPTABLE, DUPLICATE, LIMIT = 200, 404, 401, 406, 481, 482


def bodies(client: TmqClient, count: int) -> list[bytes]:
    return [client.message().body for _ in range(count)]


def counted(listener: BrokerListener, what: str) -> int:
    return listener.stats.counts.get(what, 0)


def synced(client: TmqClient) -> TmqClient:
    """Wait until all is done that a client has sent: a command waits for its puts."""
    assert client.command(602, "no such channel") == NOT_FOUND
    return client


# --- push -----------------------------------------------------------------------------------


def test_a_push_goes_to_all_members_and_the_first_who_joined_is_the_first_acquirer(
    orders, connect
):
    first, second, producer = connect("c1"), connect("c2"), connect("p")
    assert first.join("orders") == second.join("orders") == OK
    id = producer.push("orders", 1, b"hello")
    expected = Frame(0x11, 1, id, b"p", b"orders", b"hello", ttl=15)
    assert second.message() == expected
    assert first.message() == Frame(**{**expected.__dict__, "first": True})
    until(lambda: orders.stats().stored == 0)


def test_what_was_pushed_with_nobody_there_comes_when_somebody_joins_urgent_ones_first(connect):
    producer = connect("p")
    assert producer.create("orders", 1) == OK
    for body, urgent in [(b"n0", False), (b"u0", True), (b"n1", False), (b"u1", True)]:
        producer.push("orders", 1, body, urgent=urgent)
    synced(producer)
    consumer = connect("c")
    consumer.join("orders")
    got = [consumer.message() for _ in range(4)]
    assert [each.body for each in got] == [b"u0", b"u1", b"n0", b"n1"]
    assert [each.urgent for each in got] == [True, True, False, False]
    assert all(each.first for each in got)


def test_a_producer_that_has_joined_gets_its_own_messages(orders, connect):
    client = connect("c")
    client.join("orders")
    client.push("orders", 1, b"mine")
    assert client.message().body == b"mine"


def test_channels_are_the_same_in_any_case_and_keep_the_spelling_of_the_producer(orders, connect):
    consumer, producer = connect("c"), connect("p")
    assert consumer.join("ORDERS") == OK
    producer.push("Orders", 1, b"x")
    assert consumer.message().target == b"Orders"
    orders.put(b"from Python")
    assert consumer.message().target == b"orders"


def test_who_has_joined_twice_gets_one_copy(orders, connect):
    client = connect("c")
    assert client.join("orders") == client.join("Orders") == OK
    orders.put(b"a")
    orders.put(b"b")
    assert bodies(client, 2) == [b"a", b"b"]


def test_who_has_left_gets_nothing_and_cannot_leave_twice(orders, connect):
    client, other = connect("c"), connect("d")
    client.join("orders")
    other.join("orders")
    assert client.leave("orders") == OK
    assert client.leave("orders") == NOT_FOUND
    orders.put(b"x")
    assert other.message().body == b"x"
    synced(client)
    assert not client.inbox


def test_only_the_first_acquirer_gets_it_if_the_queue_says_so(connect):
    first, second = connect("c1"), connect("c2")
    assert first.create("orders", 1, only_first_acquirer=True) == OK
    first.join("orders")
    second.join("orders")
    for body in (b"a", b"b"):
        second.push("orders", 1, body)
    assert bodies(first, 2) == [b"a", b"b"]
    synced(second)
    assert not second.inbox


def test_names_of_producers_can_be_hidden(connect):
    client = connect("c")
    client.create("orders", 1, hide_client_names=True)
    client.join("orders")
    client.push("orders", 1, b"x")
    assert client.message().source == b""


def test_a_message_without_an_id_gets_one_unless_the_queue_makes_none(orders, connect):
    client = connect("c")
    client.create("plain", 1, use_message_id=False)
    client.join("orders")
    client.join("plain")
    orders.put(b"from Python")
    assert len(client.message().id) == 32
    client.push("plain", 1, b"x", id=b"")
    assert client.message().id == b""


def test_the_flags_of_a_producer_that_are_not_the_servers_come_through(orders, connect):
    client = connect("c")
    client.join("orders")
    client.push("orders", 1, b"x", wants_response=True, wants_delivery=True, first=True, ttl=40)
    got = client.message()
    assert (got.wants_response, got.wants_delivery, got.first, got.ttl) == (True, False, True, 39)


@pytest.mark.parametrize("ttl", [1, 2])
def test_a_stored_message_reaches_its_consumer_with_a_hop_left(orders, connect, ttl):
    client = connect("c")
    client.join("orders")
    client.push("orders", 1, b"x", ttl=ttl)
    assert client.message().ttl == 1


def test_a_push_with_no_hop_left_is_dropped(orders, connect, listen):
    client = connect("c")
    client.push("orders", 1, b"x", ttl=0)
    synced(client)
    assert orders.stats().stored == 0
    assert counted(listen(), "dropped ttl") == 1


# --- route ----------------------------------------------------------------------------------


def test_a_route_with_nobody_there_is_dropped_and_counted(connect, listen, broker):
    producer, consumer = connect("p"), connect("c")
    producer.create("news", 7, queue_status="route")
    producer.push("news", 7, b"lost")
    synced(producer)
    assert counted(listen(), "dropped route") == 1
    consumer.join("news")
    producer.push("news", 7, b"heard")
    assert bodies(consumer, 1) == [b"heard"]
    until(lambda: broker.queue("news/7").stats().stored == 0)


# --- in turn --------------------------------------------------------------------------------


def test_round_robin_begins_with_the_first_member_and_gives_each_message_to_one(connect):
    producer = connect("p")
    producer.create("work", 1, queue_status="rr")
    members = [connect(f"c{number}") for number in range(3)]
    for member in members:
        member.join("work")
    for number in range(6):
        producer.push("work", 1, b"%d" % number)
    got = [[member.message() for _ in range(2)] for member in members]
    assert [[each.body for each in pair] for pair in got] == [
        [b"0", b"3"],
        [b"1", b"4"],
        [b"2", b"5"],
    ]
    assert all(each.first for pair in got for each in pair)


def test_round_robin_without_members_keeps_its_messages(connect):
    producer = connect("p")
    producer.create("work", 1, queue_status="roundrobin")
    producer.push("work", 1, b"x")
    member = connect("c")
    member.join("work")
    assert bodies(member, 1) == [b"x"]


# --- pull -----------------------------------------------------------------------------------


def test_a_pull_gets_one_message_under_the_id_of_its_request(connect):
    producer, member = connect("p"), connect("c")
    assert producer.create("jobs", 300, queue_status="pull") == OK
    member.join("jobs")
    for body, urgent in [(b"one", False), (b"two", True)]:
        producer.push("jobs", 300, body, urgent=urgent)
    synced(producer)
    got = member.pull("jobs", 300)
    assert (got.content, got.body, got.source, got.urgent) == (300, b"two", b"p", True)
    assert (got.target, got.ttl) == (b"jobs", 15)
    assert member.pull("jobs", 300).body == b"one"
    assert member.pull("jobs", 300).content == NOT_FOUND
    assert producer.pull("jobs", 300).content == UNAUTHORIZED


def test_what_a_client_has_pushed_it_can_pull_behind_it(connect):
    client = connect("c")
    client.create("jobs", 1, queue_status="pull")
    client.join("jobs")
    frames = [client.pushing("jobs", 1, b"x"), client.pushing("jobs", 1, b"", wants_response=True)]
    client.socket.sendall(b"".join(frame.bytes() for frame in frames))
    assert client.answer(frames[1].id).body == b"x"


def test_on_a_queue_of_another_kind_an_empty_push_is_a_push(orders, connect):
    client = connect("c")
    client.join("orders")
    client.push("orders", 1, b"", wants_response=True)
    assert client.message().body == b""


# --- paused and stopped -----------------------------------------------------------------------


def test_a_paused_queue_keeps_what_comes_until_it_is_something_else(connect, broker):
    client = connect("c")
    client.create("orders", 1)
    client.join("orders")
    assert client.update("orders", 1, queue_status="pause") == OK
    client.push("orders", 1, b"x")
    synced(client)
    assert broker.queue("orders/1").stats().stored == 1
    assert not client.inbox
    assert client.update("orders", 1, queue_status="push") == OK
    assert bodies(client, 1) == [b"x"]


def test_a_stopped_queue_is_empty_and_takes_nothing(connect, broker):
    client = connect("c")
    client.create("orders", 1, queue_status="pull")
    client.push("orders", 1, b"x")
    assert client.update("orders", 1, queue_status="stop") == OK
    assert broker.queue("orders/1").stats().stored == 0
    answer = client.answer(client.push("orders", 1, b"y"))
    assert (answer.content, answer.target, answer.ttl) == (UNACCEPTABLE, b"orders", 16)


# --- what there is ------------------------------------------------------------------------------


def test_a_push_to_what_is_not_there_is_refused_if_it_has_an_id(connect, listen):
    client = connect("c")
    client.push("nowhere", 1, b"x", id=b"")
    answer = client.answer(client.push("nowhere", 1, b"x"))
    assert (answer.content, answer.target, answer.first) == (NOT_FOUND, b"nowhere", True)
    assert counted(listen(), "unanswered 404") == 1
    assert client.join("nowhere") == NOT_FOUND


@pytest.mark.parametrize("name", ["", "@name:x", "n" * 250])
def test_there_are_names_that_no_channel_has(connect, name):
    client = connect("c", create=True)
    assert client.answer(client.push(name, 1, b"x")).content == NOT_FOUND
    assert client.join(name) == NOT_FOUND
    assert client.create(name, 1) == 400


def test_a_listener_can_make_what_is_named(connect, broker):
    consumer, producer = connect("c", create=True), connect("p", create=True)
    assert consumer.join("new") == OK
    producer.push("new", 5, b"x")
    assert bodies(consumer, 1) == [b"x"]
    assert [queue.name for queue in broker.queues if queue.name[0] != "@"] == ["new/5"]


def test_a_queue_that_python_makes_is_there_for_pushes_at_once_and_for_members_soon(
    connect, broker, clock, listen
):
    client = connect("c", create=True)
    client.join("late")
    broker.queue("late/1").put(b"x")
    clock.advance(6)
    listen(create=True).look()
    assert bodies(client, 1) == [b"x"]
    broker.queue("other/1")
    client.put("other", 1, b"y")
    assert broker.queue("other/1").stats().stored == 1


def test_who_goes_while_its_join_is_under_way_is_no_member(broker, connect, listen, monkeypatch):
    gone, here = connect("c1"), connect("c2")
    broker.queue("late/1", bytes).stats()
    office, asked, go = broker.desk.office, threading.Event(), threading.Event()
    queues = office.queues

    def slow() -> list[str]:
        asked.set()
        assert go.wait(60)
        return queues()

    monkeypatch.setattr(office, "queues", slow)
    gone.send(Frame(SERVER, JOIN, gone.new_id(), gone.source, b"late", wants_response=True))
    assert asked.wait(60)
    gone.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    gone.socket.close()
    until(lambda: listen().stats.connections == 1)
    go.set()
    assert here.join("late") == OK
    assert here.update("late", 1, only_first_acquirer=True) == OK
    broker.queue("late/1").put(b"x")
    assert bodies(here, 1) == [b"x"]


def test_commands_answer_what_the_originals_leave_open(connect):
    client = connect("c")
    assert client.command(603, "ch") == OK
    assert client.command(603, "CH") == DUPLICATE
    assert client.create("ch", 300) == OK
    assert client.create("ch", 300) == DUPLICATE
    assert client.command(612, "ch", (301).to_bytes(2, "little")) == NOT_FOUND
    assert client.command(611, "ch", (300).to_bytes(2, "little")) == OK
    assert client.command(611, "ch", (300).to_bytes(2, "little")) == NOT_FOUND
    assert client.create("ch", 300) == OK
    assert client.command(604, "ch") == OK
    assert client.command(604, "ch") == NOT_FOUND
    assert client.command(606, "ch") == NOT_FOUND
    assert client.command(610, "ch", b"Queue-Status: strange\r\n") == 400
    assert client.command(610, "empty") == OK
    assert client.command(611, "empty", bytes(2)) == OK


def test_a_channel_says_which_queues_it_may_have_and_for_how_many(connect):
    client, other = connect("c"), connect("d")
    client.command(603, "few", b"Allowed-Queues: 1,2\r\nQueue-Limit: 1\r\nClient-Limit: 1\r\n")
    assert client.create("few", 3) == UNAUTHORIZED
    assert client.create("few", 1) == OK
    assert client.create("few", 2) == LIMIT
    client.command(603, "one", b"Allow-Multiple-Queues: 0\r\n")
    assert [client.create("one", number) for number in (1, 2)] == [OK, LIMIT]
    assert client.join("few") == OK
    assert other.join("few") == LIMIT
    client.leave("few")
    assert other.join("few") == OK


def test_limits_of_a_queue_refuse_pushes(connect):
    client = connect("c")
    client.create("few", 1, queue_status="pull", message_limit=1, message_size_limit=3)
    assert client.answer(client.push("few", 1, b"long")).content == LIMIT
    client.push("few", 1, b"abc")
    assert client.answer(client.push("few", 1, b"def")).content == LIMIT
    assert client.update("few", 1, message_limit=0) == OK
    client.push("few", 1, b"ghi")
    client.join("few")
    assert [client.pull("few", 1).body for _ in range(2)] == [b"abc", b"ghi"]


def test_a_message_timeout_is_a_time_to_live(connect, broker, clock):
    client = connect("c")
    client.create("short", 1, queue_status="pull", message_timeout=1500)
    client.push("short", 1, b"x")
    synced(client)
    (message,) = broker.queue("short/1").peek(1)
    assert message.expires_at_ms - message.put_at_ms == 1500


def test_a_removed_queue_is_gone_with_its_messages_and_its_channel_with_its_members(
    connect, broker
):
    client = connect("c")
    client.create("ch", 1, queue_status="pull")
    client.push("ch", 1, b"x")
    client.join("ch")
    assert client.command(604, "ch") == OK
    assert broker.queue("ch/1").stats().stored == 0
    assert client.leave("ch") == NOT_FOUND
    assert client.answer(client.push("ch", 1, b"y")).content == NOT_FOUND
