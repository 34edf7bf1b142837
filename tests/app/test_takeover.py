"""The host is killed while its clients work: service goes on, and every put is done once."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from embedq import Broker, Message, Queue
from embedq.errors import NoHost
from tests.ipc.peer import eventually
from tests.processes import line_of

pytestmark = pytest.mark.reliability

ROOT = Path(__file__).parents[2]

HOST = """
import sys
from embedq import Broker
broker = Broker(sys.argv[1], role="host")
broker.queue("orders")
broker.backing.wait_until_served()
print("serving", flush=True)
sys.stdin.read()
"""


class Hosts:
    """Host processes on one file, one after another."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self.path = path
        self.stack = stack

    def start(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", HOST, str(self.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self.stack.callback(self.end, process)
        assert line_of(process) == "serving\n"
        return process

    @staticmethod
    def end(process: subprocess.Popen[str]) -> None:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    with ExitStack() as stack:
        yield Hosts(tmp_path / "app.db", stack)


@pytest.mark.parametrize("role", ["auto", "client"])
def test_a_host_killed_under_sixteen_threads_loses_and_doubles_no_put(
    hosts: Hosts, role: str
) -> None:
    host = hosts.start()
    with Broker(hosts.path, role=role) as broker:  # type: ignore[arg-type]
        orders = broker.queue("orders")
        confirmed: list[list[int]] = [[] for _ in range(16)]
        stop = threading.Event()

        def put(number: int) -> None:
            for body in itertools.count(number * 1_000_000):
                if stop.is_set():
                    return
                try:
                    orders.put(body, headers={} if number % 2 else {"plain": "no"})
                except NoHost:
                    continue  # the next host took longer to start than calls wait: unknown (P10)
                confirmed[number].append(body)

        threads = [threading.Thread(target=put, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()

        def go_on() -> None:
            least = min(map(len, confirmed)) + 20
            eventually(lambda: min(map(len, confirmed)) >= least, 60)

        go_on()
        hosts.end(host)
        if role == "client":
            hosts.end(hosts.start())
            hosts.start()
        go_on()
        stop.set()
        for thread in threads:
            thread.join(60)
        stored = Counter(int(message.body) for message in everything(orders))
        assert set(stored.values()) == {1}
        assert set(stored) >= {body for each in confirmed for body in each}
        hosted_here = broker.desk.host_pid == os.getpid()  # type: ignore[attr-defined]
        assert hosted_here == (role == "auto")


def everything(orders: Queue[Any]) -> Iterator[Message]:
    after = 0
    while messages := orders.peek(1000, after):
        yield from messages
        after = messages[-1].seq


def test_consumers_of_a_client_go_on_at_the_next_host(hosts: Hosts) -> None:
    host = hosts.start()
    seen: Counter[int] = Counter()
    lock = threading.Lock()
    broker = Broker(hosts.path)
    orders = broker.queue("orders", int)

    @orders.consumer(concurrency=4)
    def handle(number: int) -> None:
        with lock:
            seen[number] += 1

    with broker:
        orders.put_many(range(500))
        eventually(lambda: len(seen) > 100, 30)
        hosts.end(host)
        orders.put_many(range(500, 700))
        eventually(lambda: len(seen) == 700, 60)
        eventually(lambda: orders.stats().length == 0, 30)
    # What was done and not yet written down when the host died may be done again, no more.
    assert sum(count - 1 for count in seen.values()) <= 8


def test_a_consumer_that_waits_while_there_is_no_host_drains_at_once(hosts: Hosts) -> None:
    host = hosts.start()
    broker = Broker(hosts.path, role="client")

    @broker.queue("orders", int).consumer
    def handle(number: int) -> None: ...

    broker.start()
    hosts.end(host)
    eventually(lambda: broker.desk.host_pid is None)  # type: ignore[attr-defined]
    stopper = threading.Thread(target=broker.stop)
    stopper.start()
    stopper.join(20)
    assert not stopper.is_alive()


def test_listeners_hear_the_next_host_too(hosts: Hosts) -> None:
    host = hosts.start()
    heard: list[str | None] = []
    with Broker(hosts.path, role="client") as broker:
        broker.on("paused", lambda notice: heard.append(notice.queue))
        orders = broker.queue("orders")
        orders.pause()
        eventually(lambda: heard == ["orders"])
        hosts.end(host)
        hosts.start()
        orders.resume()
        orders.pause()
        eventually(lambda: heard == ["orders", "orders"])


TOGETHER = """
import sys
from embedq import Broker
from embedq.app.hosting import Hosted
print("ready", flush=True)
for line in sys.stdin:
    broker = Broker(line.strip())
    broker.queue("orders").put("x")
    print(isinstance(broker.backing, Hosted), flush=True)
    sys.stdin.readline()
    broker.stop()
    print("stopped", flush=True)
"""


def test_processes_that_start_at_the_same_instant_agree_on_one_host(tmp_path: Path) -> None:
    with ExitStack() as stack:
        processes = []
        for _ in range(2):
            process = subprocess.Popen(
                [sys.executable, "-c", TOGETHER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=ROOT,
            )
            stack.callback(Hosts.end, process)
            processes.append(process)

        def say(line: str) -> None:
            for process in processes:
                assert process.stdin is not None
                process.stdin.write(f"{line}\n")
                process.stdin.flush()

        def hear() -> list[str]:
            return sorted(line_of(process) for process in processes if process.stdout)

        assert hear() == ["ready\n"] * 2
        for turn in range(50):
            path = tmp_path / f"{turn}.db"
            say(str(path))
            assert hear() == ["False\n", "True\n"], turn
            say("stop")
            assert hear() == ["stopped\n"] * 2
            with Broker(path, role="host") as broker:
                assert broker.queue("orders").stats().length == 2
