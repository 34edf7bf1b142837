"""A process that is connected becomes the host when there is none, and only then."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from embedq import Broker, StoreFailed, StoreInUse
from embedq.app.succession import Succession
from embedq.ipc.server import Server
from embedq.storage.owners import owner_of
from tests.processes import line_of

HOST = """
import sys, threading
from embedq import Broker
broker = Broker(sys.argv[1])
broker.queue("orders", int).put(0)
broker.backing.wait_until_served()
print("serving", flush=True)
sys.stdin.read()
broker.stop()
"""


HOLDER = """
import sys, threading
from embedq import Broker
broker = Broker(sys.argv[1], role="client")
delivery = broker.queue("orders", int).get(60)
print("held", flush=True)
threading.Event().wait(60)
"""


class Opened:
    """A host that counts how often it was closed."""

    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def settled(succession: Succession) -> None:
    thread = succession._thread
    assert thread is not None
    thread.join(60)


@contextmanager
def host_process(path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HOST, str(path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        assert line_of(process) == "serving\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stdin.close()


def test_one_that_is_quicker_is_no_failure() -> None:
    def open_host() -> Opened:
        raise StoreInUse("somebody was quicker")

    told: list[Exception] = []
    succession = Succession(open_host, lambda: 0.0, told.append)
    succession.missing()
    settled(succession)
    succession.missing()  # it tries again at once: that one may be gone, too
    settled(succession)
    assert (told, succession.host) == ([], None)


def test_what_keeps_it_from_taking_over_is_told_and_tried_again_in_a_second() -> None:
    now = [0.0]
    tries: list[float] = []

    def open_host() -> Opened:
        tries.append(now[0])
        raise StoreFailed("no disk")

    told: list[Exception] = []
    succession = Succession(open_host, lambda: now[0], told.append)
    for moment in (0.0, 0.5, 1.0):
        now[0] = moment
        succession.missing()
        settled(succession)
    assert tries == [0.0, 1.0]
    assert [str(error).split("\n")[0] for error in told] == ["no disk", "no disk"]


def test_a_host_that_was_just_opened_is_left_alone_until_it_could_have_been_found() -> None:
    now = [0.0]
    opened: list[Opened] = []

    def open_host() -> Opened:
        opened.append(Opened())
        return opened[-1]

    succession = Succession(open_host, lambda: now[0], lambda _: None)
    for moment in (0.0, 0.5, 1.0):
        now[0] = moment
        succession.missing()
        settled(succession)
    assert [host.closed for host in opened] == [1, 0]


def test_a_client_that_takes_over_and_is_slow_to_serve_opens_the_file_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, start = tmp_path / "app.db", Server.start

    def slowly(server: Server) -> None:
        threading.Event().wait(0.3)  # looks for a host come every 50 ms
        start(server)

    with host_process(path) as process, Broker(path) as broker:
        monkeypatch.setattr(Server, "start", slowly)
        process.kill()
        broker.queue("orders", int).put(1)
        owner = owner_of(path)
        assert owner is not None
        assert owner.epoch == 2


def test_a_host_that_opens_while_the_broker_closes_is_closed() -> None:
    opening, go_on = threading.Event(), threading.Event()
    opened = Opened()

    def open_host() -> Opened:
        opening.set()
        go_on.wait(60)
        return opened

    succession = Succession(open_host, lambda: 0.0, lambda _: None)
    succession.missing()
    opening.wait(60)
    closer = threading.Thread(target=succession.close)
    closer.start()
    go_on.set()
    closer.join(60)
    assert (opened.closed, closer.is_alive()) == (1, False)


@pytest.mark.parametrize("how", ["killed", "stopped in order"])
def test_a_client_takes_over_when_its_host_is_gone(tmp_path: Path, how: str) -> None:
    path = tmp_path / "app.db"
    with host_process(path) as host, Broker(path) as broker:
        orders = broker.queue("orders", int)
        orders.put(1)
        assert broker.desk.host_pid == host.pid  # type: ignore[attr-defined]
        if how == "killed":
            host.kill()
        else:
            assert host.stdin is not None
            host.stdin.close()
        host.wait()
        orders.put(2)
        assert broker.desk.host_pid == os.getpid()  # type: ignore[attr-defined]
        assert sorted(delivery.body for delivery in orders.get_many(10, 5)) == [0, 1, 2]
    with Broker(path, role="host") as again:
        assert again.queue("orders").stats().length == 3


def test_one_that_must_not_be_the_host_waits_for_another(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    with host_process(path) as host, Broker(path, role="client") as broker:
        orders = broker.queue("orders", int)
        orders.put(1)
        host.kill()
        host.wait()
        with host_process(path):
            orders.put(2)
            assert len(orders.peek()) == 4


def test_what_a_client_holds_is_its_own_under_the_next_host(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    with host_process(path) as host, Broker(path) as broker:
        orders = broker.queue("orders", int)
        held = orders.get(60)
        host.kill()
        host.wait()
        orders.put(1)  # answered by the next host
        (other,) = orders.get_many(10, 5)
        assert (held.body, other.body) == (0, 1)
        held.ack()
        other.ack()
        assert orders.stats().length == 0


def test_what_nobody_shows_to_the_next_host_is_an_attempt_that_was_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    with host_process(path) as host, Broker(path) as broker:
        orders = broker.queue("orders", int)
        command = [sys.executable, "-c", HOLDER, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
            assert line_of(holder) == "held\n"
            holder.kill()
            host.kill()
        host.wait()
        again = orders.get(60)
        assert (again.body, again.attempt) == (0, 2)
        again.ack()
