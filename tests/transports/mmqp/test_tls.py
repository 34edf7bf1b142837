"""MMQP over TLS: an orderly end says the same there, though records come in pieces."""

from __future__ import annotations

import socket
import ssl
import time
from contextlib import suppress

import pytest
import trustme

from embedq.net import TLS
from embedq_transports.mmqp import MMQP
from tests.interop.mmqp_client import Mack


@pytest.fixture(scope="module")
def papers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("papers")
    authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    made = authority.issue_cert("localhost")
    made.private_key_and_cert_chain_pem.write_to_path(str(folder / "pair.pem"))
    return folder


class Encrypting:
    """A client that decides itself which bytes leave when."""

    def __init__(self, listener, papers) -> None:
        self.socket = socket.create_connection(listener.address, 60)
        made = ssl.create_default_context(cafile=str(papers / "ca.pem"))
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = made.wrap_bio(self._in, self._out, server_hostname="localhost")
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self.socket.sendall(self._out.read())
                self._in.write(self.socket.recv(65_536))
        self.socket.sendall(self._out.read())

    def record(self, data: bytes) -> bytes:
        self._tls.write(data)
        return self._out.read()

    def ends(self) -> bytes:
        """End in order, and return what comes until the listener has."""
        with suppress(ssl.SSLWantReadError):
            self._tls.unwrap()
        self.socket.sendall(self._out.read())
        while data := self.socket.recv(65_536):
            self._in.write(data)
        self.socket.close()
        with suppress(ssl.SSLZeroReturnError):
            return self._tls.read()
        return b""


@pytest.mark.parametrize("cut", [1, 5, 6, 500])
def test_a_message_whose_record_comes_in_two_pieces_is_stored(orders, broker, papers, cut):
    listener = broker.listen(
        "mmqp://127.0.0.1:0?quiet=1h", transport=MMQP, tls=TLS(papers / "pair.pem")
    )
    client = Encrypting(listener, papers)
    mack = Mack(("", 0))
    one = client.record(mack.request("orders", "one"))
    two = client.record(mack.request("orders", "two " * 500))
    client.socket.sendall(one + two[:cut])
    until = time.monotonic() + 60
    while orders.stats().length < 1:
        assert time.monotonic() < until
        time.sleep(0.005)
    client.socket.sendall(two[cut:])
    assert client.ends() == b""
    assert [each.body[:3] for each in orders.peek(9)] == [b"one", b"two"]
