"""The wall clock jumps by a day, and back: leases do not notice, times of messages move with it.

Knows: what is measured with which clock, and that nothing is lost either way.
Does not know: how an engine waits.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from embedq.broker.engine import Engine
from embedq.broker.host import open_engine
from embedq.clock import VirtualClock
from embedq.errors import StaleLease
from embedq.message import draft
from embedq.policy import QueuePolicy

pytestmark = pytest.mark.reliability

DAY = 86_400.0
HOUR_MS = 3_600_000

jumps = pytest.mark.parametrize("jump", [DAY, -DAY], ids=["a day on", "a day back"])


class Host:
    """One engine with a clock that can be set."""

    engine: Engine

    def __init__(self, path: Any) -> None:
        self.path = path
        self.clock = VirtualClock()
        self.open()

    def open(self) -> None:
        self.engine = open_engine(self.path, clock=self.clock, upkeep=False)
        self.queue = self.engine.queue("orders")
        self.group = self.engine.group(self.queue)

    def put(self, body: bytes = b"x", **options: Any) -> int:
        (receipt,) = self.engine.put_drafts(self.queue, [draft(body, **options)])
        return receipt.seq

    def claim(self, lease_s: float = 30.0) -> list[Any]:
        return self.engine.claim(self.group, 1000, lease_s)

    def seqs(self) -> list[int]:
        return [lease.seq for lease in self.claim()]

    @property
    def hour(self) -> int:
        """In an hour, in milliseconds."""
        return self.engine.now_ms() + HOUR_MS


@pytest.fixture
def host(tmp_path):
    one = Host(tmp_path / "q.db")
    yield one
    one.engine.close()


def check_a_lease(host: Host, jump: float) -> None:
    host.put()
    (lease,) = host.claim(lease_s=30)
    host.clock.advance(10)
    host.clock.jump(jump)
    host.engine.upkeep.round()
    assert lease.is_held
    host.clock.advance(19)
    host.engine.upkeep.round()
    assert lease.is_held
    host.clock.advance(1)
    host.engine.upkeep.round()
    assert not lease.is_held
    with pytest.raises(StaleLease):
        host.engine.ack(lease)
    (again,) = host.claim()
    assert again.attempt == 2


@jumps
def test_a_lease_lasts_as_long_as_it_should(host, jump):
    check_a_lease(host, jump)


@jumps
def test_the_harness_notices_leases_on_the_wall_clock(host, jump):
    host.engine.monotonic = host.clock.time
    with pytest.raises(AssertionError):
        check_a_lease(host, jump)


@jumps
def test_a_lease_is_extended_by_the_time_that_really_passes(host, jump):
    host.put()
    (lease,) = host.claim(lease_s=5)
    host.clock.jump(jump)
    host.engine.extend(lease, 30)
    host.clock.advance(29)
    assert host.engine.end_leases() == 0
    host.engine.ack(lease)
    assert host.queue.stored == 0


def test_a_delayed_message_comes_earlier_when_the_clock_is_put_on(host):
    host.put(available_at_ms=host.hour)
    host.clock.jump(DAY)
    assert host.seqs() == [1]


def test_a_delayed_message_comes_later_when_the_clock_is_put_back(host):
    host.put(available_at_ms=host.hour)
    host.clock.jump(-DAY)
    host.clock.advance(DAY)
    assert host.seqs() == []
    host.clock.advance(3600)
    assert host.seqs() == [1]


def test_a_retry_moves_with_the_clock_like_any_delayed_message(host):
    host.put()
    host.engine.fail(host.claim()[0], None, delay_s=60)
    host.clock.jump(-DAY)
    host.clock.advance(120)
    assert host.seqs() == []
    host.clock.jump(DAY)
    assert host.seqs() == [1]


def test_a_time_to_live_moves_with_the_clock(host):
    host.put(expires_at_ms=host.hour)
    host.put(expires_at_ms=host.hour + 2 * 24 * HOUR_MS)
    host.clock.jump(DAY)
    host.engine.upkeep.round()
    assert host.seqs() == [2]
    assert host.engine.store.dead_letter(1, host.group.id).reason == "expired"


@jumps
def test_order_is_that_of_the_puts_whatever_the_clock_says(host, jump):
    for number in range(5):
        host.put(b"%d" % number)
        host.clock.jump(jump)
    leases = host.claim()
    assert [lease.message.body for lease in leases] == [b"0", b"1", b"2", b"3", b"4"]
    assert len({host.engine.ids.encode(lease.seq) for lease in leases}) == 5


@jumps
def test_history_and_dedup_keys_move_with_the_clock_and_lose_nothing(host, jump):
    kept = host.engine.queue("kept", QueuePolicy(retain_ms=HOUR_MS))
    group = host.engine.group(kept)
    host.engine.put(kept, b"x")
    host.engine.ack(*host.engine.claim(group))
    first = host.put(dedup_key="d")
    host.clock.jump(jump)
    host.engine.upkeep.round()
    assert kept.stored == (1 if jump < 0 else 0)
    assert (host.put(dedup_key="d") == first) == (jump < 0)


@jumps
def test_upkeep_does_not_run_in_circles(host, jump):
    """With what is due a day ago, or in a day, it still rests between two looks."""
    upkeep = host.engine.upkeep
    host.put(available_at_ms=host.hour)
    host.put()
    host.claim(lease_s=600)
    host.clock.jump(jump)
    for _ in range(3):
        upkeep.round()
        assert upkeep.trouble is None
        assert upkeep._pause() >= 0.9


@pytest.mark.parametrize("seed", range(8))
def test_a_clock_that_is_never_right_loses_nothing(host, seed):
    """A random walk, over openings and crashes: in the end everything has come exactly once."""
    rng = random.Random(seed)
    acked: set[int] = set()
    put: set[int] = set()
    for _ in range(120):
        host.clock.jump(rng.choice((-DAY, DAY, -3600, 3600, -1, 1)))
        host.clock.advance(rng.choice((0, 1, 40)))
        wish = rng.random()
        if wish < 0.4:
            now = host.engine.now_ms()
            options = {"available_at_ms": now + 5000, "ordering_key": "k", "priority": 3}
            chosen = rng.sample(sorted(options), rng.randrange(4))
            put.add(host.put(max_attempts=0, **{name: options[name] for name in chosen}))
        elif wish < 0.7:
            for lease in host.engine.claim(host.group, 2):
                if rng.random() < 0.7:
                    host.engine.ack(lease)
                    assert lease.seq not in acked
                    acked.add(lease.seq)
                elif rng.random() < 0.5:
                    host.engine.fail(lease, None, rng.choice((0, 1, 60)))
        elif wish < 0.95:
            host.engine.upkeep.round()
        else:
            host.engine.close()
            host.open()
    host.clock.jump(30 * DAY)
    host.clock.advance(DAY)
    for _ in range(len(put)):
        host.engine.upkeep.round()
        for lease in host.claim():
            assert lease.seq not in acked
            acked.add(lease.seq)
            host.engine.ack(lease)
    assert acked == put
    assert (host.queue.stored, host.group.waiting) == (0, 0)
