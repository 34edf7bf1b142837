"""TMQ sessions: the handshake in both byte orders, ids, signs of life, every kind of end."""

from __future__ import annotations

import socket

import pytest

from embedq import Broker
from embedq.errors import InvalidOption
from embedq.net import TokenFile
from tests.interop.speakers import until
from tests.interop.tmq_client import PREAMBLE, Died, Frame, TmqClient

OK, UNAUTHORIZED, NOT_FOUND, BUSY = 200, 401, 404, 503


@pytest.fixture
def dial(listen):
    """Connect a socket that speaks for itself."""
    sockets: list[socket.socket] = []

    def dial(**options: object) -> socket.socket:
        sockets.append(socket.create_connection(listen(**options).address, 30))
        return sockets[-1]

    yield dial
    for each in sockets:
        each.close()


def hello(id: bytes) -> Frame:
    return Frame(0x10, 101, body=b"CONNECT /\r\nClient-Id: " + id + b"\r\n")


def everything(sock: socket.socket) -> bytes:
    parts = []
    while part := sock.recv(65_536):
        parts.append(part)
    return b"".join(parts)


# --- handshake ------------------------------------------------------------------------------


def test_a_preamble_is_answered_before_the_hello_is_there(dial):
    sock = dial()
    sock.sendall(PREAMBLE[:3])
    sock.sendall(PREAMBLE[3:])
    assert sock.recv(8) == PREAMBLE


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("waits", [False, True])
def test_both_byte_orders_and_both_ways_to_begin_are_served(orders, connect, old, waits):
    client = connect("c1", {"old": old, "waits": waits})
    assert client.id == b"c1"
    assert client.join("orders") == OK
    client.push("orders", 1, b"hello")
    assert client.message().body == b"hello"
    orders.put(b"long" * 100)
    assert client.message().body == b"long" * 100


@pytest.mark.parametrize(("old", "other"), [(False, True), (True, False)])
def test_clients_of_different_byte_orders_share_a_queue(orders, connect, old, other):
    producer, consumer = connect("p", {"old": old}), connect("c", {"old": other})
    consumer.join("orders")
    producer.push("orders", 1, b"x")
    got = consumer.message()
    assert (got.content, got.source) == (1, b"p")


def test_another_version_is_told_ours_and_another_protocol_nothing(dial):
    other, foreign = dial(), dial()
    other.sendall(b"TMQP/2.0")
    assert everything(other) == PREAMBLE
    foreign.sendall(b"GET / HTTP/1.1\r\n\r\n")
    assert foreign.recv(1) == b""


def test_who_does_not_say_hello_is_told_that_the_request_is_bad(dial):
    sock = dial(ids=False)
    sock.sendall(PREAMBLE + Frame(0x11, 1, b"id", b"", b"ch", b"x").bytes())
    answer = PREAMBLE + Frame(0x10, 400, first=True).bytes()
    assert everything(sock) == answer


@pytest.mark.parametrize(
    ("first", "answer"),
    [
        (PREAMBLE + hello(b"taken").bytes(), PREAMBLE + b"\x90\x10\0\0\0\xf7\x01\0"),
        (PREAMBLE + Frame(0x11, 1, body=b"x").bytes(), PREAMBLE + b"\x90\x10\0\0\0\x90\x01\0"),
        (b"TMQ/1.02", PREAMBLE),
    ],
    ids=["taken", "no hello", "version"],
)
def test_who_is_refused_hears_why_however_much_it_has_sent_already(dial, connect, first, answer):
    connect("taken", ids=False)
    sock = dial(ids=False)
    sock.sendall(first + bytes(400_000))
    assert everything(sock) == answer


def test_commands_may_come_right_behind_the_hello(orders, dial):
    sock = dial(ids=False)
    hello = Frame(0x10, 101, b"h", b"", b"", b"CONNECT /\r\nClient-Id: c1\r\n", first=True)
    join = Frame(0x10, 601, b"j", b"c1", b"orders", wants_response=True)
    push = Frame(0x11, 1, b"m", b"c1", b"orders", b"x")
    leave = Frame(0x08)
    sock.sendall(PREAMBLE + hello.bytes() + join.bytes() + push.bytes() + leave.bytes())
    accepted = Frame(0x10, 202, target=b"c1", first=True)
    joined = Frame(0x14, 200, b"j", target=b"c1", first=True)
    assert everything(sock)[: 8 + 10 + 11] == PREAMBLE + accepted.bytes() + joined.bytes()
    until(lambda: orders.stats().put == 1)


# --- ids --------------------------------------------------------------------------------------


def test_a_client_without_an_id_gets_one_and_may_go_on_naming_none(orders, connect):
    client = connect("", {"says_source": False})
    assert len(client.id) == 32
    client.join("orders")
    client.push("orders", 1, b"x")
    assert client.message().source == client.id


def test_a_source_of_another_client_ends_the_connection_without_a_word(orders, connect, listen):
    client, healthy = connect("c1"), connect("c2")
    client.send(Frame(0x11, 1, b"m", b"c2", b"orders", b"x"))
    assert client.is_closed()
    assert healthy.join("orders") == OK
    assert orders.stats().put == 0
    assert listen().stats.faults == {"foreign_source": 1}


