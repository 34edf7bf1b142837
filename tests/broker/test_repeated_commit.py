"""A commit that is refused because of one task is repeated for the others, as if it were new."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from embedq.broker.crashing import Crashes
from embedq.broker.desk import Desk
from embedq.broker.handover import with_messages
from embedq.broker.host import open_engine
from embedq.broker.moves import Claim
from embedq.broker.settling import Acks, Settle
from embedq.broker.state import GroupState, QueueState
from embedq.errors import StoreFull
from embedq.message import ErrorInfo
from embedq.storage.ops import Op, PutPlain
from tests.broker.handing import LEASE_S, plain, seqs, together


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with open_engine(tmp_path / "q.db", upkeep=False) as opened:
        yield opened


@pytest.fixture
def queue(desk: Desk) -> QueueState:
    return desk.queue("orders")


@pytest.fixture
def group(desk: Desk, queue: QueueState) -> GroupState:
    return desk.group(queue)


def refuse_puts(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the store refuse every commit with a put, as it does where the disk is nearly full."""
    commit = desk.store.commit

    def refusing(batch: Sequence[Op]) -> None:
        if any(isinstance(op, PutPlain) for op in batch):
            desk.store.refused += 1
            raise StoreFull("no room")
        commit(batch)

    monkeypatch.setattr(desk.store, "commit", refusing)


class Refused(Acks):
    """A settlement that the store refuses."""

    def ops(self) -> Sequence[Op]:
        return (PutPlain(self._group.queue.id, 0, 0, [0, b""], 1),)


def test_what_was_claimed_beside_a_refused_put_comes_once(
    desk: Desk, queue: QueueState, group: GroupState, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.put_many(queue, [b"body"] * 3)
    refuse_puts(desk, monkeypatch)
    held = desk.claim(group, 1)
    claim = Claim(desk, group, 1, LEASE_S, desk.session)
    together(desk, Acks(desk, group, held), claim, plain(desk, queue, b"refused"))
    held += with_messages(desk, claim)
    desk.ack(*held[1:])
    while leases := desk.claim(group):
        held += leases
        desk.ack(*leases)
    assert seqs(held) == [1, 2, 3]
    assert (queue.stored, group.leases) == (0, {})


@pytest.mark.parametrize("kind", ["ack", "crash"])
def test_a_settlement_is_judged_by_what_its_repeated_commit_found(
    desk: Desk, queue: QueueState, group: GroupState, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    desk.put(queue, b"body")
    held = desk.claim(group)
    first = Refused(desk, group, held)
    second: Settle = Acks(desk, group, held)
    if kind == "crash":
        second = Crashes(desk, group, held, ErrorInfo("Killed", "", ""))
    refuse_puts(desk, monkeypatch)
    together(desk, first, second)
    assert isinstance(first.error, StoreFull)
    assert (second.error, second.stale) == (None, [])
