"""The store in a SQLite file answers like the one in memory, whatever happens to both."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

import tests.conformance.assertions  # noqa: F401  # before what it names
from embedq.limits import LIMITS
from embedq.storage.memory import MemoryStore
from embedq.storage.memory_state import State
from embedq.storage.ops import Op, Release, Start
from embedq.storage.port import Store
from embedq.storage.rows import DeliveryRow, GroupRow
from embedq.storage.sqlite import SqliteStore, open_store
from tests.conformance.machine import StoresAgree
from tests.conformance.scenario import Stores

pytestmark = pytest.mark.slow

# Not what is compared here, and each opening would write it to the disk.
SMALL = replace(LIMITS, ballast_bytes=4096, disk_watermark_bytes=0)

SETTINGS = settings(
    max_examples=200 if os.environ.get("EMBEDQ_TEST_LONG") else 80,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


# A failure is all that is wanted: the shortest one would take longer to find.
SEARCH = (Phase.generate,)


class MemoryStores:
    def __init__(self, make: Callable[[], MemoryStore] = MemoryStore) -> None:
        self._make = make

    def make_store(self) -> MemoryStore:
        return self._make()

    def reopen(self, store: Store, *, clean: bool) -> MemoryStore:
        assert isinstance(store, MemoryStore)
        store.close(clean=clean)
        return store.reopen()


class SqliteStores:
    """Files in a folder of their own, removed when the next one is made."""

    def __init__(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        self._path = folder / "store.db"

    def make_store(self) -> SqliteStore:
        return open_store(self._path, durability="normal", limits=SMALL)

    def reopen(self, store: Store, *, clean: bool) -> SqliteStore:
        store.close(clean=clean)
        return self.make_store()


def machine(left: Callable[[], Stores], right: Callable[[], Stores]) -> type[StoresAgree]:
    class Machine(StoresAgree):
        def __init__(self) -> None:
            super().__init__(left(), right())

    return Machine


def test_the_sqlite_store_answers_like_the_one_in_memory(tmp_path: Path) -> None:
    compared = machine(MemoryStores, lambda: SqliteStores(tmp_path / "example"))
    run_state_machine_as_test(compared, settings=SETTINGS)


# ------------------------------------------------------- the machine notices what is wrong


class CountsTooFar(MemoryStore):
    """Takes the second attempt for the third, and so on."""

    def commit(self, batch: Sequence[Op]) -> None:
        super().commit([self._spoilt(op) if isinstance(op, Start) else op for op in batch])

    @staticmethod
    def _spoilt(op: Start) -> Start:
        again = [again._replace(attempt=again.attempt + (again.attempt > 1)) for again in op.again]
        return Start(op.group, op.started, op.session, op.counter, op.fresh, again)


class OneGroupState(State):
    """Believes only the first group of a queue when it says that it has settled a message."""

    def is_settled(self, group: GroupRow, seq: int) -> bool:
        if group.id == min(other.id for other in self.groups_of(group.queue)):
            return super().is_settled(group, seq)
        return seq <= group.floor


class KeepsRetryTimeState(State):
    """Does not clear the retry time of an attempt when the next one starts."""

    def put_row(self, new: DeliveryRow) -> None:
        for old in self.rows_of(new.group, new.seq):
            if old.attempt == new.attempt and old.due is not None and new.due is None:
                return
        super().put_row(new)


class FloorlessState(State):
    """Forgets that messages up to the floor are settled."""

    def is_settled(self, group: GroupRow, seq: int) -> bool:
        return super().is_settled(replace(group, floor=0), seq)


class ReleasesEverything(MemoryStore):
    """Gives back what is not open."""

    def commit(self, batch: Sequence[Op]) -> None:
        super().commit(batch)
        draft = self._state.copy()
        for op in batch:
            if not isinstance(op, Release):
                continue
            for seq, attempt in op.deliveries:
                rows = draft.deliveries.get(seq, ())
                kept = [r for r in rows if (r.group, r.attempt) != (op.group, attempt)]
                draft.set_rows(seq, kept)
        self._state = draft


class ForgetsSeqs(MemoryStore):
    """Gives the seq of the last message to the next one when that one is gone."""

    def reopen(self) -> Self:
        store = super().reopen()
        store._state.last_seq = store.last_seq = max(store._state.messages, default=0)
        return store


def with_state(kind: type[State]) -> Callable[[], MemoryStore]:
    class Mutant(MemoryStore):
        def _begin(self, state: State) -> None:
            super()._begin(kind(**{name: getattr(state, name) for name in State.__slots__}))

    return Mutant


MUTANTS: dict[str, Callable[[], MemoryStore]] = {
    "an attempt too many": CountsTooFar,
    "the second group ignored": with_state(OneGroupState),
    "the retry time kept": with_state(KeepsRetryTimeState),
    "the floor ignored": with_state(FloorlessState),
    "a closed delivery released": ReleasesEverything,
    "a seq used twice": ForgetsSeqs,
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_machine_notices_a_mutant(mutant: str) -> None:
    compared = machine(MemoryStores, lambda: MemoryStores(MUTANTS[mutant]))
    search = settings(
        SETTINGS, max_examples=1_000, database=None, derandomize=True, phases=SEARCH
    )  # it ends with the first one
    with pytest.raises(AssertionError):
        run_state_machine_as_test(compared, settings=search)


def test_the_machine_finds_nothing_in_two_stores_that_are_the_same() -> None:
    compared = machine(MemoryStores, MemoryStores)
    run_state_machine_as_test(compared, settings=settings(SETTINGS, max_examples=20))
