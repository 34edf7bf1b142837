"""A broker at tcp://: a process that has no file does everything through a host far away.

The processes are real, the machine is one: 127.0.0.1 is as far as a test can go.
"""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from embedq import Broker, Empty, InvalidOption, Queue, UsageError
from embedq.errors import EmbedqError, KeyRefused, NoHost
from embedq.ipc import keys
from tests.app.test_takeover import Hosts, everything
from tests.ipc.abroad import free_port, make_keys
from tests.ipc.peer import eventually

HOST = """
import sys
from embedq import Broker
path, endpoint, folder = sys.argv[1:]
broker = Broker(path, role="host", endpoint=endpoint, keys=folder)
broker.queue("orders")
broker.on("reachable", lambda notice: print(notice.name, flush=True))
broker.backing.wait_until_served()
sys.stdin.read()
"""

CONSUMER = """
import sys
from embedq import Broker
broker = Broker(sys.argv[1], keys=sys.argv[2])
@broker.queue("orders", int).consumer(concurrency=2)
def handle(number: int) -> None:
    print(number, flush=True)
    if number < 0:
        sys.stdin.read()
broker.run()
"""


class Far:
    """A folder of keys, an address, and host processes that serve it one after another."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.path = folder / "app.db"
        self.keys = make_keys(folder / "keys", "ada")
        self.endpoint = f"tcp://127.0.0.1:{free_port()}"
        self._stack = stack

    def run(self, code: str, *args: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", code, *map(str, args)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        self._stack.callback(Hosts.end, process)
        return process

    def host(self) -> subprocess.Popen[str]:
        process = self.run(HOST, self.path, self.endpoint, self.keys)
        assert process.stdout is not None
        assert process.stdout.readline() == "reachable\n"
        return process

    def broker(self) -> Broker:
        return Broker(self.endpoint, keys=self.keys)


@pytest.fixture
def far(tmp_path: Path) -> Iterator[Far]:
    with ExitStack() as stack:
        yield Far(tmp_path, stack)


@pytest.fixture
def here(far: Far) -> Iterator[Broker]:
    """A host in this process."""
    with Broker(far.path, endpoint=far.endpoint, keys=far.keys) as broker:
        broker.backing.wait_until_served()
        yield broker


def test_every_verb_works_from_afar(far: Far, here: Broker) -> None:
    with far.broker() as broker:
        orders = broker.queue("orders", str)
        assert broker.settings.path == far.endpoint
        orders.put("through the socket", priority=3, headers={"a": "b"}, dedup_key="once")
        assert orders.put("through the socket", dedup_key="once").duplicate
        with orders.get(60) as delivery:
            assert (delivery.body, delivery.priority) == ("through the socket", 3)
            assert dict(delivery.headers) == {"a": "b"}
            delivery.extend("1m")
        orders.put_many(["one", "two", "three"])
        first, second, third = orders.get_many(3, 5)
        first.ack()
        second.reject("not wanted")
        third.nack(delay="1h")
        with pytest.raises(Empty):
            orders.get(0)
        (letter,) = orders.dead.list()
        assert (letter.detail, letter.body) == ("not wanted", b"two")
        assert len(orders.dead.redrive()) == 1
        assert orders.stats().length == here.queue("orders").stats().length == 2
        orders.pause()
        assert here.queue("orders").paused
        orders.resume()
        heard: list[str] = []
        broker.on("purged", lambda notice: heard.append(notice.name))
        assert orders.purge() == 2
        eventually(lambda: heard)


def test_consumers_in_threads_and_coroutines_work_from_afar(far: Far, here: Broker) -> None:
    seen: Counter[str] = Counter()
    broker = far.broker()

    @broker.queue("plain", int).consumer(concurrency=2)
    def plain(number: int) -> None:
        seen["plain"] += 1

    @broker.queue("waiting", int).consumer(concurrency=2)
    async def waiting(number: int) -> None:
        await asyncio.sleep(0)
        seen["waiting"] += 1

    with broker:
        for name in ("plain", "waiting"):
            here.queue(name, int).put_many(range(30))
        eventually(lambda: seen == {"plain": 30, "waiting": 30})
        eventually(lambda: here.queue("plain").stats().length == 0)


def test_coroutines_put_and_get_from_afar(far: Far, here: Broker) -> None:
    async def both() -> str:
        async with far.broker() as broker:
            orders = broker.queue("orders", str)
            await orders.aput("x")
            delivery = await orders.aget(5)
            await delivery.aack()
            return str(delivery.body)

    assert asyncio.run(both()) == "x"
    assert here.queue("orders").stats().length == 0


def test_what_a_killed_process_held_goes_to_another_one(far: Far, here: Broker) -> None:
    orders = here.queue("orders", int)
    orders.put(-1)
    process = far.run(CONSUMER, far.endpoint, far.keys)
    assert process.stdout is not None
    assert process.stdout.readline() == "-1\n"
    process.kill()
    with orders.get(30) as delivery:
        assert (delivery.body, delivery.attempt) == (-1, 2)


@pytest.mark.reliability
def test_a_host_killed_under_its_far_clients_loses_and_doubles_no_put(far: Far) -> None:
    host = far.host()
    with far.broker() as broker:
        orders: Queue[Any] = broker.queue("orders")
        confirmed: list[list[int]] = [[] for _ in range(4)]
        stop = threading.Event()

        def put(number: int) -> None:
            for body in itertools.count(number * 1_000_000):
                if stop.is_set():
                    return
                try:
                    orders.put(body)
                except NoHost:
                    continue  # the next host took longer than calls wait: unknown (P10)
                confirmed[number].append(body)

        threads = [threading.Thread(target=put, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()

        def go_on() -> None:
            least = min(map(len, confirmed)) + 10
            eventually(lambda: min(map(len, confirmed)) >= least, 90)

        go_on()
        for _ in range(2):
            Hosts.end(host)
            host = far.host()
            go_on()
        stop.set()
        for thread in threads:
            thread.join(60)
        stored = Counter(int(message.body) for message in everything(orders))
    assert set(stored.values()) == {1}
    assert set(stored) >= {body for each in confirmed for body in each}


@pytest.mark.reliability
def test_consumers_from_afar_go_on_at_the_next_host(far: Far) -> None:
    host = far.host()
    seen: Counter[int] = Counter()
    broker = far.broker()
    orders = broker.queue("orders", int)

    @orders.consumer(concurrency=2)
    def handle(number: int) -> None:
        seen[number] += 1

    with broker:
        orders.put_many(range(200))
        eventually(lambda: len(seen) > 50, 30)
        Hosts.end(host)
        far.host()
        eventually(lambda: len(seen) == 200, 60)
        eventually(lambda: orders.stats().length == 0, 30)


def test_an_unknown_key_is_an_error_that_says_what_to_do(far: Far, here: Broker) -> None:
    file = far.keys / "clients" / "ada.public"
    public = file.read_text().strip()
    file.unlink()
    with pytest.raises(KeyRefused, match=public) as caught:
        far.broker().queue("orders").put("x")
    assert "embedq keys allow" in str(caught.value)
    keys.allow(far.keys, "ada", bytes.fromhex(public))
    far.broker().queue("orders").put("x")


@pytest.mark.reliability
def test_a_key_that_was_taken_back_ends_what_waits_at_the_next_connection(
    far: Far, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Until the next host has refused the key it is only not there, which is another error.
    monkeypatch.setattr("embedq.app.hosting.PATIENCE_S", 60.0)
    host = far.host()
    with far.broker() as broker:
        orders = broker.queue("orders")
        orders.put("x")
        (far.keys / "clients" / "ada.public").unlink()
        orders.put("the connection that is there stays")
        Hosts.end(host)
        far.host()
        with pytest.raises(KeyRefused):
            orders.get(60)
        with pytest.raises(KeyRefused):
            orders.put("x")


def trouble_of(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return why a broker finds no host: it must have had the time to find that out."""
    for patience_s in (0.5, 4.0, 30.0):
        monkeypatch.setattr("embedq.app.hosting.PATIENCE_S", patience_s)
        with pytest.raises(NoHost) as caught:
            broker.queue("orders").put("x")
        if "in time" not in str(caught.value):
            break
    return str(caught.value)


