"""What one client puts into a full queue is stored in its order, however it comes and goes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from embedq import Broker
from embedq.message import Draft
from embedq.net import NetLimits
from embedq.net.connection import Connection
from embedq.net.names import Names
from embedq.net.network import Network
from tests.conformance.transport_suite import dial, eventually, is_cut, reset
from tests.net.client import Client
from tests.net.lines import LINES, LinesSession


def take_all(queue, count: int) -> list[bytes]:
    bodies: list[bytes] = []
    while len(bodies) < count:
        with queue.get(30) as delivery:
            bodies.append(delivery.body)
    return bodies


def network_of(listener) -> Network:
    return listener.inner._site.network


def only_connection(listener) -> Connection:
    eventually(lambda: listener.inner._site.connections)
    (one,) = listener.inner._site.connections
    return one


def test_what_comes_when_room_does_stays_behind_what_waits_already(broker, listen):
    full = broker.queue("full", max_length=1)
    client = Client(listen(limits=NetLimits(pending_puts=2)))
    count = 300
    bodies: list[bytes] = []
    taker = threading.Thread(target=lambda: bodies.extend(take_all(full, count)))
    taker.start()
    for number in range(count):  # each by itself: some meet room that is meant for others
        client.socket.sendall(b"PUT full %d\n" % number)
    answers = [client.line() for _ in range(count)]
    taker.join(60)
    assert all(each.startswith("STORED") for each in answers)
    assert bodies == [b"%d" % number for number in range(count)]
    client.close()


def test_a_queue_with_room_stores_what_came_together_in_one_commit(broker, listen):
    wide = broker.queue("wide", max_length=1_000)
    client = Client(listen())
    assert client.say("PUT wide first").startswith("STORED")
    before = broker.stats().commits
    client.socket.sendall(b"".join(b"PUT wide %d\n" % n for n in range(100)))
    assert all(client.line().startswith("STORED") for _ in range(100))
    assert broker.stats().commits - before < 40
    assert [each.body for each in wide.peek(3)] == [b"first", b"0", b"1"]
    client.close()


def test_who_finds_room_for_a_part_stores_that_part(broker, listen):
    small = broker.queue("small", max_length=5)
    client = Client(listen())
    client.socket.sendall(b"".join(b"PUT small %d\n" % n for n in range(12)))
    for _ in range(5):
        assert client.line().startswith("STORED")
    eventually(lambda: small.stats().stored == 5)
    assert take_all(small, 12) == [b"%d" % n for n in range(12)]
    assert all(client.line().startswith("STORED") for _ in range(7))
    client.close()


def test_a_client_that_waits_for_room_holds_up_no_other_queue_and_no_other_client(broker, listen):
    broker.queue("full", max_length=1)
    listener = listen()
    waits, other = Client(listener), Client(listener)
    assert waits.say("PUT full x").startswith("STORED")
    waits.socket.sendall(b"PUT full y\nPUT full z\nPUT open a\n")
    assert waits.line().startswith("STORED")
    assert other.say("PUT open b").startswith("STORED")
    assert [each.body for each in broker.queue("open").peek(9)] == [b"a", b"b"]
    reset(waits)  # in good order it would wait on
    other.close()


@pytest.fixture
def second(broker, tmp_path) -> Iterator[Broker]:
    """A process that is no host, as far as it knows queues."""
    with Broker(tmp_path / "q.db", role="client") as client:
        yield client


def test_what_comes_together_is_stored_as_room_comes_if_the_host_has_set_a_bound_meanwhile(
    broker, second
):
    listener = second.listen("lines://127.0.0.1:0", transport=LINES)
    client = Client(listener)
    assert client.say("PUT q first").startswith("STORED")
    small = broker.queue("q", max_length=6)
    client.socket.sendall(b"".join(b"PUT q %d\n" % n for n in range(20)))
    for _ in range(5):
        assert client.line().startswith("STORED")
    assert take_all(small, 21) == [b"first", *(b"%d" % n for n in range(20))]
    assert all(client.line().startswith("STORED") for _ in range(15))
    known = network_of(listener).names.known("q")
    assert known is not None
    eventually(lambda: known.policy.max_length == 6)
    client.close()


@pytest.mark.parametrize("count", [1, 3])
def test_who_is_refused_by_a_bound_of_which_this_process_has_not_heard_is_refused_alone(
    broker, second, count
):
    client = Client(second.listen("lines://127.0.0.1:0", transport=LINES))
    assert client.say("PUT q first").startswith("STORED")
    broker.queue("q", max_length=2, when_full="reject")
    client.socket.sendall(b"PUT q x\n" * count)
    assert client.line().startswith("STORED")
    for _ in range(count - 1):
        assert client.line() == "ERROR queue_full"
    assert client.say("PUT q y") == "ERROR queue_full"
    client.close()


@pytest.mark.parametrize(
    "policy", [{"max_length": None}, {"max_length": 1_000, "when_full": "drop_oldest"}], ids=str
)
def test_what_waits_stays_before_what_comes_after_the_bound_is_lifted(broker, listen, policy):
    queue = broker.queue("q", max_length=1)
    queue.put(b"x")
    listener = listen()
    client = Client(listener)
    client.socket.sendall(b"".join(b"PUT q %d\n" % n for n in range(200)))
    one = only_connection(listener)
    eventually(lambda: one.broker.pending_puts == 200)
    broker.queue("q", **policy)
    client.socket.sendall(b"".join(b"PUT q %d\n" % n for n in range(200, 400)))
    assert all(client.line().startswith("STORED") for _ in range(400))
    assert [each.body for each in queue.peek(500)] == [b"x", *(b"%d" % n for n in range(400))]
    client.close()


def test_a_put_whose_queue_is_found_when_its_client_has_gone_waits_for_no_room(
    broker, listen, monkeypatch
):
    go_on = threading.Event()
    find = Names._find

    def slowly(names, key):
        assert go_on.wait(60)
        return find(names, key)

    monkeypatch.setattr(Names, "_find", slowly)
    broker.queue("full", max_length=2).put(b"x")
    listener = listen()
    client = Client(listener)
    client.socket.sendall(b"".join(b"PUT full %d\n" % n for n in range(4)))
    one = only_connection(listener)
    eventually(lambda: one.broker.pending_puts == 4)
    reset(client)
    eventually(lambda: not listener.stats.connections)
    go_on.set()
    eventually(lambda: listener.stats.counts.get("put_failed gone") == 3)
    assert [each.body for each in broker.queue("full").peek(9)] == [b"x", b"0"]
    eventually(lambda: not network_of(listener).puts.tasks)


def test_what_a_session_puts_when_its_client_has_gone_waits_for_no_room(
    broker, listen, monkeypatch
):
    def lost(session, _cause):
        session.connection.broker.put("full", Draft(b"z"))

    monkeypatch.setattr(LinesSession, "lost", lost)
    full = broker.queue("full", max_length=1)
    listener = listen()
    client = Client(listener)
    assert client.say("PUT full x").startswith("STORED")
    reset(client)
    eventually(lambda: listener.stats.counts.get("put_failed gone") == 1)
    eventually(lambda: not network_of(listener).puts.tasks)
    with full.get(0):
        pass
    assert full.stats().stored == 0


@pytest.mark.parametrize("count", [1, 30])
def test_a_put_that_is_being_committed_when_its_client_goes_is_not_counted_as_given_up(
    broker, listen, count
):
    wide = broker.queue("wide", max_length=1_000)
    listener = listen()
    client = Client(listener)
    assert client.say("PUT wide first").startswith("STORED")
    one = only_connection(listener)
    with broker.desk.writer.lock:
        client.socket.sendall(b"".join(b"PUT wide %d\n" % n for n in range(count)))
        eventually(lambda: one.broker.pending_puts == count)
        reset(client)
        eventually(lambda: not listener.stats.connections)
    eventually(lambda: wide.stats().stored == count + 1)
    assert "put_failed gone" not in listener.stats.counts


def test_who_has_ended_but_waits_for_room_takes_no_place_from_who_makes_it(broker, listen):
    broker.queue("full", max_length=1)
    listener = listen(connections_per_peer=1)
    site = listener.inner._site
    producer = Client(listener)
    producer.socket.sendall(b"PUT full x\nPUT full y\n")
    assert producer.line().startswith("STORED")
    (one,) = site.connections
    producer.socket.shutdown(socket.SHUT_WR)
    eventually(lambda: one.channel.has_ended)
    consumer, other = Client(listener), dial(listener)
    assert is_cut(other)
    word, held, text = consumer.say("GET full").split()
    assert (word, text) == ("MESSAGE", "x")
    assert consumer.say(f"ACK {held}") == "OK"
    assert producer.line().startswith("STORED")
    assert is_cut(producer.socket)
    eventually(lambda: len(site.connections) == 1)
    assert list(site.per_host.values()) == [1]
    consumer.close()
    eventually(lambda: not site.connections)
    assert not site.per_host
    producer.close()
    other.close()
