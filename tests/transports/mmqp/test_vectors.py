"""The golden vectors of MMQP, both ways and counted."""

import pytest

from embedq_transports.mmqp import answers
from embedq_transports.mmqp.client import ClientWire
from embedq_transports.mmqp.faults import Fault
from embedq_transports.mmqp.requests import encode_request
from embedq_transports.mmqp.strings import Code
from embedq_transports.mmqp.wire import ServerWire
from tests.transports import wire_checks
from tests.transports.mmqp.vectors import FROM_CLIENT, FROM_SERVER, AnswerVector, RequestVector


def test_there_are_24_requests_and_6_answers_of_the_specified_sizes():
    assert (len(FROM_CLIENT), len(FROM_SERVER)) == (24, 6)
    vectors: list[RequestVector | AnswerVector] = [*FROM_CLIENT, *FROM_SERVER]
    for vector in vectors:
        assert len(vector.data) == vector.size, vector.name
    assert len({vector.name for vector in vectors}) == 30


@pytest.mark.parametrize("vector", FROM_CLIENT, ids=lambda vector: vector.name)
def test_a_request_vector_gives_its_requests_and_its_fault(vector: RequestVector):
    *requests, last = [*wire_checks.whole(ServerWire, vector.data), None]
    if vector.fault:
        fault = requests.pop()
        assert isinstance(fault, Fault)
        assert fault.code == vector.fault
        assert fault.answer.startswith(answers.ERROR if vector.answered else b"")
        assert bool(fault.answer) is vector.answered
    assert tuple(requests) == vector.requests
    assert last is None


@pytest.mark.parametrize(
    "vector",
    [vector for vector in FROM_CLIENT if vector.requests and vector.exact],
    ids=lambda vector: vector.name,
)
def test_a_request_encodes_to_its_vector(vector: RequestVector):
    (request,) = vector.requests
    assert encode_request(request, ending=vector.ending) == vector.data


@pytest.mark.parametrize("vector", FROM_SERVER, ids=lambda vector: vector.name)
def test_an_answer_vector_gives_its_events(vector: AnswerVector):
    assert tuple(wire_checks.whole(ClientWire, vector.data)) == vector.events


@pytest.mark.parametrize("vector", FROM_SERVER, ids=lambda vector: vector.name)
def test_an_answer_encodes_to_its_vector(vector: AnswerVector):
    match vector.name:
        case "M23":
            made = answers.encode_error(Code.QUEUE_NOT_FOUND, "nosuch")
        case "M24":
            made = answers.PONG
        case _:
            made = answers.encode_records(vector.events[:-1])
    assert made == vector.data
