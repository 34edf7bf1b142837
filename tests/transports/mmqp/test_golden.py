"""The golden requests of MMQP at a listener: each is answered, and its end is in good order."""

from __future__ import annotations

import socket

import pytest

from embedq_transports.mmqp import MMQP, answers
from embedq_transports.mmqp.faults import FaultCode
from embedq_transports.mmqp.requests import Ping, Send
from embedq_transports.mmqp.strings import Code
from tests.interop.mmqp_client import messages
from tests.transports.mmqp.vectors import FROM_CLIENT, RequestVector

#: The queues of the specification.
QUEUES = ("queue1", "qué", "myqueuename")


@pytest.fixture
def listener(broker):
    for name in QUEUES:
        broker.queue(name).stats()  # so that it is there
    broker.queue("queue1").put_many(["A", "B"])
    broker.queue("queue1").put("C", ordering_key="mg1")
    return broker.listen("mmqp://127.0.0.1:0", transport=MMQP)


def ask(address, data: bytes) -> bytes:
    """Send, shut the writing side, read to the end; a reset is an error."""
    with socket.create_connection(address, 60) as sock:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        parts = []
        while part := sock.recv(65_536):
            parts.append(part)
    return b"".join(parts)


POLLED = {
    "M14": ["A"], "M15": ["A", "B", "C"], "M16": [], "M17": ["C"], "M19": ["C"],
}  # fmt: skip


@pytest.mark.parametrize("vector", FROM_CLIENT, ids=lambda vector: vector.name)
def test_a_golden_request_is_answered_and_ends_in_order(broker, listener, vector: RequestVector):
    answer = ask(listener.address, vector.data)
    sent = [each for each in vector.requests if isinstance(each, Send) and each.queue in QUEUES]
    if vector.name in POLLED:
        assert [each.body for each in messages(answer)] == POLLED[vector.name]
    elif vector.fault is not None and vector.answered:
        assert answer.startswith(answers.ERROR + vector.fault.name.encode() + b"|")
    elif vector.requests == (Ping(),):
        assert answer == answers.PONG
    elif vector.name == "M38":
        assert answer == answers.encode_error(Code.QUEUE_NOT_FOUND, "nosuch")
    else:
        assert answer == b""
    stored = [each for name in QUEUES for each in broker.queue(name).peek(9)]
    waits = [each for each in stored if each.body not in {b"A", b"B", b"C"}]
    assert [each.body for each in waits] == [each.body for each in sent]
    assert [each.ordering_key for each in waits] == [each.group for each in sent]
    assert listener.stats.faults == ({} if vector.fault is None else {vector.fault: 1})


def test_two_of_the_golden_requests_are_cut_off():
    cut = [each.name for each in FROM_CLIENT if each.fault is FaultCode.TRUNCATED]
    assert cut == ["M30", "M32"]
