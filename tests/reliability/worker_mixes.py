"""What a test program does all day: puts, claims and settlements, in seeded disorder.

Knows: which calls make a good mix, how many messages may pile up.
Does not know: when the program dies, what must be true of it.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

from embedq.broker.leases import Lease
from embedq.broker.state import GroupState, QueueState
from embedq.policy import QueuePolicy
from tests.reliability.invariants_events import Put
from tests.reliability.worker_calls import Calls

#: Above this many waiting messages a thread rather claims than puts.
_MANY = 300
_HELD = 30

Going = Callable[[], bool]

#: What a checker of these mixes must know.
MAX_ATTEMPTS = {"pair": 3}


def queues_of(calls: Calls) -> list[tuple[QueueState, list[GroupState]]]:
    """Return the queues of the mixes: one group, two groups, two groups with history."""
    found = []
    for name, groups, policy in (
        ("sole", ("default",), QueuePolicy()),
        ("pair", ("left", "right"), QueuePolicy(max_attempts=MAX_ATTEMPTS["pair"])),
        ("kept", ("left", "right"), QueuePolicy(retain_ms=3_600_000)),
    ):
        queue = calls.engine.queue(name, policy)
        found.append((queue, [calls.engine.group(queue, group) for group in groups]))
    return found


class Mix:
    """One thread's share of the disorder."""

    def __init__(self, calls: Calls, seed: str) -> None:
        self._calls = calls
        self._random = random.Random(seed)
        self._queues = queues_of(calls)
        self._held: list[Lease] = []

    def step(self) -> None:
        """Make the next call."""
        rng = self._random
        queue, groups = rng.choices(self._queues, (6, 3, 1))[0]
        group = rng.choice(groups)
        full = queue.stored > _MANY or len(self._held) > _HELD
        put, claim, settle, cancel = (0 if full else 5), 3, 4 if self._held else 0, 0.2
        kind = rng.choices(("put", "claim", "settle", "cancel"), (put, claim, settle, cancel))[0]
        if kind == "put":
            self._put(queue)
        elif kind == "claim":
            self._held += self._calls.claim(group, rng.choice((1, 1, 5, 20)))
        elif kind == "settle":
            self._settle()
        else:
            waiting = self._calls.engine.peek(queue, 3, after=rng.randrange(1000))
            if waiting:
                self._calls.cancel(queue, [message.seq for message in waiting])

    def _put(self, queue: QueueState) -> None:
        rng = self._random
        size = rng.choice((0, 40, 200, 200, 5000))
        kind = rng.randrange(10)
        if kind < 5:
            self._calls.put(queue, size)
        elif kind < 8:
            self._calls.put_many(queue, rng.choice((2, 7, 40)), size % 1000)
        else:
            self._calls.put_drafts(queue, [self._draft() for _ in range(rng.choice((1, 3)))])

    def _draft(self) -> tuple[Put, int, int]:
        rng = self._random
        pattern = Put(
            0,
            rng.choice((20, 300)),
            rng.choice((None, None, f"d{rng.randrange(10_000)}", f"d{rng.randrange(10)}")),
            rng.choice((None, None, f"k{rng.randrange(5)}")),
            rng.choice((None, None, 0, 2)),
        )
        return pattern, rng.choice((0, 0, 5)), rng.choice((0, 0, 20))

    def _settle(self) -> None:
        rng = self._random
        rng.shuffle(self._held)
        lease = self._held.pop()
        match rng.randrange(8):
            case 0:
                self._calls.fail(lease, rng.choice((0.0, 0.01)))
            case 1:
                self._calls.reject(lease)
            case 2 | 3:
                self._calls.release(self._same_group(lease))
            case _:
                self._calls.ack(self._same_group(lease))

    def _same_group(self, lease: Lease) -> list[Lease]:
        """Take out, with a lease, others of its group that are held."""
        same = [held for held in self._held if held.group is lease.group]
        taken = same[: self._random.choice((0, 1, 9))]
        self._held = [held for held in self._held if held not in taken]
        return [lease, *taken]


def mix(calls: Calls, seed: str, threads: int, going: Going) -> None:
    """Let threads make calls until `going` says no, or for ever. Raises what a thread raised."""
    failures: list[BaseException] = []

    def run(number: int) -> None:
        try:
            mine = Mix(calls, f"{seed}/{number}")
            while going() and not failures:
                mine.step()
        except BaseException as error:  # noqa: BLE001 - raised again below
            failures.append(error)

    workers = [threading.Thread(target=run, args=(n,)) for n in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if failures:
        raise failures[0]


def script(calls: Calls) -> None:
    """Make one call of every kind, always the same ones: for faults at a counted place."""
    (sole, (default,)), (pair, (left, right)), _ = queues_of(calls)
    for size in (10, 3000, 10):
        calls.put(sole, size)
    calls.put_many(sole, 12, 60)
    calls.put_drafts(sole, [(Put(0, 30, "once", "key"), 5, 0), (Put(0, 30, None, "key"), 0, 0)])
    first, second, third, *rest = calls.claim(default, 8)
    calls.ack([first])
    calls.fail(second, 0.0)
    calls.reject(third)
    calls.release(rest[:2])
    calls.ack(rest[2:])
    calls.put_many(pair, 4, 100)
    for group in (left, right):
        one, two, three, four = calls.claim(group, 4)
        calls.ack([one, two])
        calls.fail(three)
        calls.reject(four)
    with calls.engine.writer.lock:
        calls.engine.store.rest(100)  # a checkpoint
    waiting = calls.engine.peek(sole, 2, after=12)
    calls.cancel(sole, [message.seq for message in waiting])
    calls.put(sole, 500)
    calls.ack(calls.claim(default, 2))
    idle = calls.engine.group(calls.engine.queue("idle"))
    calls.claim(idle, 1)  # finds nothing, and then it is known that there is nothing
    for number in (1, 5):
        handed = calls.put_to_waiting(idle, number, 100)
        calls.ack(handed[:1])
        if handed[1:]:  # what is held when the host closes is given back, unseen by the judge
            calls.ack(handed[1:])
    calls.engine.upkeep.round()
