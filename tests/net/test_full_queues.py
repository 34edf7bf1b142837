"""What one client puts into a full queue is stored in its order, however it comes and goes."""

from __future__ import annotations

import threading

from embedq.net import NetLimits
from tests.conformance.transport_suite import eventually, reset
from tests.net.client import Client


def take_all(queue, count: int) -> list[bytes]:
    bodies: list[bytes] = []
    while len(bodies) < count:
        with queue.get(30) as delivery:
            bodies.append(delivery.body)
    return bodies


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
