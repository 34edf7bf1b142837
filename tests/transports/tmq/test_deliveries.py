"""Acknowledgements, Responses and messages between clients: who gets them, what they settle."""

from __future__ import annotations

import pytest

from tests.interop.speakers import until
from tests.interop.tmq_client import DELIVERY, RESPONSE, Frame, TmqClient

OK, NOT_FOUND, UNAUTHORIZED, BUSY = 200, 404, 401, 503


def synced(client: TmqClient) -> TmqClient:
    assert client.command(602, "no such channel") == NOT_FOUND
    return client


# --- to the producer ------------------------------------------------------------------------


def test_a_producer_that_asks_gets_a_delivery_of_the_servers_once_its_message_is_stored(
    orders, connect
):
    client = connect("p")
    id = client.push("orders", 1, b"x", wants_delivery=True)
    assert client.delivery(id) == Frame(DELIVERY, 1, id, b"", b"orders", first=True)
    assert orders.stats().stored == 1
    client.push("orders", 1, b"y")
    synced(client)
    assert not client.inbox


def test_where_consumers_are_asked_the_first_delivery_goes_to_the_producer(orders, connect):
    producer, first, second = (connect(name, acknowledge=True) for name in "pcd")
    first.join("orders")
    second.join("orders")
    id = producer.push("orders", 1, b"x", wants_delivery=True)
    first.message()
    second.ack(second.message())
    assert producer.delivery(id) == Frame(DELIVERY, 1, id, b"d", b"orders", ttl=15)
    synced(first).ack(Frame(0x11, 1, id, b"p", b"orders"))
    synced(first)
    synced(producer)
    assert not producer.inbox
    until(lambda: orders.stats().stored == 0)


@pytest.mark.parametrize("policy", ["never", "stored", "acknowledged"])
def test_a_listener_can_say_when_producers_get_a_delivery(orders, connect, policy):
    options = {"acknowledge": True, "deliveries": policy}
    producer, consumer = connect("p", **options), connect("c", **options)
    consumer.join("orders")
    id = producer.push("orders", 1, b"x", wants_delivery=True)
    if policy == "stored":
        assert producer.delivery(id).source == b""
    consumer.ack(consumer.message())
    if policy == "acknowledged":
        assert producer.delivery(id).source == b"c"
    until(lambda: orders.stats().stored == 0)
    synced(producer)
    assert not producer.inbox


def test_hidden_names_are_hidden_in_deliveries(connect):
    producer, consumer = connect("p", acknowledge=True), connect("c", acknowledge=True)
    producer.create("ch", 1, hide_client_names=True)
    consumer.join("ch")
    id = producer.push("ch", 1, b"x")
    consumer.ack(consumer.message())
    assert producer.delivery(id).source == b""


def test_a_delivery_reaches_a_producer_that_has_connected_again(orders, connect, listen):
    producer, consumer = connect("p", acknowledge=True), connect("c", acknowledge=True)
    consumer.join("orders")
    id = producer.push("orders", 1, b"x")
    message = consumer.message()
    producer.close()
    until(lambda: listen(acknowledge=True).stats.connections == 1)
    again = connect("p", acknowledge=True)
    consumer.ack(message)
    assert again.delivery(id).source == b"c"


# --- what settles ----------------------------------------------------------------------------


def test_what_is_not_acknowledged_stays_with_its_consumer(orders, connect):
    consumer = connect("c", acknowledge=True)
    consumer.join("orders")
    orders.put(b"x")
    message = consumer.message()
    for wrong in (
        Frame(DELIVERY, 2, message.id, b"c", b"orders"),
        Frame(DELIVERY, 1, b"other", b"c", b"orders"),
        Frame(DELIVERY, 1, message.id, b"c", b"elsewhere"),
    ):
        consumer.send(wrong)
    synced(consumer)
    assert orders.stats().stored == 1
    consumer.ack(message)
    until(lambda: orders.stats().stored == 0)


