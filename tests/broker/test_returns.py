"""What is given back for somebody who has left gets into the file, sooner or later."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from embedq.broker.desk import Desk
from embedq.broker.direct import leave
from embedq.broker.host import open_engine
from embedq.broker.moves import Change, Claim
from embedq.broker.state import GroupState
from embedq.clock import VirtualClock
from embedq.errors import EmbedqError, StoreBusy, StoreCorrupt, StoreFull
from embedq.storage.ops import Op
from tests.broker.handing import LEASE_S, SOON, together, wait


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def desk(clock: VirtualClock, tmp_path: Path) -> Iterator[Desk]:
    with open_engine(tmp_path / "q.db", clock=clock, upkeep=False) as opened:
        yield opened


@pytest.fixture
def group(desk: Desk) -> GroupState:
    return desk.group(desk.queue("orders"))


@pytest.fixture
def refuse(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> list[EmbedqError]:
    """Errors with which the store refuses the next commits."""
    errors: list[EmbedqError] = []
    commit = desk.store.commit

    def refusing(batch: Sequence[Op]) -> None:
        if errors:
            desk.store.refused += 1
            raise errors.pop(0)
        commit(batch)

    monkeypatch.setattr(desk.store, "commit", refusing)
    return errors


def claimed(desk: Desk, group: GroupState) -> Callable[[], None]:
    """Claim for somebody; returns how he leaves."""
    assert desk.claim(group) == []
    desk.put(group.queue, b"body")
    claim = Claim(desk, group, 1, LEASE_S, desk.session)
    desk.writer.run(claim)
    return lambda: desk.abandon(group, claim)


def handed(desk: Desk, group: GroupState) -> Callable[[], None]:
    """Hand a message to somebody who waits; returns how he leaves."""
    waiter = wait(desk, group)
    desk.put(group.queue, b"body")
    return lambda: leave(desk, group.waiters, waiter)


@pytest.mark.parametrize("get", [claimed, handed])
@pytest.mark.parametrize("error", [StoreBusy, StoreFull])
def test_what_could_not_be_given_back_is_given_back_later(
    desk: Desk, group: GroupState, refuse, clock: VirtualClock, get, error
) -> None:
    leaves = get(desk, group)
    assert len(group.leases) == 1
    refuse[:] = [error("not now"), error("nor later")]
    leaves()
    together(desk, Change([]))  # behind the release
    desk.upkeep.round()
    assert isinstance(desk.upkeep.trouble, error)
    assert len(group.leases) == 1
    clock.advance(LEASE_S + 1)  # nobody has it: that is no attempt that ran out of time
    desk.upkeep.round()
    assert (desk.upkeep.trouble, group.leases) == (None, {})
    assert [lease.attempt for lease in desk.claim(group, 9)] == [1]


def test_where_nothing_is_stored_any_more_nothing_is_given_back(
    desk: Desk, group: GroupState, refuse
) -> None:
    leaves = claimed(desk, group)
    refuse[:] = [StoreCorrupt("the file is damaged")]
    leaves()
    together(desk, Change([]))
    desk.upkeep.round()
    assert (desk.upkeep.trouble, len(group.leases)) == (None, 1)


def test_what_still_waits_to_be_given_back_is_no_attempt_for_the_next_host(
    tmp_path: Path, desk: Desk, group: GroupState, refuse
) -> None:
    leaves = claimed(desk, group)
    refuse[:] = [StoreBusy("not now")]
    leaves()
    together(desk, Change([]))
    desk.close()
    with open_engine(tmp_path / "q.db", upkeep=False) as after:
        assert [each.attempt for each in after.claim(after.group(after.queue("orders")))] == [1]


def test_the_thread_gives_back_without_waiting_for_a_lease_to_end(
    desk: Desk, group: GroupState, refuse
) -> None:
    leaves = handed(desk, group)
    refuse[:] = [StoreBusy("not now")]
    leaves()
    together(desk, Change([]))
    desk.upkeep.start()
    assert [each.attempt for each in desk.wait_claim(group, 1, SOON)] == [1]
