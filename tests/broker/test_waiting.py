"""Whoever waits for messages is woken by what makes one ready, in turn, and loses nothing."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from zlib import crc32

import pytest

from embedq.broker.desk import Desk, Round
from embedq.broker.direct import PlainPut, PutMessages
from embedq.broker.endings import DONE, Failed, Together
from embedq.broker.host import open_engine
from embedq.broker.intake import row_of
from embedq.broker.leases import Lease
from embedq.broker.moves import Claim
from embedq.broker.removal import remove_group
from embedq.broker.state import GroupState, QueueState
from embedq.broker.waiting import Waiter, Waiters
from embedq.clock import VirtualClock
from embedq.errors import GroupNotFound, StoreClosed
from embedq.message import draft
from embedq.storage.ops import PutPlain
from embedq.storage.writer import Task

SOON = 20.0  # far longer than anything here takes: a hang fails, it does not pass


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def desk(clock: VirtualClock):
    with open_engine(":memory:", clock=clock, upkeep=False) as opened:
        yield opened


@pytest.fixture
def queue(desk: Desk) -> QueueState:
    return desk.queue("orders")


@pytest.fixture
def group(desk: Desk, queue: QueueState) -> GroupState:
    return desk.group(queue)


class Waiting:
    """A thread that waits for messages."""

    def __init__(self, desk: Desk, group: GroupState, most: int = 1) -> None:
        self.waiter = Waiter()
        self.error: BaseException | None = None
        self.leases: Sequence[Lease] = ()
        before = len(group.waiters)
        self._thread = threading.Thread(target=self._run, args=(desk, group, most), daemon=True)
        self._thread.start()
        poll(lambda: len(group.waiters) > before or not self._thread.is_alive())

    def _run(self, desk: Desk, group: GroupState, most: int) -> None:
        try:
            self.leases = desk.wait_claim(group, most, SOON, 100, waiter=self.waiter)
        except StoreClosed as error:
            self.error = error

    @property
    def is_waiting(self) -> bool:
        return self._thread.is_alive()

    def result(self) -> list[int]:
        self._thread.join(SOON)
        assert not self._thread.is_alive()
        return [lease.seq for lease in self.leases]


def poll(condition: Callable[[], object]) -> None:
    pause = threading.Event()
    for _ in range(2_000):
        if condition():
            return
        pause.wait(0.005)
    raise AssertionError("it did not happen")


def test_a_put_wakes_the_one_who_waits(desk: Desk, queue: QueueState, group: GroupState) -> None:
    waiting = Waiting(desk, group)
    seq = desk.put(queue, b"body")
    assert waiting.result() == [seq]
    assert not group.waiters


def test_those_who_wait_are_served_in_turn(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    waiting = [Waiting(desk, group) for _ in range(4)]
    for number, each in enumerate(waiting):
        seq = desk.put(queue, b"body")
        assert each.result() == [seq]
        assert [other.is_waiting for other in waiting[number + 1 :]] == [True] * (3 - number)


def test_many_puts_wake_as_many_as_wait(desk: Desk, queue: QueueState, group: GroupState) -> None:
    waiting = [Waiting(desk, group) for _ in range(3)]
    seqs = desk.put_many(queue, [b"body"] * 3)
    assert sorted(seq for each in waiting for seq in each.result()) == list(seqs)


def test_a_message_with_a_priority_or_a_key_wakes_too(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    waiting = Waiting(desk, group)
    (receipt,) = desk.put_drafts(queue, [draft(b"body", priority=3, ordering_key="k")])
    assert waiting.result() == [receipt.seq]


@pytest.mark.parametrize("kind", ["plain", "with a priority"])
def test_what_is_put_in_the_commit_of_a_claim_that_waits_is_found_at_once(
    desk: Desk, queue: QueueState, group: GroupState, kind: str
) -> None:
    assert desk.claim(group) == []  # now memory knows that there is nothing
    put: Task
    if kind == "plain":
        put = PlainPut(desk, queue, PutPlain(queue.id, 0, 0, [crc32(b"body"), b"body"], 1), 4)
    else:
        row = row_of(draft(b"body", priority=3), desk.now_ms())
        put = PutMessages(desk, queue, [row], desk.now_ms())
    claim = Claim(desk, group, 1, 30.0, None, waiter=Waiter())
    desk.writer.run(Together([put, claim]))
    assert claim.found
    assert not claim.waits
    assert not group.waiters


def test_a_release_wakes(desk: Desk, queue: QueueState, group: GroupState) -> None:
    desk.put(queue, b"body")
    (lease,) = desk.claim(group)
    waiting = Waiting(desk, group)
    desk.release([lease])
    assert waiting.result() == [lease.seq]


def test_the_next_message_of_a_key_wakes_when_the_first_is_settled(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    first, second = desk.put_drafts(queue, [draft(b"body", ordering_key="k")] * 2)
    (lease,) = desk.claim(group)
    waiting = Waiting(desk, group)
    assert waiting.is_waiting
    desk.ack(lease)
    assert waiting.result() == [second.seq]
    assert lease.seq == first.seq


def test_a_failure_without_delay_wakes_and_one_with_delay_does_so_in_time(
    desk: Desk, queue: QueueState, group: GroupState, clock: VirtualClock
) -> None:
    desk.put(queue, b"body")
    (lease,) = desk.claim(group)
    waiting = Waiting(desk, group)
    desk.fail(lease)
    assert waiting.result() == [lease.seq]
    waiting_again = Waiting(desk, group)
    desk.fail(waiting.leases[0], delay_s=5)
    desk.upkeep.round()
    assert waiting_again.is_waiting
    clock.advance(5)
    desk.upkeep.round()
    assert waiting_again.result() == [lease.seq]
    assert waiting_again.leases[0].attempt == 3


def test_a_lease_that_ends_wakes(
    desk: Desk, queue: QueueState, group: GroupState, clock: VirtualClock
) -> None:
    desk.put(queue, b"body")
    desk.claim(group, 1, lease_s=1)
    waiting = Waiting(desk, group)
    clock.advance(1)
    desk.upkeep.round()
    assert waiting.result() == [1]


def test_the_end_of_a_pause_wakes(desk: Desk, queue: QueueState, group: GroupState) -> None:
    desk.pause(queue)
    waiting = Waiting(desk, group)
    seq = desk.put(queue, b"body")
    poll(lambda: len(group.waiters) == 1)
    assert waiting.is_waiting
    desk.pause(queue, paused=False)
    assert waiting.result() == [seq]


def test_a_cancelled_waiter_returns_with_nothing_and_never_waits_again(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    waiting = Waiting(desk, group)
    desk.cancel_wait(waiting.waiter)
    assert waiting.result() == []
    assert not group.waiters
    desk.put(queue, b"body")
    assert desk.wait_claim(group, waiter=waiting.waiter) == []
    assert group.waiting == 1


def test_a_cancelled_waiter_still_settles(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    desk.put_many(queue, [b"one", b"two"])
    (lease,) = desk.claim(group)
    waiter = Waiter()
    desk.cancel_wait(waiter)
    assert desk.exchange(group, [(lease, DONE)], waiter=waiter, timeout=None) == ([], [])
    assert (group.waiting, len(group.leases)) == (1, 0)


def test_the_time_is_over(desk: Desk, group: GroupState) -> None:
    assert desk.wait_claim(group, timeout=0) == []
    assert desk.wait_claim(group, timeout=0.01) == []
    assert not group.waiters


def test_a_waiter_can_be_used_again(desk: Desk, queue: QueueState, group: GroupState) -> None:
    waiter = Waiter()
    for _ in range(3):
        assert desk.wait_claim(group, timeout=0.01, waiter=waiter) == []
        desk.put(queue, b"body")
        assert len(desk.wait_claim(group, timeout=SOON, waiter=waiter)) == 1


def test_what_an_interrupted_waiter_was_woken_for_goes_to_the_next(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    class Interrupted(Waiter):
        def wait(self, timeout: float | None = None) -> bool:
            super().wait(timeout)
            raise KeyboardInterrupt

    caught: list[BaseException] = []

    def run() -> None:
        try:
            desk.wait_claim(group, waiter=Interrupted())
        except KeyboardInterrupt as error:
            caught.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    poll(lambda: len(group.waiters) == 1)
    waiting = Waiting(desk, group)
    seq = desk.put(queue, b"body")
    thread.join(SOON)
    assert waiting.result() == [seq]
    assert len(caught) == 1


def test_closing_tells_those_who_wait(group: GroupState, desk: Desk) -> None:
    waiting = Waiting(desk, group)
    desk.close()
    assert waiting.result() == []
    assert isinstance(waiting.error, StoreClosed)


def test_threads_that_wait_and_threads_that_put_lose_no_message() -> None:
    with open_engine(":memory:") as desk:
        queue = desk.queue("orders")
        group = desk.group(queue)
        seen: list[int] = []
        waiters = [Waiter() for _ in range(4)]

        def consume(waiter: Waiter) -> None:
            leases: Sequence[Lease] = ()
            while True:
                pairs = [(lease, DONE) for lease in leases]
                leases = desk.exchange(group, pairs, 2, timeout=None, waiter=waiter).leases
                if not leases:
                    return
                seen.extend(lease.seq for lease in leases)

        threads = [threading.Thread(target=consume, args=(waiter,)) for waiter in waiters]
        puts = [
            threading.Thread(target=lambda: [desk.put(queue, b"x") for _ in range(250)])
            for _ in range(4)
        ]
        for thread in threads + puts:
            thread.start()
        for thread in puts:
            thread.join(SOON)
        poll(lambda: len(seen) >= 1000)
        desk.cancel_wait(*waiters)
        for thread in threads:
            thread.join(SOON)
            assert not thread.is_alive()
        assert sorted(seen) == list(range(1, 1001))


class Lossy(Waiters):
    """Loses every third wake."""

    __slots__ = ("_count",)

    def wake(self, count: int = 1) -> None:
        self._count = getattr(self, "_count", 0) + 1
        if self._count % 3:
            super().wake(count)

    def first(self) -> Waiter | None:
        return None  # nothing is handed over: every message comes with a wake


def served(desk: Desk, count: int, patience: float) -> int:
    """Put messages one by one to one waiting thread; return how many came in time."""
    queue = desk.queue("orders")
    group = desk.group(queue)
    group.waiters = Lossy()
    waiter = Waiter()
    came = threading.Semaphore(0)

    def consume() -> None:
        leases: Sequence[Lease] = ()
        while not waiter.cancelled:
            pairs = [(lease, DONE) for lease in leases]
            leases = desk.exchange(group, pairs, timeout=None, waiter=waiter).leases
            for _ in leases:
                came.release()

    thread = threading.Thread(target=consume)
    thread.start()
    found = 0
    for _ in range(count):
        poll(lambda: group.waiters)
        desk.put(queue, b"x")
        if not came.acquire(timeout=patience):
            break
        found += 1
    desk.cancel_wait(waiter)
    thread.join(SOON)
    return found


def test_a_wake_that_is_lost_is_latency_and_not_a_loss() -> None:
    with open_engine(":memory:") as desk:
        assert served(desk, 6, patience=SOON) == 6


def test_without_the_host_s_rounds_a_lost_wake_would_be_noticed() -> None:
    with open_engine(":memory:", upkeep=False) as desk:
        assert served(desk, 6, patience=0.3) < 6


def test_a_due_time_wakes_the_host_before_its_next_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("embedq.broker.upkeep.ROUND_S", 3_600.0)
    with open_engine(":memory:") as desk:
        queue = desk.queue("orders")
        group = desk.group(queue)
        waiting = Waiting(desk, group)
        start = desk.monotonic()
        desk.put_drafts(queue, [draft(b"body", available_at_ms=desk.now_ms() + 150)])
        assert waiting.result() == [1]
        assert desk.monotonic() - start > 0.1
        again = Waiting(desk, group)
        desk.settle([(waiting.leases[0], Failed(delay_s=0.15))])
        assert again.result() == [1]


# ----------------------------------------------------------------------------- coroutines


async def enlisted(group: GroupState, count: int) -> None:
    for _ in range(10_000):
        if len(group.waiters) >= count:
            return
        await asyncio.sleep(0.001)
    raise AssertionError("nobody waits")


def test_a_coroutine_waits_without_blocking_its_loop(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    async def main() -> list[int]:
        waiting = [asyncio.create_task(desk.await_claim(group)) for _ in range(3)]
        await enlisted(group, 3)
        desk.put_many(queue, [b"body"] * 3)
        got = [await asyncio.wait_for(each, SOON) for each in waiting]
        return sorted(lease.seq for leases in got for lease in leases)

    assert asyncio.run(main()) == [1, 2, 3]


def test_a_cancelled_coroutine_leaves_nothing_behind(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    async def main() -> None:
        for _ in range(20):
            first = asyncio.create_task(desk.await_claim(group))
            second = asyncio.create_task(desk.await_claim(group))
            await enlisted(group, 2)
            desk.put(queue, b"body")  # wakes the first
            first.cancel()
            await asyncio.wait([first])
            (lease,) = await asyncio.wait_for(second, SOON)
            assert await desk.asettle([(lease, DONE)]) == []

    asyncio.run(main())
    assert not group.waiters
    assert group.waiting == 0


def test_a_coroutine_that_is_cancelled_in_its_commit_does_not_wait(tmp_path: Path) -> None:
    with open_engine(tmp_path / "q.db") as desk:  # whose commits take a while
        queue = desk.queue("q")
        group = desk.group(queue)

        async def main() -> None:
            for n in range(400):
                claiming = asyncio.create_task(desk.await_claim(group))
                await asyncio.sleep(0.0002 * (n % 7))
                claiming.cancel()
                await asyncio.wait([claiming])
            desk.put(queue, b"body")  # is for somebody who asks later, not for those who left
            (lease,) = await asyncio.wait_for(desk.await_claim(group), SOON)
            assert lease.message.body == b"body"
            desk.ack(lease)

        asyncio.run(main())
        assert not group.waiters


def test_a_coroutine_s_time_is_over(desk: Desk, group: GroupState) -> None:
    assert asyncio.run(desk.await_claim(group, timeout=0)) == []
    assert asyncio.run(desk.await_claim(group, timeout=0.01)) == []
    assert not group.waiters


def test_coroutines_exchange(desk: Desk, queue: QueueState, group: GroupState) -> None:
    desk.put_many(queue, [b"one", b"two"])

    async def main() -> int:
        done = await desk.aexchange(group)
        count = 0
        while done.leases:
            count += len(done.leases)
            done = await desk.aexchange(group, [(lease, DONE) for lease in done.leases])
        return count

    assert asyncio.run(main()) == 2
    assert queue.stored == 0


def test_a_message_that_expired_is_turned_away_from_a_coroutine(
    desk: Desk, queue: QueueState, group: GroupState, clock: VirtualClock
) -> None:
    desk.put_drafts(queue, [draft(b"late", expires_at_ms=desk.now_ms() + 10)])
    clock.advance(1)
    seq = desk.put(queue, b"good")
    (lease,) = asyncio.run(desk.await_claim(group))
    assert lease.seq == seq
    assert queue.dead == 1


def test_large_bodies_are_read_beside_the_loop(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    desk.put_many(queue, [b"x" * 200_000] * 2)
    assert len(desk.claim(group)) == 1  # now it is known that they are large
    (lease,) = asyncio.run(desk.await_claim(group))
    assert len(lease.message.body) == 200_000


@pytest.mark.parametrize("kind", ["thread", "coroutine"])
def test_a_claim_does_not_wait_in_a_group_that_is_removed_under_its_hands(
    desk: Desk, group: GroupState, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    check = Round.check

    def then_removed(step: Round) -> None:
        check(step)
        remove_group(desk, group)  # right after the look, right before the claim

    def wait(kind: str) -> None:
        if kind == "thread":
            desk.wait_claim(group, 1, SOON)
        else:
            asyncio.run(asyncio.wait_for(desk.await_claim(group, 1, None), SOON))

    enlisted: list[Waiter] = []

    def enlist(_: Waiters, waiter: Waiter) -> bool:
        enlisted.append(waiter)
        return True

    monkeypatch.setattr(Round, "check", then_removed)
    monkeypatch.setattr(Waiters, "enlist", enlist)
    with pytest.raises(GroupNotFound):
        wait(kind)
    assert not enlisted
