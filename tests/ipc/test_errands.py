"""Errands at a host: a light connection that asks, waits for the next host, and tells errors."""

from __future__ import annotations

import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from embedq.broker.chunks import PlainBodies, encode
from embedq.broker.staging import Published
from embedq.errors import (
    InvalidOption,
    KeyRefused,
    NoHost,
    QueueNotFound,
    StoreClosed,
)
from embedq.ipc import frames, keys
from embedq.ipc.abroad import Listening
from embedq.ipc.errands import open_office
from embedq.ipc.link import Link
from embedq.ipc.verbs import served as verbs_of
from embedq.storage.staged import Part
from tests.app.test_takeover import Hosts
from tests.ipc.abroad import free_port, make_keys
from tests.ipc.conftest import Served
from tests.ipc.peer import eventually
from tests.processes import line_of

ROOT = Path(__file__).parents[2]


@pytest.fixture
def host(unstarted: Served) -> Served:
    unstarted.start(verbs=verbs_of(unstarted.desk.office))
    return unstarted


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    with ExitStack() as stack:
        yield Hosts(tmp_path / "app.db", stack)


def test_an_errand_asks_what_the_application_itself_could_ask(host: Served) -> None:
    with open_office(host.path) as office:
        assert office.info("orders") == host.desk.office.info("orders")
        with pytest.raises(QueueNotFound):
            office.info("nothing")
    with pytest.raises(StoreClosed):
        office.queues()


def test_errands_leave_no_row_behind_and_who_was_given_something_leaves_its_name(
    host: Served,
) -> None:
    def named() -> list[str]:
        with closing(sqlite3.connect(f"file:{host.path}?mode=ro", uri=True)) as database:
            return [name for (name,) in database.execute("SELECT name FROM session ORDER BY id")]

    before = named()
    for _ in range(3):
        with open_office(host.path, name="errand") as office:
            office.info("orders")
    eventually(lambda: named() == before)
    worker = host.peer()
    worker.put(host.q, b"a")
    worker.exchange(group=host.g, most=1)
    worker.ask(frames.Bye)
    eventually(lambda: named() == [*before, "peer"])


def test_an_errand_at_another_machine_shows_its_key(unstarted: Served, tmp_path: Path) -> None:
    folder = make_keys(tmp_path / "keys", "ada")
    keys.new_pair(folder, "eve")
    place = f"tcp://127.0.0.1:{free_port()}"
    listening = Listening(place, keys.host_keys(folder))
    unstarted.start(verbs=verbs_of(unstarted.desk.office), listening=listening)
    with open_office(place, folder / "ada.secret") as office:
        assert office.queues() == ["orders"]
    with (
        pytest.raises(KeyRefused, match="or set `keys` to another"),
        open_office(place, folder / "eve.secret"),
    ):
        pass
    with pytest.raises(InvalidOption, match="set `keys` to the file"), open_office(place):
        pass


def test_an_errand_waits_for_the_host_that_follows_a_killed_one(hosts: Hosts) -> None:
    first = hosts.start()
    with open_office(hosts.path, patience_s=60.0) as office:
        office.declare("letters", {})
        hosts.end(first)
        answers: list[list[str]] = []
        asking = threading.Thread(target=lambda: answers.append(office.queues()))
        asking.start()
        hosts.start()
        asking.join(60)
        assert [set(each) for each in answers] == [{"orders", "letters"}]


def test_a_batch_is_published_once_though_its_hosts_are_killed(hosts: Hosts) -> None:
    """One is killed with the batch staged, one with it published; both calls come again."""
    chunk = encode(PlainBodies(0, [b"a", b"b"]))
    part = Part("task", 1, 2)
    first = hosts.start()
    with open_office(hosts.path, patience_s=60.0) as office:
        office.stage_put("orders", "sink", "task", 0, chunk)
        hosts.end(first)
        second = hosts.start()
        office.stage_put("orders", "sink", "task", 0, chunk)
        assert office.stage_publish("orders", "sink", 7, [part]) == Published(False, 2, 2)
        hosts.end(second)
        hosts.start()
        assert office.stage_publish("orders", "sink", 7, [part]) == Published(True, 2, 0)
        assert office.queue_stats("orders").stored == 2