def test_the_key_of_another_host_is_named_as_the_trouble(
    far: Far, here: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = keys.new_pair(tmp_path / "other", "bob")
    keys.trust(tmp_path / "other", other.public)
    trouble = trouble_of(Broker(far.endpoint, keys=tmp_path / "other"), monkeypatch)
    assert "has not the key of" in trouble
    assert str(tmp_path / "other" / "host.public") in trouble
    here.queue("orders").put("nobody else notices")


def test_where_nobody_listens_the_address_is_named(
    far: Far, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert f"nobody answers at {far.endpoint}" in trouble_of(far.broker(), monkeypatch)


def take(number: int) -> None: ...


def test_a_pool_of_processes_is_refused_from_afar(far: Far, here: Broker) -> None:
    broker = far.broker()
    broker.queue("orders", int).consumer(pool="process")(take)
    with pytest.raises(UsageError, match="their own machine") as caught:
        broker.start()
    assert "leave out pool=" in str(caught.value)


def test_an_endpoint_without_keys_and_settings_that_contradict_are_refused(far: Far) -> None:
    for said in (
        {"path": "x.db", "endpoint": "tcp://127.0.0.1:0"},
        {"path": ":memory:", "endpoint": "tcp://127.0.0.1:0", "keys": far.keys},
        {"path": far.endpoint},
        {"path": far.endpoint, "keys": far.keys, "role": "host"},
        {"path": far.endpoint, "keys": far.keys, "endpoint": far.endpoint},
    ):
        with pytest.raises(EmbedqError) as caught:
            Broker(**said).queue("orders").put("x")
        assert caught.value.code in {"invalid_option", "insecure_listener"}
        assert caught.value.hint


def test_a_host_without_its_keys_does_not_open_the_file(far: Far, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidOption, match=r"no key .*host\.secret"):
        Broker(far.path, endpoint=far.endpoint, keys=tmp_path / "empty").queue("orders").put("x")
    assert not far.path.exists()
