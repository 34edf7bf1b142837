"""Theme: a commit happens wholly or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

import pytest

from embedq.errors import EmbedqError, StorageError
from embedq.lifecycle import Outcome, Reason
from embedq.policy import QueuePolicy
from embedq.storage.ops import (
    Ack,
    Again,
    Bury,
    Cancel,
    Collect,
    DeclareGroup,
    DeclareQueue,
    Fail,
    Forget,
    Op,
    OpenSession,
    Pause,
    PurgeDead,
    PutRows,
    Redrive,
    Release,
    RemoveGroup,
    Retire,
    Save,
    Start,
)
from embedq.storage.port import Store
from embedq.storage.rows import Row
from tests.conformance.scenario import (
    ENDED,
    EVERYTHING,
    PUT_AT,
    RETRY_AT,
    STARTED,
    Scenario,
    Theme,
    plain,
    row,
)


class Planted(Exception):
    """Raised from within an operation."""


class Interrupt(BaseException):
    """Raised from within an operation by somebody else, like KeyboardInterrupt."""


class Explosive(Sequence[Row]):
    """Rows of which the second cannot be read: the put fails when it has begun."""

    def __init__(self, error: type[BaseException] = Planted) -> None:
        self._error = error

    def __len__(self) -> int:
        return 3

    @overload
    def __getitem__(self, index: int) -> Row: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Row]: ...

    def __getitem__(self, index: int | slice) -> Row | Sequence[Row]:
        if index == 0:
            return row(b"first", dedup_key="explosive", dedup_until=9_999)
        raise self._error

    def __iter__(self) -> Iterator[Row]:
        yield self[0]
        raise self._error


def commit_and_fail(store: Store, ops: Sequence[Op], error: type[BaseException]) -> None:
    """Commit operations together with one that fails at the end."""
    batch = [*ops, PutRows(1, PUT_AT, Explosive(error))]
    # A store may say in its own words that an operation cannot be done; an interrupt passes.
    with pytest.raises((error, StorageError) if issubclass(error, Exception) else error):
        store.commit(batch)
    if not issubclass(error, Exception):
        store.settle_interrupted()


class Atomicity(Theme):
    def snapshot(self, scene: Scenario, queue: int) -> list[object]:
        """Return all there is to see."""
        store = scene.store
        queues, groups = store.catalogue()
        seqs = [message.seq for message in store.range(queue, 0, EVERYTHING)]
        return [
            queues,
            groups,
            store.range(queue, 0, EVERYTHING),
            [store.deliveries(seq) for seq in seqs],
            [store.unsettled(seq) for seq in seqs],
            [scene.waiting(group.id) for group in groups],
            [scene.timed(group.id, retries=r) for group in groups for r in (False, True)],
            [scene.at_tail(group.id) for group in groups],
            [scene.open_deliveries(group.id) for group in groups],
            scene.letters(queue),
            scene.tally(),
            store.session_names(range(1, 20)),
        ]

    def fail_after(self, scene: Scenario, *ops: Op) -> None:
        commit_and_fail(scene.store, ops, Planted)

    @pytest.mark.parametrize("error", [Planted, Interrupt])
    def test_a_failed_commit_leaves_nothing_whatever_was_in_it(
        self, scene: Scenario, error: type[BaseException]
    ) -> None:
        queue, group, audit = scene.queue_and_groups(retain_ms=1_000)
        seqs = scene.put(queue, 8)
        scene.put_row(queue, dedup_key="ended", dedup_until=PUT_AT + 1)
        scene.start(group, *seqs[:5])
        scene.fail(group, seqs[3])
        scene.start_and_ack(audit, *seqs[:2])
        scene.bury(group, seqs[4])
        (letter,) = scene.letters(queue)
        scene.ack(group, seqs[1])
        operations: list[Op] = [
            plain(queue, b"alone"),
            plain(queue, *[b"many"] * 5),
            PutRows(queue, PUT_AT, [row(priority=2), row(dedup_key="d", dedup_until=9_999)]),
            Start(group, STARTED, None, 90, [seqs[5]], [Again(seqs[0], 2, 1)]),
            Start(group, STARTED, None, 90, [], [Again(seqs[3], 2, 0)]),
            Ack(group, ENDED, [seqs[0], seqs[2]]),
            Fail(group, seqs[0], 1, ENDED, Outcome.FAILED, RETRY_AT),
            Release(group, [(seqs[0], 1)]),
            Bury(group, seqs[0], ENDED, Reason.REJECTED),
            Bury(group, seqs[6], ENDED, Reason.EXPIRED),
            Cancel(queue, seqs[:4]),
            Redrive(queue, [letter.id], ["origin"], PUT_AT),
            PurgeDead(queue, [letter.id]),
            DeclareQueue("mail", QueuePolicy()),
            DeclareQueue("orders", QueuePolicy(max_attempts=99)),
            DeclareGroup(queue, "late", 3),
            RemoveGroup(audit),
            Pause(queue, paused=True),
            OpenSession("worker-1", STARTED),
            Collect(queue, 0, EVERYTHING),
            Retire(group, EVERYTHING, 0, 100),
            Forget(EVERYTHING, 100),
            Save([(queue, 77, 7, 777)], [(group, seqs[1], 5)], exact=True),
        ]
        before = self.snapshot(scene, queue)
        for op in operations:
            commit_and_fail(scene.store, [op], error)
            assert self.snapshot(scene, queue) == before, op
        commit_and_fail(scene.store, operations, error)
        assert self.snapshot(scene, queue) == before

    def test_a_failed_commit_leaves_nothing_for_the_next_epoch(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        seqs = scene.put(queue, 2)
        scene.start(group, *seqs)
        before = [scene.store.range(queue, 0, 100), scene.store.deliveries(seqs[1])]
        self.fail_after(scene, plain(queue, b"x"), Ack(group, ENDED, seqs))
        scene.reopen()
        assert [scene.store.range(queue, 0, 100), scene.store.deliveries(seqs[1])] == before

    def test_the_store_goes_on_after_a_failed_commit(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        (first,) = scene.put(queue)
        self.fail_after(scene, DeclareQueue("mail", QueuePolicy()))
        (second,) = scene.put(queue)
        assert second > first
        assert scene.queue("mail") != queue
        scene.start(group, first, second)
        assert scene.ack(group, first, second) == 2

    def test_the_same_batch_may_be_committed_again(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        seqs = scene.put(queue, 3)
        scene.start(group, *seqs)
        scene.bury(group, seqs[2])
        (letter,) = scene.letters(queue)
        rows = PutRows(queue, PUT_AT, [row(dedup_key="a", dedup_until=9_999)])
        cancel, redrive = Cancel(queue, seqs[1:2]), Redrive(queue, [letter.id], ["o"], PUT_AT)
        ack, put = Ack(group, ENDED, seqs[:1]), plain(queue, b"again")
        batch = (rows, cancel, redrive, ack, put)
        self.fail_after(scene, *batch)
        scene.commit(*batch)
        assert (rows.stored, cancel.removed, ack.removed) == ([0], seqs[1:2], 1)
        assert scene.seqs(queue) == [rows.seqs[0], redrive.seqs[0], put.first]

    def test_a_dedup_key_of_a_failed_put_is_free(self, scene: Scenario) -> None:
        queue = scene.queue()
        self.fail_after(scene)
        put = scene.do(PutRows(queue, PUT_AT, [row(dedup_key="explosive", dedup_until=9_999)]))
        assert put.stored == [0]

    def test_an_operation_that_no_store_knows_fails_the_whole_commit(
        self, scene: Scenario
    ) -> None:
        class Unheard(Op):
            """Not part of the port."""

        queue = scene.queue()
        with pytest.raises((LookupError, TypeError, ValueError, EmbedqError), match="Unheard"):
            scene.store.commit([plain(queue, b"x"), Unheard()])
        assert scene.seqs(queue) == []

    def test_an_empty_commit_is_allowed(self, scene: Scenario) -> None:
        scene.commit()
        assert scene.put(scene.queue()) == [1]
