"""A poll gets all the messages of a group that it asks for, though one alone is held at a time.

The only original client names the same group for all that it sends.
"""

from __future__ import annotations

import socket
import threading
import time

import pytest

from embedq.net import Connection
from embedq_transports.mmqp import MMQP
from embedq_transports.mmqp.requests import Poll, Send, encode_request
from tests.interop.mmqp_client import Mack, Poller, messages

URL = "mmqp://127.0.0.1:0"


def until(condition) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.005)


def bodies(found) -> list[str]:
    return [each.body for each in found]


def test_what_the_original_client_has_sent_comes_in_one_answer_in_its_order(orders, address):
    for number in range(20):
        assert Mack(address).send("orders", str(number)) == ""
    assert bodies(Poller(address).poll("orders", 15)) == [str(n) for n in range(15)]
    assert bodies(Poller(address).poll("orders", 255)) == [str(n) for n in range(15, 20)]
    assert Poller(address).poll("orders", 255) == []
    until(lambda: orders.stats().length == 0)


def test_each_group_keeps_its_order_beside_the_others(orders, address):
    for number in range(12):
        orders.put(str(number), ordering_key=["a", "b", None][number % 3])
    found = Poller(address).poll("orders", 255)
    for group in ("a", "b", "main"):
        numbers = [int(each.body) for each in found if each.group == group]
        assert numbers == sorted(numbers)
        assert len(numbers) == 4


def test_an_answer_is_full_at_its_limit_within_a_group_too(orders, broker):
    address = broker.listen(URL, transport=MMQP, answer_bytes=2_048).address
    orders.put_many(["a" * 800] * 5, ordering_key="g")
    sizes = []
    while found := Poller(address).poll("orders", 255):
        sizes.append(len(found))
    assert sizes == [2, 2, 1]


def test_who_goes_in_the_middle_of_an_answer_has_taken_no_more_than_it_was_sent(orders, address):
    orders.put("first", ordering_key="g")
    orders.put("x" * 8_000_000, ordering_key="g")
    orders.put("last", ordering_key="g")
    with socket.create_connection(address, 60) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        sock.sendall(encode_request(Poll("orders", 3)))
        assert sock.recv(1) == b"M"
        until(lambda: orders.stats().length == 2)
    with orders.get(timeout=60) as delivery:
        assert (len(delivery.body), delivery.attempt) == (8_000_000, 1)
    with orders.get(timeout=60) as delivery:
        assert (delivery.body, delivery.attempt) == ("last", 1)


@pytest.mark.parametrize("sends_more", [False, True])
def test_a_stop_in_the_middle_of_an_answer_ends_its_list(orders, broker, sends_more):
    listener = broker.listen(URL, transport=MMQP)
    orders.put("first", ordering_key="g")
    orders.put("x" * 8_000_000, ordering_key="g")
    orders.put("last", ordering_key="g")
    later = encode_request(Send("orders", b"later"))
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        sock.settimeout(60)
        sock.connect(listener.address)
        sock.sendall(encode_request(Poll("orders", 3)) + later * sends_more)
        answer = b""
        while len(answer) < 1_000:  # then the second message is on its way
            answer += sock.recv(1_000)
        stopping = threading.Thread(target=listener.close)
        stopping.start()
        until(lambda: not is_open(listener.address))
        while part := sock.recv(1 << 20):
            answer += part
    stopping.join()
    # What is not answered any more is told behind the list.
    told = b"MMQP|0.1|R|SHUTTING_DOWN||0" * sends_more
    assert answer.endswith(b"\0" + told)
    found = messages(answer.removesuffix(told))
    assert [len(each.body) for each in found] == [5, 8_000_000]
    assert orders.peek(9)[-1].body == b"last"


@pytest.mark.parametrize("sends_more", [False, True])
def test_a_kill_resets_nobody_whose_answer_is_on_its_way(orders, address, monkeypatch, sends_more):
    # What has left is settled, and a reset would take it away from the client. But who has sent
    # a message behind its poll takes an orderly end for success.
    told: list[bool] = []
    monkeypatch.setattr(Connection, "reset_if_killed", lambda _, *, on: told.append(on))
    orders.put("first", ordering_key="g")
    orders.put("x" * 8_000_000, ordering_key="g")
    later = encode_request(Send("orders", b"later"))
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        sock.settimeout(60)
        sock.connect(address)
        sock.sendall(encode_request(Poll("orders", 9)) + later * sends_more)
        answer = b""
        while len(answer) < 1_000:  # then the second message is on its way
            answer += sock.recv(1_000)
        assert told[-1] is sends_more


def test_polls_that_follow_each_other_wait_until_the_answer_before_has_left(orders, address):
    # More than a client may leave unread, of which one message alone may be.
    orders.put_many(["x" * 6_000_000] * 3)
    with socket.create_connection(address, 60) as sock:
        sock.sendall(encode_request(Poll("orders", 1), ending=b"\0") * 3)
        until(lambda: orders.stats().length < 3 or sock.recv(1, socket.MSG_PEEK))
        answer = b""
        while part := sock.recv(1 << 20):
            answer += part
    assert answer.count(b"MMQP|0.1|M|") == 3
    until(lambda: orders.stats().length == 0)


def is_open(address) -> bool:
    try:
        socket.create_connection(address, 60).close()
    except OSError:
        return False
    return True
