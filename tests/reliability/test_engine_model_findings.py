"""What the model machine has found, as short tests of their own.

Knows: the few calls that showed each mistake.
Does not know: the machine.
"""

from __future__ import annotations

import dataclasses
from unittest.mock import Mock

import pytest

from embedq.broker.endings import RELEASED_TO_TAIL
from embedq.broker.engine import Engine
from embedq.broker.host import open_engine
from embedq.clock import VirtualClock
from embedq.errors import StaleLease, StoreBusy
from embedq.limits import LIMITS
from embedq.message import draft
from embedq.policy import QueuePolicy

pytestmark = pytest.mark.reliability

SMALL = dataclasses.replace(
    LIMITS, load_chunk=3, head_max=4, disk_watermark_bytes=0, ballast_bytes=0
)


class Host:
    """Opens one file again and again, as one host after another."""

    engine: Engine

    def __init__(self, path):
        self.path = path
        self.clock = VirtualClock()

    def open(self, limits=SMALL):
        self.engine = open_engine(self.path, clock=self.clock, limits=limits, upkeep=False)
        self.queue = self.engine.queue("orders")
        self.group = self.engine.group(self.queue)
        return self.engine

    def crash(self):
        self.engine.store.close(clean=False)

    def claim(self, most=1):
        return self.engine.claim(self.group, most)

    def seqs(self, most=1):
        return [lease.seq for lease in self.claim(most)]


@pytest.fixture
def host(tmp_path):
    one = Host(tmp_path / "q.db")
    one.open()
    yield one
    one.engine.close()


def test_a_claim_for_more_than_a_chunk_returns(host):
    host.engine.put_many(host.queue, [b"x"] * 10)
    assert host.seqs(2) == [1, 2]
    assert host.seqs(10) == [3, 4, 5, 6, 7, 8, 9, 10]


def test_what_was_put_before_a_crash_is_delivered_after_it(host):
    host.engine.put(host.queue, b"x")
    host.crash()
    host.open()
    assert host.seqs() == [1]


def test_a_claim_passes_over_cancelled_messages(host):
    first, second = host.engine.put_many(host.queue, [b"x", b"y"])
    host.engine.release(host.claim())
    assert host.engine.cancel(host.queue, first, first) == [first]
    assert host.seqs() == [second]
    assert host.seqs() == []


def test_a_message_whose_time_has_come_waits_behind_older_ones(host):
    now = host.engine.now_ms()
    late = draft(b"late", available_at_ms=now + 1000)
    host.engine.put_drafts(host.queue, [draft(b"now"), late])
    host.clock.advance(1)
    assert host.seqs() == [1]


def test_leases_of_several_groups_are_all_settled_though_some_are_stale(host):
    mail = host.engine.queue("mail")
    others = host.engine.group(mail)
    host.engine.put(host.queue, b"x")
    host.engine.put(mail, b"y")
    (stale,) = host.claim()
    host.engine.release([stale])
    (held,) = host.engine.claim(others)
    with pytest.raises(StaleLease):
        host.engine.ack(stale, held)
    assert (mail.stored, host.queue.stored) == (0, 1)


def test_a_lease_that_is_named_twice_counts_once(host):
    host.engine.group(host.queue, "audit")
    host.engine.put(host.queue, b"x")
    (lease,) = host.claim()
    host.engine.release([lease, lease])
    leases = host.claim(2)
    assert len(leases) == 1
    host.engine.ack(*leases, *leases)
    assert (host.group.settled, host.group.waiting) == (1, 0)


def test_an_urgent_message_waits_for_the_earlier_one_of_its_key(host):
    host.engine.put_many(host.queue, [b"x"] * 10)
    host.engine.put_drafts(host.queue, [draft(b"first", ordering_key="k")])
    assert host.seqs(2) == [1, 2]  # the message with the key is still in the file only
    host.engine.put_drafts(host.queue, [draft(b"second", ordering_key="k", priority=9)])
    assert host.seqs(10) == [3, 4, 5, 6, 7, 8, 9, 10, 11]


def test_what_is_given_back_after_a_failed_commit_comes_once(host, monkeypatch):
    host.engine.put_many(host.queue, [b"x"] * 4)
    held = host.claim(2)
    busy = StoreBusy("another program holds the write lock")
    with monkeypatch.context() as patch:
        patch.setattr(host.engine.store, "commit", Mock(side_effect=busy))
        with pytest.raises(StoreBusy):
            host.claim()  # memory forgets what it took, and looks again
    host.engine.release(held)
    assert host.seqs(10) == [1, 2, 3, 4]


def test_a_crash_stays_counted_though_the_next_delivery_is_given_back(host):
    host.engine.queue("orders", QueuePolicy(max_attempts=9, max_crashes=2))
    host.engine.put(host.queue, b"killer")
    for given_back in (True, False):
        host.claim()
        host.crash()
        host.open()
        if given_back:
            host.engine.release(host.claim())
            host.engine.close()
            host.open()
    assert host.seqs() == []
    assert host.engine.store.dead_letter(1, host.group.id).reason == "crashed"


def test_a_claim_is_filled_from_a_tail_of_which_only_the_beginning_is_in_memory(host):
    host.engine.put_many(host.queue, [b"x"] * 4)
    for lease in host.claim(3):
        assert host.engine.settle([(lease, RELEASED_TO_TAIL)]) == []
    host.engine.close()
    host.open()
    host.engine.put(host.queue, b"behind them")
    assert host.seqs(10) == [4, 1, 2, 3, 8]
