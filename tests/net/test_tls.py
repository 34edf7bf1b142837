"""TLS: certificates of listeners and clients, reloading, what is no TLS, half-closed ends."""

from __future__ import annotations

import shutil
import socket
import ssl
from contextlib import suppress
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from embedq import InvalidOption
from embedq.net import TLS
from embedq.net.tls import Tunnel
from tests.conformance.transport_suite import Dialect, TransportSuite, dial, eventually, is_cut
from tests.interop.encrypting import Encrypting
from tests.net.client import Client
from tests.net.lines import LINES, LinesSession


@pytest.fixture(scope="session")
def papers(tmp_path_factory):
    """Certificates of two authorities: name.pem is key and chain, ca-N.pem the authority."""
    folder = tmp_path_factory.mktemp("papers")
    for number in (1, 2):
        authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
        authority.cert_pem.write_to_path(str(folder / f"ca-{number}.pem"))
        made = authority.issue_cert("localhost", common_name=f"anna-{number}")
        made.private_key_and_cert_chain_pem.write_to_path(str(folder / f"pair-{number}.pem"))
    return folder


def context(papers, authority: int = 1, own: int | None = None) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=str(papers / f"ca-{authority}.pem"))
    if own is not None:
        made.load_cert_chain(papers / f"pair-{own}.pem")
    return made


class Encrypted(Dialect):
    url = "lines://127.0.0.1:0"
    garbage = b"HELLO?\n"
    fragment = b"PUT q "
    bodies = (b"", b"x", "Grüße".encode(), b"b" * 100_000)

    def __init__(self, papers) -> None:
        self.papers = papers
        self.options = {"transport": LINES, "tls": TLS(papers / "pair-1.pem")}  # type: ignore[misc]

    def connect(self, listener):
        return Client(listener, context(self.papers))


class TestConformance(TransportSuite):
    @pytest.fixture
    def dialect(self, papers):
        return Encrypted(papers)


def test_a_client_certificate_is_a_login(listen, papers, monkeypatch):
    seen: list[Any] = []
    real = LinesSession.request

    def noted(self, line):
        seen.append(self.connection.identity.name)
        real(self, line)

    monkeypatch.setattr(LinesSession, "request", noted)
    listener = listen("lines://0.0.0.0:0", tls=TLS(papers / "pair-1.pem", ca=papers / "ca-2.pem"))
    client = Client(listener, context(papers, own=2))
    client.put(b"x")
    assert client.say("LOGIN whatever") == "HELLO anna-2"  # nobody is asked: it stays who it is
    client.put(b"x")
    assert seen == ["anna-2"] * 3
    client.close()


@pytest.mark.parametrize("own", [None, 1])
def test_a_client_without_the_right_certificate_gets_nothing(listen, papers, own):
    listener = listen(tls=TLS(papers / "pair-1.pem", ca=papers / "ca-2.pem"))
    with dial(listener) as plain:
        made = context(papers, own=own)
        with (
            made.wrap_socket(plain, server_hostname="localhost") as wrapped,
            suppress(ssl.SSLError, ConnectionError),
        ):
            assert not wrapped.recv(1)
    eventually(lambda: listener.stats.closed == {"tls": 1})
    assert listener.stats.faults == {"tls": 1}


def test_what_is_no_tls_ends_its_own_connection(listen, papers):
    listener = listen(tls=TLS(papers / "pair-1.pem"))
    healthy = Client(listener, context(papers))
    with dial(listener) as hostile:
        hostile.sendall(b"GET / HTTP/1.1\r\n\r\n" * 100)
        assert is_cut(hostile)
    healthy.put(b"x")
    healthy.close()


def test_a_handshake_has_the_time_of_a_login(listen, papers, clock):
    listener = listen(tls=TLS(papers / "pair-1.pem"), login_s=10)
    with dial(listener) as silent:
        eventually(lambda: listener.stats.connections == 1)
        clock.advance(11)
        listener.look()
        assert is_cut(silent)
    assert listener.stats.closed == {"login_timeout": 1}


def test_a_new_certificate_holds_from_the_reload_on_and_a_bad_one_changes_nothing(
    listen, papers, tmp_path
):
    shutil.copy(papers / "pair-1.pem", tmp_path / "now.pem")
    listener = listen(tls=TLS(tmp_path / "now.pem"))
    old = Client(listener, context(papers, 1))
    (tmp_path / "now.pem").write_text("nonsense")
    with pytest.raises(InvalidOption, match="cannot be used"):
        listener.reload()
    Client(listener, context(papers, 1)).close()
    shutil.copy(papers / "pair-2.pem", tmp_path / "now.pem")
    listener.reload()
    new = Client(listener, context(papers, 2))
    for each in (old, new):
        each.put(b"x")
        each.close()


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"cert": "missing.pem"}, "cert=.*missing.pem"),
        ({"cert": "ca-1.pem"}, "certificate .*ca-1.pem"),
        ({"cert": "pair-1.pem", "ca": "none"}, "ca=.*none"),
        ({"cert": "pair-1.pem", "ca": "empty.pem"}, "authority .*empty.pem"),
    ],
    ids=["cert", "no key", "ca", "empty ca"],
)
def test_files_that_cannot_be_used_are_named(listen, papers, wrong, told):
    (papers / "empty.pem").touch()
    with pytest.raises(InvalidOption, match=f"tls: (the )?{told}"):
        listen(tls=TLS(**{name: papers / value for name, value in wrong.items()}))
    with pytest.raises(InvalidOption, match="tls"):
        listen(tls="cert.pem")


