"""Message ids that the server makes: of its answers to the Hello, and none where it makes none."""

from __future__ import annotations

import re
import socket
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