def test_messages_with_the_same_id_are_acknowledged_one_by_one(orders, connect):
    consumer = connect("c", acknowledge=True)
    consumer.join("orders")
    for body in (b"a", b"b"):
        consumer.push("orders", 1, body, id=b"same")
    messages = [consumer.message() for _ in range(2)]
    consumer.ack(messages[0])
    until(lambda: orders.stats().stored == 1)
    assert [each.body for each in orders.peek(9)] == [b"b"]
    consumer.ack(messages[1])
    until(lambda: orders.stats().stored == 0)


def test_a_message_goes_back_when_the_last_of_its_consumers_is_gone(orders, connect):
    first, second, third = (connect(name, acknowledge=True) for name in "cde")
    first.join("orders")
    second.join("orders")
    orders.put(b"x")
    first.message()
    second.message()
    first.close()
    third.join("orders")
    synced(third)
    assert not third.inbox
    second.close()
    assert third.message().body == b"x"


def test_a_pull_is_acknowledged_under_the_id_of_its_request(connect, broker):
    client = connect("c")
    client.create("jobs", 1, queue_status="pull", request_acknowledge=True)
    client.join("jobs")
    client.push("jobs", 1, b"x")
    got = client.pull("jobs", 1)
    assert got.wants_delivery
    client.send(Frame(DELIVERY, 1, got.id, b"c", b"jobs"))
    until(lambda: broker.queue("jobs/1").stats().stored == 0)


def test_a_producer_hears_of_a_pulled_message_under_its_own_id(connect):
    client, producer = connect("c"), connect("p")
    client.create("jobs", 1, queue_status="pull", request_acknowledge=True)
    client.join("jobs")
    id = producer.push("jobs", 1, b"x", wants_delivery=True)
    synced(producer)
    got = client.pull("jobs", 1)
    client.send(Frame(DELIVERY, 1, got.id, b"c", b"jobs"))
    assert producer.delivery(id).source == b"c"


def test_the_next_message_waits_for_the_delivery_of_the_last_one_if_the_queue_says_so(connect):
    client = connect("c")
    client.create("ch", 1, request_acknowledge=True, wait_for_acknowledge=True)
    client.join("ch")
    for body in (b"a", b"b"):
        client.push("ch", 1, body)
    first = client.message()
    synced(client)
    assert [each.kind for each in client.inbox] == []
    client.ack(first)
    assert client.message().body == b"b"


# --- nobody acknowledges ------------------------------------------------------------------------


def test_without_a_delivery_in_time_a_message_is_dead_and_says_why(orders, connect, clock, listen):
    client = connect("c7", acknowledge=True)
    client.join("orders")
    orders.put(b"x")
    message = client.message()
    clock.advance(16)
    listen(acknowledge=True).look()
    until(lambda: orders.stats().dead == 1)
    (letter,) = orders.dead.list()
    port = client.socket.getsockname()[1]
    assert letter.detail == f"tmq 127.0.0.1:{port} (c7): no Delivery within 15 seconds"
    client.ack(message)  # too late
    synced(client)
    assert orders.stats().dead == 1


def test_it_comes_again_as_often_as_the_listener_says(orders, connect, clock, listen):
    options = {"acknowledge": True, "redeliveries": 1, "ack_timeout": "3s"}
    client = connect("c", **options)
    client.join("orders")
    orders.put(b"x")
    assert client.message().first
    clock.advance(4)
    listen(**options).look()
    again = client.message()
    assert (again.body, again.first) == (b"x", False)
    clock.advance(4)
    listen(**options).look()
    until(lambda: orders.stats().dead == 1)


# --- Responses --------------------------------------------------------------------------------


def test_the_first_response_to_a_message_of_a_channel_goes_to_its_producer(orders, connect):
    producer, first, second = connect("p"), connect("c"), connect("d")
    first.join("orders")
    second.join("orders")
    id = producer.push("orders", 1, b"ask", wants_response=True)
    for consumer in (first, second):
        got = consumer.message()
        assert got.wants_response
        consumer.respond(got, 777, b"by " + consumer.id)
    answer = producer.answer(id)
    assert answer.content == 777
    assert answer.body in {b"by c", b"by d"}
    synced(first)
    synced(second)
    synced(producer)
    assert not producer.inbox


