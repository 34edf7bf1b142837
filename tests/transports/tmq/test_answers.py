"""The frames that TMQ servers and clients make, against the golden vectors."""

import pytest
from msgspec.structs import replace

from embedq_transports.tmq import answers, requests
from embedq_transports.tmq.frames import Content, Frame, Kind, encode_frame
from embedq_transports.tmq.hello import read_hello
from tests.transports.tmq.vectors import BY_NAME

PUSH = BY_NAME["V23"].frame
JOIN = BY_NAME["V14"].frame


@pytest.mark.parametrize(("name", "made"), [
    ("V10", answers.accepted(b"c1", b"s1")),
    ("V11", answers.accepted(b"c1")),
    ("V12", answers.refused(Content.UNAUTHORIZED, b"s1")),
    ("V19", answers.status_for(JOIN, Content.OK)),
    ("V20", answers.status_for(JOIN, Content.NOT_FOUND)),
    ("V22", answers.status_for(PUSH, Content.NOT_FOUND)),
    ("V24", answers.delivered(PUSH, first_acquirer=True, acknowledge=True)),
    ("V25", answers.delivered(PUSH, first_acquirer=False, acknowledge=True)),
    ("V26", answers.delivered(PUSH, first_acquirer=True, acknowledge=False, hide_source=True)),
    ("V30", answers.relayed(BY_NAME["V29"].frame)),
    ("V33", answers.relayed(BY_NAME["V32"].frame)),
    ("V47", answers.pull_answer(
        BY_NAME["V46"].frame,
        Frame(Kind.CHANNEL, 300, b"m9", b"c1", b"ch-1", b"one", first_acquirer=True),
    )),
])  # fmt: skip
def test_what_a_server_makes_is_the_vector(name, made):
    assert encode_frame(made) == BY_NAME[name].data


@pytest.mark.parametrize(("name", "made"), [
    ("V06", requests.hello((("Client-Id", "c1"),), message_id=b"m1", source=b"c1")),
    ("V08", requests.hello((("Client-Id", ""),), message_id=b"m1")),
    ("V14", requests.command(Content.JOIN, b"ch-1", message_id=b"m2", source=b"c1")),
    ("V15", requests.command(601, b"ch-1", message_id=b"m2", source=b"c1", response=False)),
    ("V17", requests.command(
        610, b"ch-1", message_id=b"m4", source=b"c1", payload=requests.queue_payload(257)
    )),
    ("V23", requests.push(b"ch-1", 101, b"hello", message_id=b"m6", source=b"c1")),
    ("V29", requests.delivery(BY_NAME["V24"].frame, b"c2")),
    ("V32", requests.peer(b"c2", 55, b"ask", message_id=b"m8", source=b"c1", response=True)),
    ("V34", requests.response(BY_NAME["V33"].frame, 777, b"pong!", source=b"c2")),
    ("V46", requests.pull(b"ch-1", 300, message_id=b"g1", source=b"c1")),
])  # fmt: skip
def test_what_a_client_makes_is_the_vector(name, made):
    assert encode_frame(made) == BY_NAME[name].data


def test_a_hello_of_ours_is_read_back():
    made = requests.hello((("Client-Token", "t"), ("Client-Id", "c1")))
    assert read_hello(made.payload).properties == (("client-token", "t"), ("client-id", "c1"))


def test_an_admitted_frame_has_a_source_and_needs_an_id_for_a_response():
    bare = Frame(Kind.CHANNEL, 1, response_required=True)
    assert answers.admitted(bare, b"c1") == Frame(Kind.CHANNEL, 1, source=b"c1")
    assert answers.admitted(JOIN, b"c1") == JOIN


@pytest.mark.parametrize(("source", "foreign"), [
    (b"", False), (b"c1", False), (b"C1", True), (b"c2", True),
])  # fmt: skip
def test_a_foreign_source_is_told(source, foreign):
    assert answers.is_foreign(replace(PUSH, source=source), b"c1") is foreign


def test_the_last_hop_is_not_passed_on_but_a_stored_message_is_delivered():
    assert answers.relayed(replace(PUSH, ttl=1)) is None
    assert answers.relayed(replace(PUSH, ttl=2)) == replace(PUSH, ttl=1)
    last = answers.delivered(replace(PUSH, ttl=1), first_acquirer=False, acknowledge=False)
    assert last.ttl == 1
    assert answers.pull_answer(BY_NAME["V46"].frame, replace(PUSH, ttl=1)).ttl == 1


def test_the_server_may_give_a_delivery_its_own_id():
    made = answers.delivered(PUSH, first_acquirer=False, acknowledge=False, message_id=b"own")
    assert made.message_id == b"own"


def test_the_server_completes_a_waiting_producer():
    assert answers.made_delivery(PUSH) == Frame(
        Kind.DELIVERY, 101, b"m6", target=b"ch-1", first_acquirer=True
    )


def test_the_acknowledgement_of_a_peer_message_goes_to_its_sender():
    made = requests.delivery(BY_NAME["V33"].frame, b"c2")
    assert (made.target, made.priority, made.source) == (b"c1", True, b"c2")


def test_the_response_to_a_channel_message_names_the_channel():
    made = requests.response(BY_NAME["V24"].frame, 9, b"")
    assert (made.kind, made.target, made.message_id) == (Kind.RESPONSE, b"ch-1", b"m6")
