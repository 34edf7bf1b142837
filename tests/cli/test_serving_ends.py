"""How `embedq serve` ends, and begins again: under load, after a kill; where it can be reached."""

from __future__ import annotations

import signal
import socket
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from embedq import Broker
from tests.cli.test_running import PATIENCE_S, env, started
from tests.cli.test_serving import listening, send
from tests.conformance.transport_suite import eventually
from tests.interop.phpmq_client import Died, PhpmqClient
from tests.interop.sspq_client import SEND, packet
from tests.processes import lines_until

__all__ = ["env"]

PRODUCERS, ENOUGH = 6, 30
#: Of each producer: one look shows them all.
MOST = 10_000 // PRODUCERS


def put_until_the_end(address: tuple[str, int], number: int, confirmed: list[bytes]) -> None:
    """Put one after the other, each confirmed, until the server is gone."""
    client = PhpmqClient(address, timeout=PATIENCE_S)
    with suppress(OSError, EOFError, Died):
        for turn in range(MOST):
            body = b"%d-%d" % (number, turn)
            client.publish(b"q", body)
            client.receipt()
            confirmed.append(body)
    client.close()


def test_a_stop_under_load_is_in_good_order_and_keeps_what_was_confirmed(tmp_path, env):
    confirmed: list[list[bytes]] = [[] for _ in range(PRODUCERS)]
    words = ("q.db", "--listen", "phpmq://127.0.0.1:0?receipts=1")
    with started(tmp_path, env, "serve", *words) as process:
        (address,) = listening(process)
        threads = [
            threading.Thread(target=put_until_the_end, args=(address, number, bodies))
            for number, bodies in enumerate(confirmed)
        ]
        for thread in threads:
            thread.start()
        eventually(lambda: min(map(len, confirmed)) >= ENOUGH, PATIENCE_S)
        process.send_signal(signal.SIGTERM)
        printed = process.communicate(timeout=PATIENCE_S)[0]
        for thread in threads:
            thread.join(PATIENCE_S)
        assert process.returncode == 0
        assert "ended     no client was left" in printed
        assert "Traceback" not in printed
    with Broker(tmp_path / "q.db") as broker:
        stored = {message.body for message in broker.queue("q", bytes).peek(10_000)}
    assert stored >= {body for bodies in confirmed for body in bodies}


def test_a_unix_socket_that_a_killed_server_left_is_taken_over(tmp_path, env):
    path = tmp_path / "a.sock"
    words = ("q.db", "--listen", f"sspq+unix://{path}?queue=q")
    with started(tmp_path, env, "serve", *words) as process:
        lines_until(process, "running")
        process.kill()
        process.wait(PATIENCE_S)
    assert path.is_socket()
    with started(tmp_path, env, "serve", *words) as process:
        lines_until(process, "running")
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(PATIENCE_S)
            client.connect(str(path))
            client.sendall(packet(SEND, 3, b"x"))
            client.shutdown(socket.SHUT_WR)
            assert not client.recv(1)
        process.terminate()
        process.communicate(timeout=PATIENCE_S)
    assert not path.exists()
    with Broker(tmp_path / "q.db") as broker:
        assert broker.queue("q").stats().stored == 1


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="only on machines with IPv6")
def test_an_address_of_ipv6_is_served_and_printed_as_one_types_it(tmp_path: Path, env):
    with started(tmp_path, env, "serve", "q.db", "--listen", "sspq://[::1]:0?queue=q") as process:
        ((host, port),) = listening(process)
        assert host == "[::1]"
        send(("::1", port), b"x")
        process.terminate()
        process.communicate(timeout=PATIENCE_S)
    with Broker(tmp_path / "q.db") as broker:
        assert broker.queue("q").stats().stored == 1
