"""PHPMQ sessions on real sockets: windows, acks from anywhere, the tail, and never a reply."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack

import pytest

from embedq import Broker
from embedq.clock import VirtualClock
from embedq.errors import InvalidOption
from embedq.net import NetLimits
from embedq_transports.phpmq import FORMS, PHPMQ
from embedq_transports.phpmq.wire import Form, Publish, encode
from tests.interop.phpmq_client import Message, PhpmqClient

URL = "phpmq://127.0.0.1:0"


@pytest.fixture
def broker():
    with Broker(":memory:") as broker:
        yield broker


@pytest.fixture
def queue(broker):
    return broker.queue("Q")


@pytest.fixture
def connect(broker):
    """Connect a client; listeners with the same options are one."""
    listeners = {}
    with ExitStack() as stack:

        def connect(client=None, /, **options) -> PhpmqClient:
            key = repr(sorted(options.items()))
            if key not in listeners:
                listeners[key] = broker.listen(URL, transport=PHPMQ, **options)
            made = PhpmqClient(listeners[key].address, **client or {})
            stack.callback(made.close)
            return made

        yield connect


def until(condition) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.005)


def got(client: PhpmqClient, count: int) -> list[bytes]:
    return [client.receive().content for _ in range(count)]


# --- messages and forms --------------------------------------------------------------------------


def test_a_message_goes_through_and_is_gone_once_it_is_acked(queue, connect):
    client = connect()
    client.publish(b"Q", b"Hello World")
    client.consume(b"Q", 5)
    message = client.receive()
    assert message == Message(b"Q", b"Hello World", message.id)
    assert len(message.id) == 32
    client.ack(b"Q", message.id)
    until(lambda: queue.stats().stored == 0)
    assert client.hears_nothing()


@pytest.mark.parametrize("separator", [b"", b"\n", b"\r\n"])
@pytest.mark.parametrize("width", [32, 35, 36])
def test_every_form_is_answered_in_kind(connect, width, separator):
    client = connect({"width": width, "separator": separator})
    client.publish(b"Q", b"line\nline")
    client.consume(b"Q", 1)
    assert client.receive().content == b"line\nline"


def test_a_form_can_be_the_only_one(connect):
    assert set(FORMS) == {f"{w}{s}" for w in (32, 35, 36) for s in ("", "-lf", "-crlf")}
    published, usual = connect({"width": 36}, form="36"), connect(form="36")
    published.publish(b"Q", b"x")
    usual.publish(b"Q", b"x")
    assert usual.is_closed()
    published.consume(b"Q", 1)
    assert got(published, 1) == [b"x"]


@pytest.mark.parametrize("name", [b"", b"\xff\xfe", "Grüße".encode(), b"a%b", b"\0"])
def test_any_bytes_are_a_name(connect, name):
    client = connect()
    client.publish(name, b"x")
    client.consume(name, 1)
    assert client.receive().queue == name


def test_what_was_written_before_the_client_left_is_kept(queue, connect):
    client = connect()
    data = b"".join(client.publishing(b"Q", b"%d" % number) for number in range(300))
    client.socket.sendall(data)
    client.socket.shutdown(socket.SHUT_WR)
    assert client.is_closed()
    until(lambda: queue.stats().length == 300)
    assert [each.body for each in queue.get_many(300)] == [b"%d" % n for n in range(300)]


def test_what_is_put_has_endless_attempts_unless_the_listener_says(queue, connect):
    connect().publish(b"Q", b"a")
    until(lambda: queue.stats().length == 1)
    assert queue.get(timeout=60).max_attempts is None
    connect(attempts=7).publish(b"Q", b"b")
    assert queue.get(timeout=60).max_attempts == 7


# --- windows -------------------------------------------------------------------------------------


def test_a_window_bounds_what_is_unacked_and_an_ack_frees_a_place(queue, connect):
    queue.put_many([b"m%d" % number for number in range(10)])
    client = connect()
    client.consume(b"Q", 3)
    first = [client.receive() for _ in range(3)]
    assert [each.content for each in first] == [b"m0", b"m1", b"m2"]
    assert client.hears_nothing()
    client.ack(b"Q", first[1].id)
    assert got(client, 1) == [b"m3"]
    # Asking again gives back what is held, and it comes a second time, under the same ids.
    client.consume(b"Q", 5)
    again = [client.receive() for _ in range(5)]
    assert [each.content for each in again] == [b"m0", b"m2", b"m3", b"m4", b"m5"]
    assert again[0].id == first[0].id
    # A window of none gives back and stops.
    client.consume(b"Q", 0)
    other = connect()
    other.consume(b"Q", 2)
    assert got(other, 2) == [b"m0", b"m2"]
    assert client.hears_nothing()
    # An ack that comes late counts all the same, and so it does from anywhere.
    client.ack(b"Q", again[4].id)
    until(lambda: queue.stats().length == 8)
    # A disconnect gives back, too, at the old places.
    other.close()
    until(lambda: not queue.stats().groups[0].leased)
    third = connect()
    third.consume(b"Q", 9)
    assert got(third, 8) == [b"m0", b"m2", b"m3", b"m4", b"m6", b"m7", b"m8", b"m9"]


def test_a_connection_has_one_window_and_the_next_one_takes_its_place(broker, connect):
    broker.queue("A").put(b"a1")
    broker.queue("B").put(b"b1")
    client, other = connect(), connect()
    client.consume(b"A", 1)
    assert got(client, 1) == [b"a1"]
    client.consume(b"B", 1)
    assert got(client, 1) == [b"b1"]
    other.consume(b"A", 1)
    assert got(other, 1) == [b"a1"]


def test_a_listener_can_give_each_queue_a_window_of_its_own(broker, connect):
    broker.queue("A").put_many([b"a1", b"a2"])
    broker.queue("B").put(b"b1")
    client = connect(windows="per-queue")
    client.consume(b"A", 1)
    first = client.receive()
    client.consume(b"B", 1)
    assert got(client, 1) == [b"b1"]
    client.ack(b"A", first.id)
    assert got(client, 1) == [b"a2"]


def test_consumers_take_turns(queue, connect):
    clients = [connect() for _ in range(3)]
    for client in clients:
        client.consume(b"Q", 4)
        assert client.hears_nothing(0.05)
    bodies = [b"%d" % number for number in range(12)]
    queue.put_many(bodies)
    assert sorted(each for client in clients for each in got(client, 4)) == sorted(bodies)


def test_an_ack_from_elsewhere_frees_the_place_of_who_holds_the_message(queue, connect):
    queue.put_many([b"a", b"b"])
    holder, other = connect(), connect()
    holder.consume(b"Q", 1)
    message = holder.receive()
    other.ack(b"Q", message.id)
    assert got(holder, 1) == [b"b"]


@pytest.mark.parametrize("id", [b"nope", b"\xff", b"0" * 32, b"x" * 255])
def test_an_ack_of_what_is_unknown_is_nothing(connect, id):
    client = connect({"speaks_ttl": True})
    client.publish(b"Q", b"x")
    client.ack(b"Q", id)
    client.ack(b"never", id)
    client.bury(b"Q", id)
    client.requeue(b"Q", id)
    client.consume(b"Q", 1)
    assert got(client, 1) == [b"x"]


# --- back, to the tail, and away -----------------------------------------------------------------


def test_a_disconnect_gives_back_at_the_old_places_and_costs_no_attempt(queue, connect):
    queue.put_many([b"a", b"b", b"c"])
    client, other = connect(), connect()
    client.consume(b"Q", 2)
    assert got(client, 2) == [b"a", b"b"]
    client.close()
    other.consume(b"Q", 3)
    assert sorted(got(other, 3)) == [b"a", b"b", b"c"]
    other.close()
    until(lambda: queue.stats().length == 3)
    got_ = queue.get_many(3, timeout=30)
    assert {each.attempt for each in got_} == {1}


def test_a_requeued_message_is_behind_the_others_under_its_id(queue, connect):
    queue.put_many([b"a", b"b"])
    client = connect({"speaks_ttl": True}, ttl="always")
    client.consume(b"Q", 1)
    first = client.receive()
    client.requeue(b"Q", first.id)
    second = client.receive()
    assert second.content == b"b"
    client.ack(b"Q", second.id)
    assert client.receive() == first


def test_a_requeued_message_lives_as_long_as_it_is_told(queue, connect):
    queue.put(b"a", ttl="1h")
    client = connect({"speaks_ttl": True}, ttl="always")
    client.consume(b"Q", 1)
    first = client.receive()
    assert first.ttl is not None
    assert 3_500 < first.ttl <= 3_600
    client.requeue(b"Q", first.id, 60)
    again = client.receive()
    assert again.id == first.id
    assert again.ttl is not None
    assert 0 < again.ttl <= 60
    client.requeue(b"Q", first.id, 0)
    assert client.receive().ttl == 0


def test_only_who_holds_a_message_can_requeue_it(queue, connect):
    queue.put_many([b"a", b"b"])
    holder, other = connect(), connect()
    holder.consume(b"Q", 1)
    message = holder.receive()
    other.requeue(b"Q", message.id)
    other.publish(b"Q", b"c")
    until(lambda: queue.stats().length == 3)
    assert holder.hears_nothing()


@pytest.mark.parametrize("held", [True, False])
def test_a_buried_message_is_a_dead_letter_that_names_who_did_it(queue, connect, held):
    receipt = queue.put(b"a")
    client = connect()
    if held:
        client.consume(b"Q", 1)
        client.receive()
    client.bury(b"Q", receipt.id.encode())
    until(lambda: queue.stats().dead == 1)
    (letter,) = queue.dead.list()
    port = client.socket.getsockname()[1]
    assert letter.detail == f"phpmq 127.0.0.1:{port}: dead letter (006)"
    assert letter.moved_by == "phpmq"


# --- time to live --------------------------------------------------------------------------------


def test_a_ttl_is_kept_and_sent_to_who_has_shown_to_know_it(queue, connect):
    client = connect({"speaks_ttl": True})
    client.publish(b"Q", b"x", 100)
    client.consume(b"Q", 1)
    ttl = client.receive().ttl
    assert ttl is not None
    assert 90 < ttl <= 100


def test_a_ttl_of_none_is_for_ever(queue, connect):
    client = connect({"speaks_ttl": True})
    client.publish(b"Q", b"x", 0)
    client.consume(b"Q", 1)
    assert client.receive().ttl == 0


def test_who_has_not_shown_it_gets_three_packages(queue, connect):
    queue.put(b"x", ttl="1h")
    client = connect()
    client.consume(b"Q", 1)
    assert client.receive().ttl is None


def test_a_listener_can_send_a_ttl_to_nobody(queue, connect):
    client = connect(ttl="never")
    client.publish(b"Q", b"x", 100)
    client.consume(b"Q", 1)
    assert client.receive().ttl is None


# --- receipts, refusals --------------------------------------------------------------------------


def test_a_listener_can_confirm_what_it_has_stored(queue, connect):
    client = connect(receipts=True)
    client.publish(b"Q", b"x")
    data = client.socket.recv(1000)
    assert data.startswith(b"H0100502P01" + b"0" * 28 + b"1QP03")
    assert queue.get(timeout=60).id.encode() == data[-32:]


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"H9900102P01",
        b"H0100303P01",
        b"H0100199P01",
        b"H0100102" + b"P01" + b"0" * 26 + b"256",
    ],
)
def test_what_breaks_the_rules_ends_its_connection_and_no_other(queue, connect, data):
    healthy, hostile = connect(), connect()
    hostile.publish(b"Q", b"before")
    hostile.socket.sendall(data)
    assert hostile.is_closed()
    healthy.consume(b"Q", 1)
    assert got(healthy, 1) == [b"before"]


def test_a_full_queue_closes_the_connection(broker, connect):
    broker.queue("full", max_length=1, when_full="reject")
    client = connect()
    client.publish(b"full", b"a")
    client.publish(b"full", b"b")
    assert client.is_closed()
    assert broker.queue("full").stats().length == 1


def test_a_client_that_falls_silent_in_its_first_message_is_closed():
    clock = VirtualClock()
    whole = encode(Publish(b"Q", b"x"), Form())
    with Broker(":memory:", clock=clock) as broker, ExitStack() as stack:
        listener = broker.listen(URL)
        address = listener.address
        assert isinstance(address, tuple)
        clients = [stack.enter_context(socket.create_connection(address, 30)) for _ in range(3)]
        slow, silent, later = clients
        for client in clients:
            client.sendall(whole if client is later else b"H")
        until(lambda: listener.stats.bytes_in == len(whole) + 2)
        clock.advance(5)
        slow.sendall(b"0")
        later.sendall(b"H")  # its second message: that is up to the frame deadline
        until(lambda: listener.stats.bytes_in == len(whole) + 4)
        clock.advance(6)
        listener.look()
        assert silent.recv(1) == b""
        assert listener.stats.closed == {"frame_timeout": 1}
        slow.sendall(whole[2:])
        until(lambda: broker.queue("Q").stats().length == 2)
        clock.advance(11)
        listener.look()
        assert listener.stats.connections == 2


def test_a_large_content_is_refused_when_it_is_announced(connect):
    client = connect(limits=NetLimits(message_bytes=100))
    client.publish(b"Q", b"x" * 100)
    client.socket.sendall(b"H0100102" + b"P01" + b"0" * 28 + b"1QP02" + b"0" * 26 + b"101")
    assert client.is_closed()


@pytest.mark.parametrize(
    ("option", "value"), [("form", "33"), ("ttl", "maybe"), ("windows", "two"), ("attempts", 256)]
)
def test_an_option_that_cannot_be_is_refused(broker, option, value):
    with pytest.raises(InvalidOption, match=option):
        broker.listen(URL, transport=PHPMQ, **{option: value})