def test_a_response_is_waited_for_no_longer_than_its_producer_does(orders, connect, clock, listen):
    client, other = connect("c"), connect("d")
    client.join("orders")
    id = client.push("orders", 1, b"ask", wants_response=True)
    got = client.message()
    other.send(Frame(RESPONSE, 5, id, b"d", b"orders"))  # it is no member
    synced(other)
    clock.advance(31)
    client.respond(got, 777, b"late")
    synced(client)
    assert not client.inbox
    assert listen().stats.counts["dropped response"] == 2


# --- between clients --------------------------------------------------------------------------


def test_clients_send_each_other_messages_answers_and_deliveries(connect):
    one, other = connect("c1"), connect("c2", {"old": True})
    id = one.tell("c2", 55, b"ask", wants_response=True, wants_delivery=True, urgent=True)
    got = other.receive()
    assert got == Frame(0x12, 55, id, b"c1", b"c2", b"ask", False, True, True, True, ttl=15)
    other.ack(got)
    assert one.delivery(id).source == b"c2"
    other.respond(got, 777, b"pong!")
    answer = one.answer(id)
    assert (answer.content, answer.body, answer.ttl) == (777, b"pong!", 15)


def test_a_delivery_means_a_client_or_a_channel_first_as_its_priority_says(orders, connect):
    orders_client, consumer = connect("orders", acknowledge=True), connect("c", acknowledge=True)
    consumer.join("orders")
    orders.put(b"x")
    message = consumer.message()
    consumer.ack(message, urgent=True)
    assert orders_client.receive().kind == DELIVERY
    assert orders.stats().stored == 1
    consumer.ack(message)
    until(lambda: orders.stats().stored == 0)


def test_a_message_to_nobody_is_not_found(connect):
    client = connect("c")
    answer = client.answer(client.tell("nobody", 5, b"x"))
    assert (answer.content, answer.target) == (NOT_FOUND, b"c")
    client.tell("@name:nobody", 5, b"x")
    client.tell("", 5, b"x")
    synced(client)
    assert not client.inbox
    id = client.tell("@type:none", 5, b"x", wants_response=True)
    assert client.answer(id).content == NOT_FOUND


def test_names_and_types_mean_all_who_have_them_or_the_first_one(connect):
    bob = {"hello": {"Client-Name": "bob", "Client-Type": "app"}}
    app = {"hello": {"Client-Type": "app"}}
    clients = [connect("c1", bob), connect("c2", bob), connect("c3", app)]
    sender = connect("s")
    sender.tell("@name:bob", 1, b"bobs")
    sender.tell("@type:app", 2, b"apps")
    sender.tell("@type:app", 3, b"one", first=True)
    expected = [[1, 2, 3], [1, 2], [2]]
    for client, contents in zip(clients, expected, strict=True):
        assert [client.receive().content for _ in contents] == contents
    for client in clients:
        synced(client)
        assert not client.inbox


def test_a_frame_on_its_last_hop_is_not_relayed(connect, listen):
    one, other = connect("c1"), connect("c2")
    one.tell("c2", 5, b"x", ttl=1)
    synced(one)
    synced(other)
    assert not other.inbox
    assert listen().stats.counts["dropped ttl"] == 1


def test_a_client_that_does_not_read_gets_no_more_messages_of_others(connect, listen):
    sender, deaf = connect("s"), connect("deaf")
    answers = []
    for _ in range(400):  # 25 MB: more than any kernel keeps for a socket
        id = sender.tell("deaf", 1, bytes(65_536), wants_response=True)
        if sender.command(602, "x") and sender.inbox:
            answers.append(sender.answer(id).content)
            break
    assert answers == [BUSY]
    assert listen().stats.counts["dropped slow"] == 1
    deaf.close()
