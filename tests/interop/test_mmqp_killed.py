"""The host of an MMQP listener is killed: an orderly end is told only for what is stored."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from pathlib import Path

import pytest

from embedq import Broker
from tests.interop.host import hosting
from tests.interop.mmqp_client import Mack

URL = "mmqp://127.0.0.1:0?create=1"


def test_a_kill_is_no_orderly_end(tmp_path: Path) -> None:
    with hosting(tmp_path / "q.db", URL) as host:
        (address,) = host.addresses
        with socket.create_connection(address, 30) as sock:
            sock.sendall(Mack(address).request("q", "hello")[:-3])
            Mack(address).send("q", "another")  # by then the first connection is being served
            host.kill()
            with pytest.raises(ConnectionResetError):
                sock.recv(1)


def confirmed_until_killed(
    folder: Path, count: int, planted: str = ""
) -> tuple[set[str], Counter[str]]:
    """Let clients send until the host is killed; return what was confirmed and what is there."""
    confirmed: list[str] = []
    with hosting(folder / "q.db", URL, planted=planted) as host:
        (address,) = host.addresses
        enough = threading.Event()

        def send(client: int) -> None:
            for number in range(100_000):
                text = f"{client}-{number}"
                try:
                    if Mack(address).send("q", text) != "":
                        return
                except OSError:
                    return
                confirmed.append(text)
                if len(confirmed) >= count:
                    enough.set()

        threads = [threading.Thread(target=send, args=(client,)) for client in range(4)]
        for thread in threads:
            thread.start()
        assert enough.wait(60)
        host.kill()
        for thread in threads:
            thread.join(60)
    with Broker(folder / "q.db") as broker:
        stored = Counter(each.body.decode() for each in broker.queue("q").peek(10_000))
    return set(confirmed), stored


def test_a_message_that_was_confirmed_is_there_after_a_kill(tmp_path: Path) -> None:
    for attempt in range(3):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        confirmed, stored = confirmed_until_killed(folder, 150)
        assert len(confirmed) >= 150
        assert confirmed <= stored.keys()
        assert set(stored.values()) == {1}


# An orderly end before the message is stored.
HASTY = """
from embedq_transports.mmqp.session import MmqpSession
def hasty(session, request, put=MmqpSession._put):
    session._connection.site.later(0.1, lambda: put(session, request))
MmqpSession._put = hasty
"""


def test_a_host_that_confirms_too_early_is_noticed(tmp_path: Path) -> None:
    confirmed, stored = confirmed_until_killed(tmp_path, 150, planted=HASTY)
    assert confirmed - stored.keys(), "the planted fault did nothing"