def test_a_key_with_a_password_is_refused_and_nobody_is_asked_for_it(listen, papers, tmp_path):
    made = load_pem_private_key((papers / "pair-1.pem").read_bytes(), None)
    locked = BestAvailableEncryption(b"secret")
    key = made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked)
    (tmp_path / "key.pem").write_bytes(key)
    with pytest.raises(InvalidOption, match="has a password"):
        listen(tls=TLS(papers / "pair-1.pem", tmp_path / "key.pem"))


def test_a_client_that_only_shuts_its_side_is_still_answered(broker, listen, papers):
    listener = listen(tls=TLS(papers / "pair-1.pem"))
    client = Client(listener, context(papers))
    client.socket.sendall(b"PUT q x\n" * 3)
    client.socket.shutdown(socket.SHUT_WR)
    eventually(lambda: broker.queue("q").stats().stored == 3)
    eventually(lambda: not listener.stats.connections)
    client.close()


def exchanged(papers) -> tuple[ssl.SSLObject, ssl.MemoryBIO, Tunnel]:
    """A client's end with what it sends, and the tunnel to it, after their handshake."""
    tunnel = Tunnel(TLS(papers / "pair-1.pem").context())
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context(papers).wrap_bio(incoming, outgoing, server_hostname="localhost")
    while not tunnel.is_ready:
        with suppress(ssl.SSLWantReadError):
            client.do_handshake()
        tunnel.feed(outgoing.read())
        incoming.write(tunnel.take())
    return client, outgoing, tunnel


def test_wherever_records_are_cut_it_is_known_whether_the_rest_of_one_follows(papers):
    client, outgoing, tunnel = exchanged(papers)
    assert not tunnel.has_part
    records = []
    for body in (b"a", b"", b"b" * 300, b"c" * 40):
        if body:
            client.write(body)
        records.append(outgoing.read())
    ends = {len(b"".join(records[: n + 1])) for n in range(len(records))}
    data = b"".join(records)
    plain = b""
    for at in range(len(data)):
        plain += tunnel.feed(data[at : at + 1])
        assert tunnel.has_part is (at + 1 not in ends), f"after {at + 1} bytes"
    assert plain == b"a" + b"b" * 300 + b"c" * 40


def test_a_record_in_two_pieces_is_partly_there_only_between_them(papers):
    client, outgoing, tunnel = exchanged(papers)
    length = None
    at = 0
    while length is None or at <= length:
        client.write(b"first")
        first = outgoing.read()
        client.write(b"second" * 5)
        data = first + outgoing.read()
        length = len(data)
        plain = tunnel.feed(data[:at])
        assert tunnel.has_part is (at not in {0, len(first), length}), f"cut at {at}"
        plain += tunnel.feed(data[at:])
        assert not tunnel.has_part
        assert plain == b"first" + b"second" * 5
        at += 1


@pytest.mark.parametrize("cut", [1, 7], ids=["header", "body"])
def test_a_record_has_the_time_of_a_frame(listen, papers, clock, cut):
    listener = listen(tls=TLS(papers / "pair-1.pem"), frame_s=10)
    site = listener.inner._site
    slow, stalls = (
        Encrypting(listener.address, context(papers)),
        Encrypting(listener.address, context(papers)),
    )
    for each in (slow, stalls):
        each.socket.sendall(each.record(b"PUT q x\n"))
        assert each.read().startswith(b"STORED")
    rest = slow.record(b"PUT q y\n"), stalls.record(b"PUT q z\n")
    before = [each.channel.bytes_in for each in site.connections]
    for each, record in zip((slow, stalls), rest, strict=True):
        each.socket.sendall(record[:cut])
    eventually(lambda: [each.channel.bytes_in - cut for each in site.connections] == before)
    clock.advance(9)
    listener.look()
    slow.socket.sendall(rest[0][cut:])
    assert slow.read().startswith(b"STORED")
    clock.advance(2)
    listener.look()
    assert is_cut(stalls.socket)
    clock.advance(60)
    listener.look()
    slow.socket.sendall(slow.record(b"PUT q y\n"))
    assert slow.read().startswith(b"STORED")
    assert listener.stats.closed == {"frame_timeout": 1}
    for each in (slow, stalls):
        each.socket.close()
