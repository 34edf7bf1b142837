"""Messages through a client: whoever gives up leaves nothing behind, and puts are done once."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable
from pathlib import Path

import pytest

from embedq.broker.endings import DONE, RELEASED
from embedq.broker.waiting import Waiter
from embedq.errors import LimitExceeded, StaleLease, StoreClosed
from embedq.ipc.handles import RemoteGroup, RemoteQueue
from embedq.ipc.remote import RemoteDesk
from embedq.ipc.server import Server
from embedq.ipc.verbs import served
from embedq.message import draft
from embedq.policy import QueuePolicy
from tests.ipc.conftest import Served
from tests.ipc.peer import eventually
from tests.processes import line_of
from tests.reliability.interrupting import Strike


class Client:
    """A connected desk, and the queue of the host it is connected to."""

    def __init__(self, host: Served) -> None:
        self.host = host
        self.desk = RemoteDesk(host.path)
        self.desk.open(20)
        self.queue: RemoteQueue = self.desk.declare("orders", {})
        self.group: RemoteGroup = self.desk.group(self.queue)

    def nothing_is_held(self) -> bool:
        return not self.host.group.leases and not self.desk.holdings.held()


@pytest.fixture
def client(unstarted: Served) -> Client:
    unstarted.server = Server(unstarted.desk, unstarted.path, verbs=served(unstarted.desk.office))
    unstarted.start()
    made = Client(unstarted)
    unstarted.stack.callback(made.desk.close)
    return made


def interrupt_when(condition) -> threading.Thread:
    """Press Ctrl-C as soon as a condition is true."""

    def press() -> None:
        eventually(condition)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    return thread


def test_ctrl_c_in_a_blocked_get_leaves_nothing_waiting(client: Client) -> None:
    presses = interrupt_when(lambda: client.host.group.waiters)
    with pytest.raises(KeyboardInterrupt):
        client.desk.wait_claim(client.group)
    presses.join()
    eventually(lambda: not client.host.group.waiters)
    client.desk.put(client.queue, b"x")
    (lease,) = client.desk.wait_claim(client.group, timeout=20)
    assert lease.attempt == 1
    client.desk.settle([(lease, DONE)])
    assert client.nothing_is_held()


def test_a_claim_that_is_interrupted_anywhere_gives_back_what_it_brings(client: Client) -> None:
    client.desk.put_many(client.queue, [b"x"] * 3)

    def claim() -> None:
        leases[:] = client.desk.exchange(client.group, (), 2).leases

    struck = 0
    for number in range(1, 500):
        leases: list = []
        strike = Strike(number)
        strike.during(claim)
        if leases:
            client.desk.settle([(lease, RELEASED) for lease in leases])
        eventually(client.nothing_is_held)
        struck += strike.where is not None
        if strike.where is None:
            break
    assert struck > 30
    found = client.desk.wait_claim(client.group, 5, 5)
    assert [lease.attempt for lease in found] == [1, 1, 1]


def test_a_cancelled_coroutine_gives_back_what_it_brings(client: Client) -> None:
    async def main() -> None:
        for _ in range(20):
            tasks = [asyncio.create_task(client.desk.await_claim(client.group)) for _ in range(5)]
            await asyncio.wait(tasks, timeout=0.005)
            client.desk.put(client.queue, b"x")
            for task in tasks:
                task.cancel()
            done = await asyncio.gather(*tasks, return_exceptions=True)
            for leases in done:
                if isinstance(leases, list):
                    await client.desk.asettle([(lease, RELEASED) for lease in leases])

    asyncio.run(main())
    eventually(client.nothing_is_held)
    eventually(lambda: not client.host.group.waiters)
    left = client.desk.wait_claim(client.group, 100, 5)
    assert [lease.attempt for lease in left] == [1] * 20


def test_a_cancelled_settlement_is_done_all_the_same_and_forgotten(client: Client) -> None:
    client.desk.put(client.queue, b"x")
    leases = client.desk.wait_claim(client.group, timeout=20)

    async def main() -> None:
        task = asyncio.create_task(client.desk.asettle([(lease, DONE) for lease in leases]))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())
    eventually(client.nothing_is_held)
    assert client.host.desk.office.queue_stats("orders").stored == 0


def test_a_waiter_that_is_cancelled_returns_at_once(client: Client) -> None:
    waiter = Waiter()
    found: list = []
    thread = threading.Thread(
        target=lambda: found.append(
            client.desk.exchange(client.group, timeout=None, waiter=waiter).leases
        )
    )
    thread.start()
    eventually(lambda: client.host.group.waiters)
    client.desk.cancel_wait(waiter)
    thread.join(20)
    assert found == [[]]
    again = client.desk.exchange(client.group, timeout=None, waiter=waiter)
    assert again.leases == []


def fill(client: Client) -> int:
    """Let puts into the queue wait for room; returns what is in the way."""
    client.host.desk.queue("orders", QueuePolicy(max_length=1))
    return client.desk.put(client.queue, b"first")


@pytest.mark.parametrize("plain", [True, False])
def test_a_put_whose_coroutine_was_cancelled_does_not_wait_at_the_host(
    client: Client,
    plain: bool,  # noqa: FBT001
) -> None:
    first = fill(client)
    space = client.host.queue.space

    def put(body: bytes) -> Awaitable[object]:
        if plain:
            return client.desk.aput(client.queue, body)
        return client.desk.aput_drafts(client.queue, [draft(body)])

    async def main() -> None:
        puts = []
        for number in range(3):
            puts.append(asyncio.ensure_future(put(b"%d" % number)))
            await asyncio.to_thread(eventually, lambda: len(space) == len(puts))
        for cancelled in puts[:2]:
            cancelled.cancel()
        await asyncio.wait(puts[:2])
        await asyncio.to_thread(eventually, lambda: len(space) == 1)
        client.host.desk.cancel(client.host.queue, first)
        await asyncio.wait_for(puts[2], 20)

    asyncio.run(main())
    assert [message.body for message in client.host.desk.peek(client.host.queue)] == [b"2"]


@pytest.mark.parametrize("plain", [True, False])
def test_ctrl_c_in_a_put_that_waits_for_room_leaves_nothing_waiting(
    client: Client,
    plain: bool,  # noqa: FBT001
) -> None:
    first = fill(client)
    presses = interrupt_when(lambda: client.host.queue.space)
    desk, queue = client.desk, client.queue
    put = (
        (lambda: desk.put(queue, b"late"))
        if plain
        else (lambda: desk.put_drafts(queue, [draft(b"late")]))
    )
    with pytest.raises(KeyboardInterrupt):
        put()
    presses.join()
    eventually(lambda: not client.host.queue.space)
    client.host.desk.cancel(client.host.queue, first)
    client.desk.put(client.queue, b"last")
    assert [message.body for message in client.host.desk.peek(client.host.queue)] == [b"last"]


def test_threads_and_coroutines_together_put_everything_once(client: Client) -> None:
    def work(number: int) -> None:
        async def main() -> None:
            await asyncio.gather(
                *[client.desk.aput(client.queue, b"%d-%d" % (number, n)) for n in range(50)]
            )

        client.desk.put(client.queue, b"%d-a" % number)
        asyncio.run(main())
        client.desk.put_many(client.queue, [b"%d-b" % number, b"%d-c" % number])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    rows = client.desk.office.peek("orders", 10_000, 0)
    assert len({row.body for row in rows}) == len(rows) == 8 * 53


def test_bodies_at_their_limit_pass_and_larger_ones_are_refused_here(client: Client) -> None:
    most = client.desk.limits.body_bytes
    body = bytes(most)
    client.desk.put(client.queue, body)
    client.desk.put_drafts(client.queue, [draft(body, priority=3)])
    first, second = [*client.desk.wait_claim(client.group), *client.desk.wait_claim(client.group)]
    assert len(first.message.body) == len(second.message.body) == most
    client.desk.settle([(first, DONE), (second, DONE)])
    with pytest.raises(LimitExceeded):
        client.desk.put(client.queue, bytes(most + 1))
    with pytest.raises(LimitExceeded):
        client.desk.put_many(client.queue, [body] * (client.desk.limits.batch_bytes // most + 1))
    with pytest.raises(LimitExceeded):
        client.desk.put_many(client.queue, [b""] * (client.desk.limits.batch_messages + 1))
    assert client.desk.put(client.queue, b"still connected") > 0


def test_a_batch_at_its_limit_passes(client: Client) -> None:
    most = client.desk.limits.batch_messages
    assert len(client.desk.put_many(client.queue, [b"x"] * most)) == most
    assert len(client.desk.wait_claim(client.group, most)) == most


def test_a_full_batch_of_large_bodies_passes(client: Client) -> None:
    limits = client.desk.limits
    count = limits.batch_bytes // limits.body_bytes
    bodies = [bytes(limits.body_bytes - 200)] * count
    assert len(client.desk.put_many(client.queue, bodies)) == count


def test_closing_wakes_those_who_wait(client: Client) -> None:
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            client.desk.wait_claim(client.group)
        except StoreClosed as error:
            errors.append(error)

    threads = [threading.Thread(target=wait) for _ in range(4)]
    for thread in threads:
        thread.start()
    eventually(lambda: len(client.host.group.waiters) == 4)
    client.desk.close()
    for thread in threads:
        thread.join(20)
    assert len(errors) == 4


def test_an_extended_lease_lives_longer_and_one_that_ended_cannot_be(client: Client) -> None:
    client.desk.put(client.queue, b"x")
    (lease,) = client.desk.wait_claim(client.group, timeout=20, lease_s=60)
    client.desk.extend(lease, 600)
    (host_lease,) = client.host.group.leases.values()
    assert host_lease.deadline - client.host.desk.monotonic() > 400
    client.desk.settle([(lease, DONE)])
    with pytest.raises(StaleLease):
        client.desk.extend(lease, 30)


HOLDER = """
import sys
from embedq import Broker
orders = Broker(sys.argv[1]).queue("orders")
print(len(orders.get_many(10, 10)), flush=True)
orders.get()
"""


def test_a_client_that_is_interrupted_gives_everything_back(client: Client) -> None:
    client.desk.put_many(client.queue, [b"x"] * 3)
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(client.host.path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    try:
        assert line_of(process) == "3\n"
        process.send_signal(signal.SIGINT)
        process.wait(20)
        eventually(client.nothing_is_held)
        assert len(client.desk.wait_claim(client.group, 5, 5)) == 3
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
