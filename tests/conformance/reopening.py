"""Theme: what the next epoch finds, after a clean end and after a crash."""

from __future__ import annotations

import pytest

from embedq.errors import StoreClosed
from embedq.storage.ops import Save
from embedq.storage.port import Load, LoadDue, Store
from tests.conformance.scenario import Scenario, Theme, plain, row


def without_counts(store: Store) -> list[object]:
    """Return the catalogue as far as every epoch must find it; saved counts may be renewed."""
    queues, groups = store.catalogue()
    return [
        [(found.id, found.name, found.policy, found.paused) for found in queues],
        [(found.id, found.queue, found.name, found.floor) for found in groups],
    ]


class Reopening(Theme):
    def test_it_is_a_store(self, scene: Scenario) -> None:
        assert isinstance(scene.store, Store)

    @pytest.mark.parametrize("clean", [True, False])
    def test_the_key_stays_and_the_epoch_rises(self, scene: Scenario, *, clean: bool) -> None:
        key, epoch = scene.store.key, scene.store.epoch
        assert len(key) == 16
        scene.reopen(clean=clean)
        assert (scene.store.key, scene.store.epoch) == (key, epoch + 1)
        scene.reopen(clean=clean)
        assert (scene.store.key, scene.store.epoch) == (key, epoch + 2)

    @pytest.mark.parametrize("clean", [True, False])
    def test_everything_that_was_committed_is_there(self, scene: Scenario, *, clean: bool) -> None:
        queue, group, audit = scene.queue_and_groups()
        session = scene.session("worker-1")
        seqs = scene.put_rows(queue, row(), row(key="k"), row(due=5_000), row(priority=1), row())
        scene.start(group, *seqs, session=session)
        scene.fail(group, seqs[0])
        scene.ack(group, seqs[1])
        scene.bury(group, seqs[4])

        def everything() -> list[object]:
            store = scene.store
            return [
                store.range(queue, 0, 100),
                [store.deliveries(seq) for seq in seqs],
                [scene.waiting(where, p) for where in (group, audit) for p in (0, 1)],
                [scene.timed(where, retries=r) for where in (group, audit) for r in (False, True)],
                scene.letters(queue),
                without_counts(store),
                scene.tally(),
                store.session_names([session]),
            ]

        before = everything()
        scene.reopen(clean=clean)
        assert everything() == before

    @pytest.mark.parametrize("clean", [True, False])
    def test_no_seq_is_used_twice(self, scene: Scenario, *, clean: bool) -> None:
        queue, group = scene.queue_and_group()
        seqs = scene.put(queue, 3)
        scene.start_and_ack(group, *seqs)
        scene.reopen(clean=clean)
        assert scene.store.last_seq >= seqs[-1]
        bound = scene.store.last_seq
        assert scene.put(queue) == [bound + 1]
        assert scene.store.last_seq == bound + 1

    def test_no_seq_is_used_twice_though_many_epochs_put_nothing(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        seen = scene.put(queue)
        for number in range(6):
            scene.reopen(clean=number % 2 == 0)
            if number % 3 == 2:
                seen += scene.put(queue)
                scene.start_and_ack(group, seen[-1])
        assert seen == sorted(set(seen))

    def test_counts_that_were_saved_last_are_trusted(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        seqs = scene.put(queue, 3)
        scene.commit(Save([(queue, 3, 0, seqs[-1])], [(group, seqs[0], 1)], exact=True))
        scene.reopen(clean=True)
        assert scene.store.clean
        ((found,), (member,)) = scene.store.catalogue()
        assert (found.stored, found.dead, found.last) == (3, 0, seqs[-1])
        assert (member.floor, member.settled) == (seqs[0], 1)

    @pytest.mark.parametrize("exact", [True, False])
    def test_counts_from_before_a_crash_are_not_trusted(
        self, scene: Scenario, *, exact: bool
    ) -> None:
        queue, group = scene.queue_and_group()
        (seq,) = scene.put(queue)
        scene.commit(Save([(queue, 1, 0, seq)], [(group, 0, 0)], exact=exact))
        scene.put(queue)
        scene.reopen(clean=False)
        assert not scene.store.clean
        scene.reopen(clean=False)
        assert not scene.store.clean

    def test_counts_are_not_trusted_after_a_put_alone(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        (seq,) = scene.put(queue)
        scene.commit(Save([(queue, 1, 0, seq)], [(group, 0, 0)], exact=True))
        late = scene.put_alone(plain(queue, b"late")).first
        scene.reopen(clean=False)
        assert not scene.store.clean
        assert scene.put_alone(plain(queue, b"later")).first > late
        assert len(scene.seqs(queue)) == 3

    def test_counts_that_were_not_exact_are_not_trusted(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        (seq,) = scene.put(queue)
        scene.commit(Save([(queue, 1, 0, seq)], [(group, 0, 0)], exact=False))
        scene.reopen(clean=False)
        assert not scene.store.clean

    def test_counts_saved_in_an_earlier_epoch_are_not_trusted_after_a_put(
        self, scene: Scenario
    ) -> None:
        queue, group = scene.queue_and_group()
        (seq,) = scene.put(queue)
        scene.commit(Save([(queue, 1, 0, seq)], [(group, 0, 0)], exact=True))
        scene.reopen(clean=True)
        scene.put(queue)
        scene.reopen(clean=False)
        assert not scene.store.clean

    def test_the_work_goes_on_with_the_ids_of_before(self, scene: Scenario) -> None:
        queue, group, audit = scene.queue_and_groups()
        seqs = scene.put(queue, 2)
        scene.start(group, seqs[0])
        scene.reopen()
        assert scene.queue() == queue
        assert (scene.group(queue), scene.group(queue, "audit")) == (group, audit)
        scene.again(group, seqs[0], 2, crashes=1)
        assert scene.ack(group, seqs[0]) == 0
        assert scene.start_and_ack(audit, seqs[0]) == 1

    def test_a_closed_store_says_so(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        scene.put(queue)
        store = scene.store
        store.close(clean=True)
        store.close(clean=True)
        calls = (
            lambda: store.commit([plain(queue, b"late")]),
            lambda: store.put(plain(queue, b"late")),
            store.catalogue,
            lambda: store.load(Load(group, 0, 0, 10, 10)),
            lambda: store.load_due(LoadDue(group, False, (0, 0), 10)),
            lambda: store.next_of_key(group, "k", 0),
            lambda: store.latest(group, 1),
            lambda: store.open_deliveries(group, [1]),
            lambda: store.messages([1]),
            lambda: store.expired(0, 1),
            lambda: store.unsettled(1),
            lambda: store.range(queue, 0, 1),
            lambda: store.deliveries(1),
            lambda: store.dead(queue, 0, 1),
            lambda: store.dead_letter(1, group),
            store.begin_tally,
            lambda: store.session_names([1]),
        )
        for call in calls:
            with pytest.raises(StoreClosed):
                call()
