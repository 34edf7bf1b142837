"""MMQP over TLS: an orderly end says the same there, though records come in pieces."""

from __future__ import annotations

import ssl
import time

import pytest
import trustme

from embedq.net import TLS
from embedq_transports.mmqp import MMQP
from tests.interop.encrypting import Encrypting
from tests.interop.mmqp_client import Mack


@pytest.fixture(scope="module")
def papers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("papers")
    authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    made = authority.issue_cert("localhost")
    made.private_key_and_cert_chain_pem.write_to_path(str(folder / "pair.pem"))
    return folder


@pytest.mark.parametrize("cut", [1, 5, 6, 500])
def test_a_message_whose_record_comes_in_two_pieces_is_stored(orders, broker, papers, cut):
    listener = broker.listen(
        "mmqp://127.0.0.1:0?quiet=1h", transport=MMQP, tls=TLS(papers / "pair.pem")
    )
    client = Encrypting(listener.address, ssl.create_default_context(cafile=papers / "ca.pem"))
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
