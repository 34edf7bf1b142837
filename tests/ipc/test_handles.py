"""What a client holds: leases with the tokens that count, however hosts follow each other."""

from __future__ import annotations

import pytest

from embedq.broker.office import GroupInfo
from embedq.ipc.handles import Holdings
from embedq.ipc.marks import Progress
from tests.ipc.told import info, queue, wire_lease


@pytest.fixture
def held() -> Holdings:
    made = Holdings()
    made.add(queue().groups[0], [wire_lease(n, n) for n in (1, 2, 3)], now=100.0)
    return made


def test_groups_stay_the_same_objects_when_a_queue_is_looked_at_again() -> None:
    orders = queue("default", "audit")
    default, audit = orders.groups
    orders.update(info("default", "audit", "new", paused=True))
    assert orders.groups[:2] == [default, audit]
    assert (orders.paused, orders.groups[2].name) == (True, "new")
    assert orders.add_group(GroupInfo(1, "default")) is default


def test_the_bound_of_a_consumer_goes_before_that_of_the_queue() -> None:
    group = queue().groups[0]
    assert group.max_attempts == 4
    group.most = 2
    assert group.max_attempts == 2


def test_a_lease_counts_until_it_ends(held: Holdings) -> None:
    lease = held._by_counter[1]
    assert (lease.is_held, lease.deadline) == (True, 130.0)
    held.drop([lease])
    assert not lease.is_held
    held.drop([lease])  # twice is no harm
    held.lost([2, 99])
    assert [each.counter for each in held.held()] == [3]


def test_what_clients_of_listeners_have_is_shown_to_the_next_host_as_that(held: Holdings) -> None:
    held.add(queue().groups[0], [wire_lease(4, 4)], now=100.0, outside=True)
    assert [each.outside for each in held.held()] == [False, False, False, True]


def test_what_is_at_its_end_needs_no_look_at_whoever_has_it(held: Holdings) -> None:
    first, second, third = held._by_counter.values()
    found = [held.in_work]
    first.progress, second.progress = Progress.DONE, Progress.FAILED
    third.progress = Progress.STARTED
    found.append(held.in_work)
    held.drop([third])
    found.append(held.in_work)
    assert found == [True, True, False]
    assert len(held) == 2


def test_the_next_host_gives_new_tokens_and_what_it_does_not_name_has_ended(
    held: Holdings,
) -> None:
    first, second, third = (held._by_counter[n] for n in (1, 2, 3))
    assert [each.seq for each in held.held()] == [1, 2, 3]
    held.drop([second])  # meanwhile
    held.reissued([(0, 71), (1, 72)])
    assert (first.counter, first.is_held) == (71, True)
    assert (second.is_held, third.is_held) == (False, False)
    assert [each.counter for each in held.held()] == [71]


def test_a_lease_is_kept_once_and_let_go_once(held: Holdings) -> None:
    lease = held._by_counter[1]
    alive = [True]
    assert held.keep(lease, lambda: alive[0])
    assert not held.keep(lease, lambda: alive[0])
    assert held.abandoned() == []
    alive[0] = False
    assert held.abandoned() == [lease]
    assert held.abandoned() == []
    assert not held.unkeep(lease)
    held.drop([lease])
    assert not held.keep(lease, lambda: True)
