"""The host of a PHPMQ listener is killed: nothing confirmed is lost, what was held comes again."""

from __future__ import annotations

import threading
from pathlib import Path

from tests.interop.host import hosting
from tests.interop.phpmq_client import Died, PhpmqClient

URL = "phpmq://127.0.0.1:0?receipts=1"


def test_what_is_held_at_a_kill_comes_again_under_the_same_ids(tmp_path: Path) -> None:
    with hosting(tmp_path / "q.db", URL) as host:
        client = PhpmqClient(host.addresses[0])
        for number in range(4):
            client.publish(b"Q", b"m%d" % number)
            assert client.receipt()
        client.consume(b"Q", 2)
        before = [client.receive() for _ in range(2)]
        host.kill()
        client.close()
    with hosting(tmp_path / "q.db", URL) as host:
        client = PhpmqClient(host.addresses[0])
        client.consume(b"Q", 9)
        again = []
        for _ in range(4):  # what was held when a host died is tried alone: the next needs the ack
            again.append(client.receive())
            client.ack(b"Q", again[-1].id)
        client.close()
    assert {each.content for each in again} == {b"m0", b"m1", b"m2", b"m3"}
    assert {each.id for each in before} <= {each.id for each in again}


def test_what_was_confirmed_is_there_after_a_kill(tmp_path: Path) -> None:
    confirmed: list[bytes] = []
    with hosting(tmp_path / "q.db", URL) as host:
        enough = threading.Event()

        def publish(client: PhpmqClient, name: int) -> None:
            try:
                for number in range(100_000):
                    content = b"%d-%d" % (name, number)
                    client.publish(b"Q", content)
                    client.receipt()
                    confirmed.append(content)
                    if len(confirmed) >= 400:
                        enough.set()
            except (Died, OSError):
                pass  # it was killed
            finally:
                client.close()

        clients = [PhpmqClient(host.addresses[0]) for _ in range(4)]
        threads = [
            threading.Thread(target=publish, args=(client, name))
            for name, client in enumerate(clients)
        ]
        for thread in threads:
            thread.start()
        assert enough.wait(60)
        host.kill()
        for thread in threads:
            thread.join(60)
    with hosting(tmp_path / "q.db", URL) as host:
        client = PhpmqClient(host.addresses[0])
        client.consume(b"Q", 60_000)
        found: set[bytes] = set()
        while not set(confirmed) <= found:
            message = client.receive()
            found.add(message.content)
            client.ack(b"Q", message.id)
        client.close()