def test_an_id_that_is_online_is_refused(connect, listen):
    first = connect("same")
    second = TmqClient(listen().address, "same")
    with pytest.raises(Died, match=str(BUSY)):
        second.accepted()
    assert second.is_closed()
    second.close()
    assert first.command(602, "x") == NOT_FOUND
    first.close()
    until(lambda: listen().stats.connections == 0)
    assert connect("same").id == b"same"


def test_a_listener_can_let_the_newer_one_take_an_id_over(orders, connect):
    first = connect("same", duplicate="replace")
    first.join("orders")
    second = connect("same", duplicate="replace")
    with pytest.raises(Died, match="terminated"):
        first.receive()
    assert first.is_closed()
    second.join("orders")
    orders.put(b"x")
    assert second.message().body == b"x"


def test_an_id_that_no_frame_can_carry_is_refused(listen):
    with socket.create_connection(listen(ids=False).address, 30) as sock:
        text = b"CONNECT /\r\nClient-Id: " + b"x" * 256
        sock.sendall(PREAMBLE + Frame(0x10, 101, body=text, first=True).bytes())
        assert everything(sock) == PREAMBLE + Frame(0x10, 400, first=True).bytes()


def test_ids_that_are_not_utf8_come_through_unchanged(orders, connect):
    client = connect("c")
    client.join("orders")
    client.push("orders", 1, b"x", id=b"\xff\xfe\x00%")
    assert client.message().id == b"\xff\xfe\x00%"


# --- who is it ----------------------------------------------------------------------------------


@pytest.fixture
def tokens(tmp_path):
    file = tmp_path / "tokens"
    file.write_text("full secret-1\nreader[consume] secret-2\nwriter[put] secret-3\n")
    file.chmod(0o600)
    return TokenFile(file)


def test_a_wrong_token_is_refused(tokens, listen):
    client = TmqClient(listen(auth=tokens).address, "c", hello={"Client-Token": "wrong"})
    with pytest.raises(Died, match=str(UNAUTHORIZED)):
        client.accepted()
    assert client.is_closed()
    client.close()


def test_a_token_says_what_its_client_may_do(orders, tokens, connect):
    full, reader, writer = (
        connect(f"c{number}", {"hello": {"Client-Token": f"secret-{number}"}}, auth=tokens)
        for number in (1, 2, 3)
    )
    assert [each.join("orders") for each in (full, reader, writer)] == [OK, OK, UNAUTHORIZED]
    assert reader.create("new", 1) == UNAUTHORIZED
    assert reader.command(604, "orders") == UNAUTHORIZED
    assert reader.command(603, "new") == UNAUTHORIZED
    assert reader.answer(reader.push("orders", 1, b"x")).content == UNAUTHORIZED
    assert reader.answer(reader.tell("c1", 5, b"x")).content == UNAUTHORIZED
    writer.push("orders", 1, b"y")
    assert [full.message().body, reader.message().body] == [b"y", b"y"]


# --- signs of life ------------------------------------------------------------------------------


def test_a_ping_is_answered(connect):
    client = connect("c")
    client.socket.sendall(b"\x09\x10" + bytes(6))
    assert client.socket.recv(8) == b"\x8a\xff" + bytes(6)


def test_a_silent_client_is_pinged_and_cut_if_it_stays_silent(connect, clock, listen):
    silent, alive = connect("s", ping=40), connect("a", ping=40)
    listener = listen(ping=40)
    clock.advance(39)
    listener.look()
    assert alive.command(602, "x") == NOT_FOUND
    clock.advance(2)
    listener.look()
    assert silent.socket.recv(8) == b"\x89\xff" + bytes(6)
    clock.advance(14)
    listener.look()
    assert alive.command(602, "x") == NOT_FOUND
    clock.advance(2)
    listener.look()
    assert silent.is_closed()
    assert alive.command(602, "x") == NOT_FOUND
    assert listener.stats.closed == {"no_pong": 1}


def test_a_client_that_answers_a_ping_stays(connect, clock, listen):
    client, listener = connect("c", ping=40), listen(ping=40)
    for _ in range(3):
        clock.advance(41)
        listener.look()
        assert client.socket.recv(8) == b"\x89\xff" + bytes(6)
        client.socket.sendall(b"\x8a\xff" + bytes(6))
        assert client.command(602, "x") == NOT_FOUND
    assert client.hears_nothing()


# --- what is passed over, and what is not ------------------------------------------------------


def test_a_type_without_a_meaning_in_the_name_of_another_ends_the_connection(connect):
    client = connect("c")
    client.send(Frame(0x15, source=b"d"))
    assert client.is_closed()


def test_unknown_types_are_passed_over(connect, listen):
    client = connect("c")
    for kind in (0x00, 0x15, 0x2A, 0x3F):
        client.send(Frame(kind, source=b"c"))
    assert client.command(602, "x") == NOT_FOUND
    assert listen().stats.counts["dropped type"] == 4


