"""Message ids that the server makes: of its own frames, and of what clients send each other."""

from __future__ import annotations

import re
import socket
from dataclasses import replace
from typing import Any

import pytest

from embedq.net import TokenFile
from tests.interop.tmq_client import PREAMBLE, Frame, TmqClient

ACCEPTED, BAD_REQUEST, UNAUTHORIZED, BUSY = 202, 400, 401, 503
MADE = re.compile(rb"[0-9a-f]{32}")


def greeting(client_id: bytes = b"", more: bytes = b"") -> bytes:
    """What a client sends before it has heard anything."""
    text = b"CONNECT /\r\nClient-Id: " + client_id + b"\r\n" + more
    return PREAMBLE + Frame(0x10, 101, b"m1", body=text, first=True).bytes()


NO_HELLO = PREAMBLE + Frame(0x11, 1, b"id", target=b"ch", body=b"x").bytes()
#: What is sent first, and the status that it is turned away with.
TURNED_AWAY = {
    "no hello": (NO_HELLO, BAD_REQUEST),
    "id too long": (greeting(b"x" * 256), BAD_REQUEST),
    "hello too large": (greeting(b"c1", b"x" * 65_536)[:1_000], BAD_REQUEST),
    "online": (greeting(b"taken"), BUSY),
}


def said(address: Any, sent: bytes) -> bytes:
    """All that is said behind the preamble, until the end."""
    with socket.create_connection(address, 30) as sock:
        sock.sendall(sent)
        parts = []
        while part := sock.recv(65_536):
            parts.append(part)
    whole = b"".join(parts)
    assert whole[:8] == PREAMBLE
    return whole[8:]


def turned_away(status: int, id: bytes = b"") -> bytes:
    return Frame(0x10, status, id, first=True).bytes()


@pytest.fixture
def tokens(tmp_path):
    file = tmp_path / "tokens"
    file.write_text("full secret-1\n")
    file.chmod(0o600)
    return TokenFile(file)


# --- answers to the Hello ---------------------------------------------------------------------


def test_who_is_accepted_hears_it_in_a_message_with_an_id(listen):
    client = TmqClient(listen().address, "c1")
    got = client.receive()
    assert MADE.fullmatch(got.id)
    assert got == Frame(0x10, ACCEPTED, got.id, target=b"c1", first=True)
    client.close()


def test_every_client_is_accepted_under_another_id(listen):
    clients = [TmqClient(listen().address, name) for name in ("c1", "c2")]
    assert len({each.receive().id for each in clients}) == 2
    for each in clients:
        each.close()


@pytest.mark.parametrize(("sent", "status"), TURNED_AWAY.values(), ids=TURNED_AWAY)
def test_who_is_turned_away_hears_it_in_a_message_with_an_id(listen, connect, sent, status):
    connect("taken")
    got = said(listen().address, sent)
    assert MADE.fullmatch(got[8:])
    assert got == turned_away(status, got[8:])


def test_who_has_a_wrong_token_hears_it_in_a_message_with_an_id(listen, tokens):
    got = said(listen(auth=tokens).address, greeting(b"c1", b"Client-Token: wrong\r\n"))
    assert MADE.fullmatch(got[8:])
    assert got == turned_away(UNAUTHORIZED, got[8:])


def test_old_clients_get_the_id_in_their_byte_order(listen):
    client = TmqClient(listen().address, "c1", old=True)
    got = client.receive()
    assert (got.content, bool(MADE.fullmatch(got.id))) == (ACCEPTED, True)
    client.close()


# --- a listener that makes none ---------------------------------------------------------------


def test_a_listener_that_makes_no_ids_makes_none_for_its_own_answers(listen):
    client = TmqClient(listen(ids=False).address, "c1")
    assert client.receive() == Frame(0x10, ACCEPTED, target=b"c1", first=True)
    client.close()


@pytest.mark.parametrize(("sent", "status"), TURNED_AWAY.values(), ids=TURNED_AWAY)
def test_nor_for_those_whom_it_turns_away(listen, connect, sent, status):
    connect("taken", ids=False)
    assert said(listen(ids=False).address, sent) == turned_away(status)


def test_nor_for_a_wrong_token(listen, tokens):
    sent = greeting(b"c1", b"Client-Token: wrong\r\n")
    assert said(listen(auth=tokens, ids=False).address, sent) == turned_away(UNAUTHORIZED)


# --- frames that have no id, whatever the listener makes --------------------------------------


def test_a_ping_its_answer_and_a_goodbye_have_no_id(connect, clock, listen):
    client, listener = connect("c", ping=40), listen(ping=40)
    client.socket.sendall(b"\x09\x10" + bytes(6))
    assert client.socket.recv(8) == b"\x8a\xff" + bytes(6)
    clock.advance(41)
    listener.look()
    assert client.socket.recv(8) == b"\x89\xff" + bytes(6)
    listener.close()
    assert client.socket.recv(8) == b"\x08\x10" + bytes(6)


# --- between clients ---------------------------------------------------------------------------

#: What is sent to another client: a message, a Delivery of one, a Response to one.
KINDS = pytest.mark.parametrize(
    "kind", [0x12, 0x13, 0x14], ids=["message", "delivery", "response"]
)


def sent(kind: int, target: bytes = b"c2", *, wants_response: bool = True) -> Frame:
    return Frame(
        kind, 55, b"", b"c1", target, b"hi", urgent=True, wants_response=wants_response, ttl=9
    )


@KINDS
def test_what_a_client_sends_another_without_an_id_gets_one_and_asks_for_no_response(
    connect, kind
):
    one, other = connect("c1"), connect("c2")
    one.send(sent(kind))
    got = other.receive()
    assert MADE.fullmatch(got.id)
    assert got == replace(sent(kind, wants_response=False), id=got.id, ttl=8)


@KINDS
def test_where_none_are_made_it_has_none_and_asks_for_no_response_either(connect, kind):
    one, other = connect("c1", ids=False), connect("c2", ids=False)
    one.send(sent(kind))
    assert other.receive() == replace(sent(kind, wants_response=False), ttl=8)


@KINDS
@pytest.mark.parametrize("ids", [True, False])
def test_an_id_that_it_has_is_kept_with_all_its_flags(connect, kind, ids):
    one, other = connect("c1", ids=ids), connect("c2", ids=ids)
    one.send(replace(sent(kind), id=b"\xff1"))
    assert other.receive() == replace(sent(kind), id=b"\xff1", ttl=8)


def test_all_of_a_name_get_a_message_under_the_same_id_and_every_message_another(connect):
    bob = {"hello": {"Client-Name": "bob"}}
    one, *others = connect("c1"), connect("c2", bob), connect("c3", bob)
    for _ in range(2):
        one.send(sent(0x12, b"@name:bob"))
    first, second = ([each.receive().id for each in others] for _ in range(2))
    assert first[0] == first[1]
    assert second[0] == second[1] != first[0]


def test_who_sent_no_id_is_not_answered_under_one_that_the_server_has_made(connect, listen):
    client = connect("c1")
    client.send(sent(0x12, b"nobody"))
    client.send(Frame(0x11, 1, source=b"c1", target=b"nowhere", body=b"x", wants_response=True))
    assert client.command(602, "x") == 404
    assert not client.inbox
    assert listen().stats.counts["unanswered 404"] == 2
