"""Who commits, with whom, and what everyone is told, whatever goes wrong."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import pytest

from embedq.errors import (
    EmbedqError,
    InvalidOption,
    StorageError,
    StoreBusy,
    StoreClosed,
    StoreCorrupt,
    StoreFailed,
    StoreFull,
)
from embedq.storage.ops import Op
from embedq.storage.writer import Task, Writer
from tests.storage.writing import (
    SOON,
    Alone,
    Caller,
    FakeBook,
    FakeStore,
    Interrupt,
    Sent,
    Step,
    make,
    meet,
    put,
    wait_until,
)


@pytest.fixture
def store() -> FakeStore:
    return FakeStore()


@pytest.fixture
def book() -> FakeBook:
    return FakeBook()


@pytest.fixture
def writer(store: FakeStore, book: FakeBook) -> Iterator[Writer]:
    one = make(store, book)
    yield one
    store.fail = lambda _: None
    store.fail_tidying = None
    one.close()


# ---------------------------------------------------------------------------- who commits


def test_a_caller_alone_commits_on_its_own_thread(writer: Writer, store: FakeStore) -> None:
    task = Step(1)
    writer.run(task)
    writer.put(put(2), lambda _: None)
    assert store.commits == [[1], [2]]
    assert set(store.threads) == {threading.get_ident()}
    assert task.log == ["prepare", "apply"]
    assert not writer._serving.locked()


def test_callers_who_meet_are_committed_together_by_the_writing_thread(
    writer: Writer, store: FakeStore
) -> None:
    callers = meet(
        writer,
        lambda: writer.run(Step(1)),
        lambda: writer.run(Step(2)),
        lambda: writer.run(Step(3)),
    )
    assert [caller.wait() for caller in callers] == [None] * 3
    assert store.commits == [[1, 2, 3]]
    assert store.threads[0] != threading.get_ident()


def test_a_put_that_meets_others_is_left_to_a_task(writer: Writer, store: FakeStore) -> None:
    with writer.lock:
        assert not writer.put(put(1), lambda _: pytest.fail("it was not stored"))
    assert store.tried == []
    assert writer.put(put(2), lambda _: None)
    assert store.commits == [[2]]


def test_after_a_crowd_callers_hand_over_until_one_was_alone(
    writer: Writer, store: FakeStore
) -> None:
    here = threading.get_ident()
    Sent(writer, Step(1), Step(2))
    writer.run(Step(3))
    with writer.lock:
        pass
    writer.run(Step(4))
    assert store.commits == [[1, 2], [3], [4]]
    assert [thread == here for thread in store.threads] == [False, False, True]


def test_a_task_that_is_sent_is_answered_from_the_writing_thread(
    writer: Writer, store: FakeStore
) -> None:
    told: list[int] = []
    writer.send(Step(1), lambda: told.append(threading.get_ident()))
    wait_until(lambda: bool(told))
    assert told == store.threads
    assert told != [threading.get_ident()]


def test_a_group_is_bounded_in_number_and_in_bytes(store: FakeStore, book: FakeBook) -> None:
    writer = make(store, book, most=3, most_bytes=100)
    Sent(writer, *[Step(number) for number in range(5)])
    assert store.commits == [[0, 1, 2], [3, 4]]
    Sent(writer, Step(5, 60), Step(6, 60), Step(7, 60))
    assert store.commits[2:] == [[5, 6], [7]]
    writer.close()


def test_tasks_without_operations_commit_nothing(writer: Writer, store: FakeStore) -> None:
    class Nothing(Step):
        def prepare(self) -> Sequence[Op]:
            return ()

    task = Nothing(1)
    writer.run(task)
    assert (store.tried, task.log) == ([], ["apply"])


def test_a_task_that_must_be_alone_finds_those_before_it_applied(
    writer: Writer, store: FakeStore
) -> None:
    order: list[str] = []

    class Watched(Step):
        def prepare(self) -> Sequence[Op]:
            order.append(f"prepare {self.number}")
            return super().prepare()

        def apply(self) -> None:
            order.append(f"apply {self.number}")

    class WatchedAlone(Watched):
        alone = True

    Sent(writer, Watched(1), Watched(2), WatchedAlone(3), WatchedAlone(4), Watched(5))
    assert store.commits == [[1, 2], [3], [4], [5]]
    together = ["prepare 1", "prepare 2", "apply 1", "apply 2"]
    assert order == together + [f"{what} {n}" for n in (3, 4, 5) for what in ("prepare", "apply")]


def test_tidying_up_comes_after_the_answers(writer: Writer, store: FakeStore) -> None:
    answered: list[int] = []

    class Tidy(Step):
        def apply(self) -> None:
            answered.append(store.tidied)

    Sent(writer, Tidy(1), Tidy(2))
    writer.run(Step(3))
    assert answered == [0, 0]
    assert store.tidied == 2
    writer.put(put(4), lambda _: None)
    assert store.tidied == 2  # nothing to do, said the store
    store.untidy = True
    writer.put(put(5), lambda _: None)
    assert store.tidied == 3


# ------------------------------------------------------------------------------- lingering


def test_after_company_the_thread_waits_for_those_who_were_in_it(
    writer: Writer, store: FakeStore
) -> None:
    writer._company, writer._commit_s = 3, 10.0
    batch: list[Task] = [Step(1)]
    for number in (2, 3, 4):
        writer._tasks.put(Step(number))
    writer._tasks.get()
    writer._linger(batch)
    assert [task.number for task in cast("list[Step]", batch)] == [1]  # they wait already
    writer._company = 4
    writer._linger(batch)  # one more might come, so the others are taken meanwhile
    assert [task.number for task in cast("list[Step]", batch)] == [1, 3, 4]


def test_it_does_not_wait_where_a_commit_is_fast_and_not_beyond_the_end(writer: Writer) -> None:
    writer._company, writer._commit_s = 9, 0.0001
    writer._tasks.put(Step(2))
    batch: list[Task] = [Step(1)]
    writer._linger(batch)
    assert len(batch) == 1
    writer._tasks.get()
    writer._commit_s = 10.0
    writer._tasks.put(None)
    writer._linger(batch)
    assert len(batch) == 1
    assert writer._tasks.get() is None


# --------------------------------------------------------------------------------- errors


def test_one_bad_task_of_a_group_fails_alone(writer: Writer, store: FakeStore) -> None:
    store.fail = lambda numbers: StorageError("cannot be stored") if 2 in numbers else None
    sent = Sent(writer, Step(1), Step(2), Step(3))
    assert sent.errors == [None, "storage", None]
    assert store.tried == [[1, 2, 3], [1], [2], [3]]
    assert [task.log for task in sent.tasks] == [
        ["prepare", "undo", "prepare", "apply"],
        ["prepare", "undo", "prepare", "undo"],
        ["prepare", "undo", "prepare", "apply"],
    ]


@pytest.mark.parametrize("error", [StoreFull("full"), InvalidOption("one of them is wrong")])
def test_where_there_was_room_only_for_some_the_rest_gets_through(
    writer: Writer, store: FakeStore, error: EmbedqError
) -> None:
    store.fail = lambda numbers: error if len(numbers) > 1 or 1 in numbers else None
    sent = Sent(writer, Step(1), Step(2), Step(3))
    assert sent.errors == [error.code, None, None]
    assert store.commits == [[2], [3]]


@pytest.mark.parametrize("kind", [StoreBusy, StoreFailed, StoreCorrupt, StoreClosed])
def test_an_error_that_says_nothing_about_one_task_fails_the_group_at_once(
    writer: Writer, store: FakeStore, kind: type[StorageError]
) -> None:
    store.fail = lambda _: kind("planted")
    sent = Sent(writer, Step(1), Step(2))
    assert sent.errors == [kind.code] * 2
    assert store.tried == [[1, 2]]
    assert [task.log for task in sent.tasks] == [["prepare", "undo"]] * 2
    store.fail = lambda _: None
    writer.run(Step(3))
    assert store.commits == [[3]]
    assert store.settled == 0  # nothing was interrupted


def test_what_is_cut_off_from_a_group_does_not_share_its_errors(
    writer: Writer, store: FakeStore
) -> None:
    store.fail = lambda numbers: StoreBusy("planted") if 1 in numbers else None
    sent = Sent(writer, Step(1), Step(2), Alone(3))
    assert sent.errors == ["store_busy", "store_busy", None]


def test_a_caller_gets_the_error_of_its_own_task(writer: Writer, store: FakeStore) -> None:
    store.fail = lambda _: StoreBusy("planted")
    with pytest.raises(StoreBusy, match="planted"):
        writer.run(Step(1))
    with pytest.raises(StoreBusy, match="planted"):
        writer.put(put(1), lambda _: pytest.fail("it was not stored"))
    assert writer._inflight is None


# ------------------------------------------------------------------ interrupted commits


@pytest.mark.parametrize("error", [ZeroDivisionError(), Interrupt()])
def test_a_task_that_cannot_be_prepared_leaves_a_mark_that_the_next_one_settles(
    writer: Writer, store: FakeStore, book: FakeBook, error: BaseException
) -> None:
    task = Step(1)
    task.fail = error
    with pytest.raises(type(error)):
        writer.run(task)
    assert (store.settled, book.interruptions) == (0, 0)
    writer.run(Step(2))
    assert (store.settled, book.interruptions) == (1, 1)
    assert task.log == ["prepare", "undo"]
    writer.run(Step(3))
    assert book.interruptions == 1
    assert store.commits == [[2], [3]]


def test_in_a_group_a_defect_is_told_to_everybody_and_settled_by_the_next(
    writer: Writer, store: FakeStore, book: FakeBook
) -> None:
    first, second, third = Step(1), Step(2), Step(3)
    second.fail = ZeroDivisionError("a defect")
    sent = Sent(writer, first, second, third)
    assert [type(task.error) for task in sent.tasks] == [ZeroDivisionError] * 3
    assert store.tried == []
    Sent(writer, Step(4))
    assert (store.settled, book.interruptions, store.commits) == (1, 1, [[4]])
    assert [task.log for task in sent.tasks] == [
        ["prepare", "undo"],
        ["prepare", "undo"],
        ["undo"],
    ]


@pytest.mark.parametrize("way", ["run", "put"])
def test_an_interrupted_commit_is_settled_before_the_next_one(
    writer: Writer, store: FakeStore, book: FakeBook, way: str
) -> None:
    ways = {"run": lambda: writer.run(Step(1)), "put": lambda: writer.put(put(1), print)}
    store.fail = lambda _: Interrupt()
    with pytest.raises(Interrupt):
        ways[way]()
    store.fail = lambda _: None
    with writer.lock:
        writer.settle()
        writer.settle()
    assert (store.settled, book.interruptions) == (1, 1)
    writer.put(put(2), lambda _: None)
    assert book.interruptions == 1


def test_an_interruption_after_the_commit_is_settled_too(
    writer: Writer, store: FakeStore, book: FakeBook
) -> None:
    def interrupted(_op: object) -> None:
        raise Interrupt

    with pytest.raises(Interrupt):
        writer.put(put(1), interrupted)
    writer.put(put(2), lambda _: None)
    assert (store.commits, book.interruptions) == ([[1], [2]], 1)


def test_a_change_of_memory_that_fails_is_settled_by_the_next(
    writer: Writer, book: FakeBook
) -> None:
    with writer.lock:
        assert writer.change(lambda: 7) == 7
        writer.settle()
    assert book.interruptions == 0
    with writer.lock, pytest.raises(ZeroDivisionError):
        writer.change(lambda: 1 // 0)
    writer.run(Step(1))
    assert book.interruptions == 1


# ------------------------------------------------------------------------------ the end


def test_when_the_writing_thread_ends_everybody_is_told_why(
    writer: Writer, store: FakeStore
) -> None:
    store.fail = lambda _: Interrupt("from outside")
    callers = meet(writer, lambda: writer.run(Step(1)), lambda: writer.run(Step(2)))
    for caller in callers:
        error = caller.wait()
        assert isinstance(error, StoreFailed)
        assert "the writing thread ended: Interrupt: from outside" in str(error)
        assert isinstance(error.__cause__, Interrupt)
    for late in (
        lambda: writer.run(Step(3)),
        lambda: writer.send(Step(3)),
        lambda: writer.put(put(3), lambda _: None),
    ):
        with pytest.raises(StoreFailed, match="the writing thread ended"):
            late()


def test_those_who_were_answered_before_it_ended_keep_their_answers(
    writer: Writer, store: FakeStore
) -> None:
    store.fail_tidying = Interrupt()
    assert Sent(writer, Step(1), Step(2)).errors == [None, None]
    caller = Caller(lambda: writer.run(Step(3)))
    assert isinstance(caller.wait(), StoreFailed)


def test_closing_commits_what_waits_and_refuses_the_rest(writer: Writer, store: FakeStore) -> None:
    tasks = [Step(1), Step(2)]
    with writer.lock:
        for task in tasks:
            writer.send(task)
        closing = Caller(writer.close)
    assert closing.wait() is None
    assert store.commits == [[1, 2]]
    with pytest.raises(StoreClosed):
        writer.run(Step(3))
    assert not writer._serving.locked()
    writer.close()


def test_a_task_that_slips_in_behind_the_end_is_refused_and_not_forgotten(
    writer: Writer, store: FakeStore
) -> None:
    writer.close()
    answered = threading.Event()
    task = Step(1)
    task.done = answered.set
    writer._hand_over(task)  # it had looked before the end
    assert answered.wait(SOON)
    assert isinstance(task.error, StoreClosed)
    assert store.tried == []


def test_refusing_lets_through_what_was_handed_over(writer: Writer, store: FakeStore) -> None:
    answered: list[int] = []
    with writer.lock:
        writer.send(Step(1), lambda: answered.append(1))
        writer.refuse(InvalidOption("this is a fork"))
    wait_until(lambda: bool(answered))
    refused: list[Callable[[], Any]] = [
        lambda: writer.run(Step(2)),
        lambda: writer.send(Step(2)),
        lambda: writer.put(put(2), lambda _: None),
    ]
    for call in refused:
        with pytest.raises(InvalidOption, match="fork"):
            call()
    assert store.commits == [[1]]