def test_an_errand_that_finds_nobody_names_the_option(tmp_path: Path) -> None:
    with (
        pytest.raises(NoHost, match=r"there is no such file\nhint: .*`endpoint`") as caught,
        open_office(tmp_path / "no.db", patience_s=0.1),
    ):
        pass
    assert caught.value.details == {"path": str(tmp_path / "no.db")}
    folder = make_keys(tmp_path / "keys", "ada")
    place = f"tcp://127.0.0.1:{free_port()}"
    with (
        pytest.raises(NoHost, match=r"nobody answers at(.|\n)*`endpoint`"),
        open_office(place, folder / "ada.secret", patience_s=0.1),
    ):
        pass


def test_an_errand_whose_host_stays_away_is_told_so(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Link] = []

    def link(*args: Any, **options: Any) -> Link:
        made.append(Link(*args, **options))
        return made[0]

    monkeypatch.setattr("embedq.ipc.errands.Link", link)
    host = hosts.start()
    with open_office(hosts.path) as office:
        made[0]._patience_s = 0.1  # from here on: what connects may take its time
        hosts.end(host)
        with pytest.raises(NoHost, match=r"no process hosts .*app.db\n"):
            office.queues()


@pytest.mark.parametrize("place", ["", "tcp://nowhere", "tcp://*:1", "http://localhost:80"])
def test_what_is_no_address_is_refused_at_once(place: str) -> None:
    with pytest.raises(InvalidOption, match="is no address of a host"), open_office(place):
        pass


def test_an_errand_at_something_that_is_no_host_ends_with_an_error(tmp_path: Path) -> None:
    folder = make_keys(tmp_path / "keys", "ada")
    with socket.create_server(("127.0.0.1", 0)) as other:
        place = f"tcp://127.0.0.1:{other.getsockname()[1]}"

        def babble() -> None:
            try:
                while True:
                    connection, _ = other.accept()
                    with connection:
                        connection.sendall(b"SSH-2.0-something\r\n" * 20)
            except OSError:
                return  # closed

        babbling = threading.Thread(target=babble)
        babbling.start()
        with (
            pytest.raises(NoHost, match=r"what listens at|nobody answers at"),
            open_office(place, folder / "ada.secret", patience_s=0.3),
        ):
            pass
        other.shutdown(socket.SHUT_RDWR)
    babbling.join(20)
    assert not babbling.is_alive()


FORKING = """
import os, sys
from embedq.ipc.errands import open_office
from embedq.errors import ForkedBroker
with open_office(sys.argv[1]) as office:
    office.queues()
    pid = os.fork()
    if not pid:
        try:
            office.queues()
        except ForkedBroker:
            with open_office(sys.argv[1]) as own:
                print(own.queues(), flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
    print(office.queues(), flush=True)
assert not {"asyncio", "click", "embedq.app"} & set(sys.modules)
"""


def test_a_forked_child_opens_an_office_of_its_own(host: Served) -> None:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKING, str(host.path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert [line_of(process), line_of(process)] == ["['orders']\n"] * 2
        assert process.wait(60) == 0


def test_large_answers_are_kept_only_where_a_call_must_not_be_done_twice(
    unstarted: Served,
) -> None:
    done: list[str] = []

    def large(args: bytes, _: object) -> bytes:
        done.append("large")
        return msgspec.msgpack.encode(b"x" * 10_000)

    def once(args: bytes, _: object) -> bytes:
        done.append("once")
        return msgspec.msgpack.encode(b"x" * 10_000)

    large.__dict__["repeat"] = True
    unstarted.start(verbs={"large": large, "once": once})
    peer = unstarted.peer()
    for verb in ("large", "once"):
        request = frames.Call(peer.n(), verb, msgspec.Raw(b"\x90"))
        for _ in range(2):
            peer.send(request)
            assert isinstance(peer.answer_to(request.n), frames.Result)
    assert done == ["large", "large", "once"]
