"""The store in memory: it passes the suite, and does what only it can do."""

import pytest

import tests.conformance.assertions  # noqa: F401  # before what it names
from embedq.clock import SystemClock, VirtualClock
from embedq.errors import InvalidOption, StoreClosed, StoreFull
from embedq.storage.memory import MemoryStore
from embedq.storage.ops import Ack, Op, Start
from embedq.storage.port import Store
from tests.conformance.scenario import Scenario, Theme, plain
from tests.conformance.store_suite import THEMES, StoreSuite


class MemoryStores:
    def make_store(self) -> MemoryStore:
        return MemoryStore()

    def reopen(self, store: Store, *, clean: bool) -> MemoryStore:
        assert isinstance(store, MemoryStore)
        if clean:
            store.close(clean=True)
        return store.reopen()


class TestMemoryStore(StoreSuite):
    @pytest.fixture
    def stores(self) -> MemoryStores:
        return MemoryStores()


class TestOnlyInMemory(Theme):
    @pytest.fixture
    def stores(self) -> MemoryStores:
        return MemoryStores()

    def test_a_planned_failure_happens_once_and_changes_nothing(self, scene: Scenario) -> None:
        queue = scene.queue()
        store = scene.store
        assert isinstance(store, MemoryStore)
        store.fail_next(StoreFull("the disk is full"))
        put = plain(queue, b"x")
        with pytest.raises(StoreFull):
            store.commit([put])
        assert (scene.seqs(queue), store.last_seq) == ([], 0)
        store.commit([put])
        assert scene.seqs(queue) == [1]

    def test_a_planned_failure_may_be_an_interrupt(self, scene: Scenario) -> None:
        store = scene.store
        assert isinstance(store, MemoryStore)
        store.fail_next(KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            store.commit([])
        store.settle_interrupted()
        assert scene.put(scene.queue()) == [1]

    def test_a_clean_close_saves_exact_counts(self, scene: Scenario) -> None:
        queue, group, audit = scene.queue_and_groups()
        seqs = scene.put(queue, 3)
        scene.start_and_ack(group, seqs[0])
        scene.bury(audit, seqs[0])
        scene.start_and_ack(group, seqs[1])
        scene.reopen(clean=True)
        assert scene.store.clean
        ((found,), members) = scene.store.catalogue()
        assert (found.stored, found.dead, found.last) == (2, 1, seqs[-1])
        assert {member.id: member.settled for member in members} == {group: 1, audit: 0}

    def test_a_store_that_crashed_is_closed(self, scene: Scenario) -> None:
        before = scene.store
        scene.reopen(clean=False)
        assert not scene.store.clean
        with pytest.raises(StoreClosed):
            before.commit([])

    def test_a_start_of_a_message_that_is_gone_opens_nothing(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        (seq,) = scene.put(queue)
        scene.start_and_ack(group, seq)
        scene.start(group, seq)
        assert scene.store.deliveries(seq) == []
        assert scene.open_deliveries(group) == {}

    def test_readers_keep_the_moment_they_asked_for(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        seqs = scene.put(queue, 2)
        scene.start(group, *seqs)
        found = scene.store.deliveries(seqs[0]), scene.store.range(queue, 0, 9)
        queues, groups = scene.store.catalogue()
        scene.commit(Ack(group, 9, seqs))
        groups[0].floor = queues[0].stored = 99
        assert (len(found[0]), len(found[1])) == (1, 2)
        assert scene.store.catalogue()[1][0].floor == 0


def test_the_key_of_a_store_can_be_chosen() -> None:
    assert MemoryStore(key=b"k" * 16).reopen().key == b"k" * 16
    assert MemoryStore().key != MemoryStore().key
    with pytest.raises(InvalidOption, match="15 bytes"):
        MemoryStore(key=b"k" * 15)


def test_the_clock_is_kept_for_those_who_share_it() -> None:
    clock = VirtualClock()
    assert MemoryStore(clock).reopen().clock is clock
    assert isinstance(MemoryStore().clock, SystemClock)


def test_no_two_themes_share_the_name_of_a_test() -> None:
    # One would hide the other in StoreSuite, and nobody would miss it.
    names = [name for theme in THEMES for name in vars(theme) if name.startswith("test_")]
    assert sorted(names) == sorted(set(names))
    assert set(names) == {name for name in dir(StoreSuite) if name.startswith("test_")}


def test_the_suite_notices_a_store_that_forgets_to_settle() -> None:
    class Forgetful(MemoryStore):
        def commit(self, batch: list[Op]) -> None:  # type: ignore[override]
            super().commit([op for op in batch if not isinstance(op, Ack)])

    class Planted(MemoryStores):
        def make_store(self) -> MemoryStore:
            return Forgetful()

    with pytest.raises(AssertionError):
        StoreSuite().test_an_acked_message_leaves_with_its_deliveries(Scenario(Planted()))


def test_the_suite_notices_a_store_that_loses_a_start() -> None:
    class Forgetful(MemoryStore):
        def commit(self, batch: list[Op]) -> None:  # type: ignore[override]
            super().commit([op for op in batch if not isinstance(op, Start)])

    class Planted(MemoryStores):
        def make_store(self) -> MemoryStore:
            return Forgetful()

    with pytest.raises((AssertionError, ValueError)):
        StoreSuite().test_a_first_delivery_is_attempt_1_and_open(Scenario(Planted()))