def test_a_payload_beyond_the_limit_is_refused_before_it_is_read(orders, connect):
    client = connect("c")
    client.socket.sendall(b"\x11\x10\x01\x00\x06\x01\x00\xfe\x00\x00\x00\x7fmorders")
    answer = client.answer(b"m")
    assert (answer.content, answer.target) == (482, b"orders")
    assert client.is_closed()


def beyond(kind: int, *, id: bytes = b"mm", source: bytes = b"", ttl: int = 16) -> bytes:
    """The head of a frame whose payload is larger than any limit, and none of that."""
    whole = Frame(kind, 1, id, source, b"c9", bytes(70_000), ttl=ttl).bytes()
    return whole[:8] + b"\0\0\0\x7f" + whole[12:-70_000]


@pytest.mark.parametrize("kind", [0x10, 0x12], ids=["server", "client"])
@pytest.mark.parametrize("source", [b"", b"big"])
def test_who_asks_beyond_the_limit_is_told_in_its_name_whether_it_says_it_or_not(
    connect, kind, source
):
    client = connect("big")
    client.socket.sendall(beyond(kind, source=source))
    assert client.receive() == Frame(0x14, 482, b"mm", target=b"big", first=True)
    assert client.is_closed()


@pytest.mark.parametrize("id", ["big", ""])
def test_also_right_behind_its_hello_and_with_an_id_that_it_was_given(dial, id):
    sock = dial(ids=False)
    sock.sendall(PREAMBLE + hello(id.encode()).bytes() + beyond(0x12))
    said = everything(sock)[len(PREAMBLE) :]
    own = id.encode() or said[8:40]
    accepted = Frame(0x10, 202, target=own, first=True).bytes()
    assert said == accepted + Frame(0x14, 482, b"mm", target=own, first=True).bytes()


@pytest.mark.parametrize(
    ("frame", "fault"),
    [
        (beyond(0x12, id=b""), "too_large"),
        (beyond(0x12, ttl=0), "too_large"),
        (beyond(0x12, source=b"other"), "foreign_source"),
    ],
    ids=["no id", "no hop", "foreign"],
)
def test_what_is_never_answered_is_not_beyond_the_limit_either(connect, listen, frame, fault):
    client = connect("big")
    client.socket.sendall(frame)
    assert client.is_closed()
    assert listen().stats.faults == {fault: 1}


# --- a restart ----------------------------------------------------------------------------------


def test_queues_and_channels_are_what_they_were_after_a_restart(tmp_path):
    path = tmp_path / "q.db"
    with Broker(path) as broker:
        client = TmqClient(broker.listen("tmq://127.0.0.1:0").address, "c")
        assert client.command(603, "ch", b"Client-Limit: 1\r\nAcknowledge-Timeout: 7\r\n") == OK
        assert client.create("ch", 1, queue_status="pull") == OK
        assert client.update("ch", 1, request_acknowledge=True) == OK
        assert client.create("ch", 2) == OK
        assert client.command(611, "ch", bytes((2, 0))) == OK
        assert client.create("gone", 1) == OK
        assert client.command(604, "gone") == OK
        client.push("ch", 1, b"kept")
        assert client.command(602, "x") == NOT_FOUND
        client.close()
    with Broker(path) as broker:
        listener = broker.listen("tmq://127.0.0.1:0")
        client, other = TmqClient(listener.address, "c"), TmqClient(listener.address, "d")
        assert client.join("ch") == OK
        assert other.join("ch") == 482
        got = client.pull("ch", 1)
        assert (got.body, got.wants_delivery, got.source) == (b"kept", True, b"c")
        assert client.answer(client.push("ch", 2, b"x")).content == NOT_FOUND
        assert client.join("gone") == NOT_FOUND
        client.close()
        other.close()


def test_only_the_last_word_about_each_queue_is_kept(connect, listen, broker):
    client = connect("c")
    client.create("ch", 1)
    for limit in range(1, 6):
        assert client.update("ch", 1, message_size_limit=limit) == OK
    book = broker.queue("@tmq", bytes)
    until(lambda: book.stats().stored == 1)
    (kept,) = book.peek(9)
    book.put_many([kept.body] * 3)  # as if the host had died before it removed older ones
    book.put(b"no entry")
    again = connect("d", ping=0)  # another listener
    until(lambda: book.stats().stored == 2)
    assert again.answer(again.push("ch", 1, b"123456")).content == 482


# --- options ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"order": "middle"},
        {"status": "stop"},
        {"duplicate": "both"},
        {"deliveries": "soon"},
        {"window": 0},
        {"redeliveries": 256},
        {"unknown": 1},
    ],
)
def test_options_are_checked(listen, wrong):
    with pytest.raises(InvalidOption):
        listen(**wrong)


def test_a_byte_order_can_be_the_only_one(connect, listen):
    assert connect("c", {"old": True}, order="big").command(602, "x") == NOT_FOUND
    client = TmqClient(listen(order="big").address, "d")
    with pytest.raises(Died):
        client.accepted()
    client.close()
