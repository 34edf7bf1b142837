"""The engine from outside: what survives its end, what it refuses, and what it says then."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from embedq.broker import moves
from embedq.broker.desk import Desk
from embedq.broker.host import open_engine
from embedq.broker.state import GroupState, QueueState
from embedq.clock import VirtualClock
from embedq.errors import (
    ForkedBroker,
    InvalidOption,
    StaleLease,
    StoreBusy,
    StoreClosed,
    UnknownMessage,
)
from embedq.lifecycle import Outcome, Reason
from embedq.message import AttemptRecord, ErrorInfo, draft
from embedq.policy import QueuePolicy
from embedq.storage.ops import Op
from embedq.storage.task import Task
from tests.conformance.scenario import attempts_of


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "q.db"


def opened(path: Path | str, clock: VirtualClock) -> Desk:
    return open_engine(path, durability="normal", clock=clock, upkeep=False)


@pytest.fixture(params=["memory", "file"])
def desk(request, clock: VirtualClock, path: Path) -> Iterator[Desk]:
    with opened(":memory:" if request.param == "memory" else path, clock) as one:
        yield one


@pytest.fixture
def queue(desk: Desk) -> QueueState:
    return desk.queue("orders")


@pytest.fixture
def group(desk: Desk, queue: QueueState) -> GroupState:
    return desk.group(queue)


# ---------------------------------------------------------------------------------- puts


def test_a_message_comes_as_it_was_put(
    desk: Desk, queue: QueueState, group: GroupState, clock: VirtualClock
) -> None:
    seq = desk.put(queue, b"\x00body\xff", kind=7)
    (lease,) = desk.claim(group)
    message = lease.message
    assert (message.seq, message.body, message.kind, message.headers) == (
        seq,
        b"\x00body\xff",
        7,
        None,
    )
    assert message.put_at == round(clock.time() * 1000)


def test_seqs_rise_in_the_order_of_the_puts_over_all_queues(desk: Desk, queue: QueueState) -> None:
    mail = desk.queue("mail")
    seqs = [desk.put(queue, b"a"), *desk.put_many(mail, [b"b", b"c"]), desk.put(queue, b"d")]
    assert seqs == [1, 2, 3, 4]
    assert [found.seq for found in desk.peek(queue)] == [1, 4]


def test_putting_nothing_commits_nothing(desk: Desk, queue: QueueState) -> None:
    before = desk.writer.groups
    assert list(desk.put_many(queue, [])) == []
    assert desk.writer.groups == before


def test_ids_lead_back_to_their_messages(desk: Desk, queue: QueueState) -> None:
    seq = desk.put(queue, b"body")
    (receipt,) = desk.put_drafts(queue, [draft(b"other")])
    ident = desk.ids.encode(seq)
    assert (len(ident), desk.seq_of(ident)) == (32, seq)
    assert desk.seq_of(receipt.id) == receipt.seq
    with opened(":memory:", VirtualClock()) as stranger, pytest.raises(UnknownMessage):
        stranger.seq_of(ident)


def test_ids_stay_the_same_from_host_to_host(path: Path, clock: VirtualClock) -> None:
    with opened(path, clock) as desk:
        ident = desk.ids.encode(desk.put(desk.queue("orders"), b"body"))
    with opened(path, clock) as desk:
        assert desk.seq_of(ident) == 1


def test_looking_does_not_touch(desk: Desk, queue: QueueState, group: GroupState) -> None:
    desk.put_many(queue, [b"a", b"b", b"c"])
    assert [found.body for found in desk.peek(queue, 2)] == [b"a", b"b"]
    assert [found.body for found in desk.peek(queue, after=2)] == [b"c"]
    assert group.waiting == 3
    assert desk.store.deliveries(1) == []


def test_hosts_that_gave_nothing_to_consumers_leave_no_session_behind(
    path: Path, clock: VirtualClock
) -> None:
    worked = []
    for turn in range(4):
        with opened(path, clock) as desk:
            desk.put(desk.queue("orders"), b"body")
            if turn == 1:
                desk.claim(desk.group(desk.queues["orders"]))
                worked.append(desk.session)
            last = desk.session
    with opened(path, clock) as desk:
        assert list(desk.store.session_names(range(1, last))) == [desk.listeners, *worked]


# ------------------------------------------------------------------------------- endings


def test_a_failed_attempt_is_kept_with_its_error_until_the_last_one(
    desk: Desk, clock: VirtualClock
) -> None:
    queue = desk.queue("orders", QueuePolicy(max_attempts=2))
    group = desk.group(queue)
    desk.put(queue, b"body")
    started = desk.now_ms()
    error = ErrorInfo("ValueError", "no")
    desk.fail(desk.claim(group)[0], error, delay_s=1.5)
    assert desk.claim(group) == []
    clock.advance(1.5)
    (lease,) = desk.claim(group)
    assert lease.attempt == 2
    desk.fail(lease, error, outcome=Outcome.TIMED_OUT)
    (letter,) = desk.store.dead(queue.id, 0, 9)
    assert (letter.reason, letter.detail) == (Reason.MAX_ATTEMPTS, "attempt 2 of 2 failed")
    now = desk.now_ms()
    worker = desk.store.session_names([desk.session])[desk.session]
    expected = [
        AttemptRecord(1, started, started, worker, Outcome.FAILED, error),
        AttemptRecord(2, now, now, worker, Outcome.TIMED_OUT, error),
    ]
    assert attempts_of(letter) == expected
    assert (queue.stored, queue.dead, group.waiting) == (0, 1, 0)


def test_a_rejected_message_is_dead_at_once_and_says_who_did_it(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    desk.put(queue, b"body")
    desk.reject(desk.claim(group)[0], "of no use", by="ann")
    (letter,) = desk.store.dead(queue.id, 0, 9)
    assert (letter.reason, letter.detail, letter.moved_by) == (Reason.REJECTED, "of no use", "ann")


def test_stale_leases_are_named_and_do_not_keep_the_others_from_being_settled(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    audit = desk.group(queue, "audit", "beginning")
    desk.put_many(queue, [b"body"] * 2)
    first, second = desk.claim(group, 2)
    (other,) = desk.claim(audit)
    desk.ack(first)
    with pytest.raises(StaleLease, match=r"1 leases no longer count \(messages 1\)") as caught:
        desk.ack(second, first, other)
    assert "drop this one" in str(caught.value)
    assert (group.leases, audit.leases) == ({}, {})


def test_settling_nothing_is_fine(desk: Desk, group: GroupState) -> None:
    before = desk.writer.groups
    desk.ack()
    desk.release([])
    assert desk.writer.groups == before


def test_a_delay_that_is_none_is_refused_before_anything_is_settled(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    desk.put(queue, b"body")
    (lease,) = desk.claim(group)
    with pytest.raises(InvalidOption, match="delay=-1"):
        desk.fail(lease, delay_s=-1)
    assert lease.is_held


def test_after_a_failed_settlement_the_lease_still_counts(
    desk: Desk, queue: QueueState, group: GroupState, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.put_drafts(queue, [draft(b"", ordering_key="k")] * 2)
    (lease,) = desk.claim(group)

    def busy(_batch: object) -> None:
        desk.store.refused += 1
        raise StoreBusy("somebody has the file")

    ways: list[Callable[[], None]] = [
        lambda: desk.ack(lease),
        lambda: desk.fail(lease),
        lambda: desk.reject(lease),
        lambda: desk.release([lease]),
    ]
    with monkeypatch.context() as patched:
        patched.setattr(desk.store, "commit", busy)
        for way in ways:
            with pytest.raises(StoreBusy):
                way()
            assert lease.is_held
    assert desk.claim(group) == []  # its key is still blocked
    desk.ack(lease)
    assert [again.seq for again in desk.claim(group)] == [2]


# ------------------------------------------------------------------------------- the end


def test_an_orderly_end_gives_back_what_is_leased_without_an_attempt(
    path: Path, clock: VirtualClock
) -> None:
    with opened(path, clock) as desk:
        queue = desk.queue("orders")
        group, audit = desk.group(queue), desk.group(queue, "audit", "beginning")
        desk.put_many(queue, [b"body"] * 3)
        desk.claim(group, 2)
        desk.claim(audit)
    with opened(path, clock) as desk:
        queue = desk.queue("orders")
        assert desk.counts_exact
        assert queue.stored == 3
        for name in ("default", "audit"):
            leases = desk.claim(desk.group(queue, name), 9)
            assert [(lease.seq, lease.attempt) for lease in leases] == [(1, 1), (2, 1), (3, 1)]


def test_an_end_without_release_counts_what_was_in_work_as_crashed(
    path: Path, clock: VirtualClock
) -> None:
    desk = opened(path, clock)
    queue = desk.queue("orders")
    desk.put(queue, b"body")
    desk.claim(desk.group(queue))
    desk.close(release=False)
    with opened(path, clock) as desk:
        (lease,) = desk.claim(desk.group(desk.queue("orders")))
        assert (lease.attempt, lease.is_suspect) == (2, True)


def test_a_consumer_that_settles_while_the_engine_closes_does_not_disturb_it(
    path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = opened(path, clock)
    queue = desk.queue("orders")
    desk.put_many(queue, [b"body"] * 2)
    first, _ = desk.claim(desk.group(queue), 2)
    close = desk.writer.close

    def slow(last: Iterable[Task] = ()) -> None:
        monkeypatch.setattr(desk.writer, "close", close)
        desk.ack(first)  # at the last moment: nobody else commits any more behind this
        close(last)

    monkeypatch.setattr(desk.writer, "close", slow)
    desk.close()
    with opened(path, clock) as desk:
        assert desk.counts_exact
        assert [lease.seq for lease in desk.claim(desk.group(desk.queue("orders")), 9)] == [2]


def test_a_claim_that_comes_while_the_engine_closes_is_no_attempt_and_no_unclean_end(
    path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = opened(path, clock)
    group = desk.group(desk.queue("orders"))
    desk.put_many(group.queue, [b"a", b"b"])
    desk.claim(group)
    commit = desk.store.commit

    def then_another_comes(batch: Sequence[Op]) -> None:
        commit(batch)
        with suppress(StoreClosed):
            desk.writer.send(moves.Claim(desk, group, 2, 30.0, desk.session))

    monkeypatch.setattr(desk.store, "commit", then_another_comes)
    desk.close()
    with opened(path, clock) as desk:
        assert desk.store.clean
        again = desk.claim(desk.group(desk.queue("orders")), 2)
        assert [(lease.seq, lease.attempt) for lease in again] == [(1, 1), (2, 1)]


def test_a_closed_engine_refuses_everything_and_closes_once(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    desk.put_many(queue, [b"body"] * 2)
    (lease,) = desk.claim(group)
    desk.close()
    desk.close()
    calls: dict[str, Callable[[], object]] = {
        "put": lambda: desk.put(queue, b"more"),
        "put_many": lambda: desk.put_many(queue, [b"more"]),
        "put_drafts": lambda: desk.put_drafts(queue, [draft(b"more")]),
        "claim": lambda: desk.claim(group),
        "ack": lambda: desk.ack(lease),
        "cancel": lambda: desk.cancel(queue, 2),
        "queue": lambda: desk.queue("new"),
        "group": lambda: desk.group(queue, "new"),
        "pause": lambda: desk.pause(queue),
        "peek": lambda: desk.peek(queue),
    }
    for name, call in calls.items():
        with pytest.raises(StoreClosed) as caught:
            call()
        assert caught.value.hint, name


def test_an_engine_that_could_not_save_its_counts_closes_all_the_same(
    path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = opened(path, clock)
    desk.put(desk.queue("orders"), b"body")

    def busy(_batch: object) -> None:
        raise StoreBusy("somebody has the file")

    monkeypatch.setattr(desk.store, "commit", busy)
    with pytest.raises(StoreBusy):
        desk.close()
    with opened(path, clock) as desk:
        assert not desk.counts_exact
        assert len(desk.peek(desk.queue("orders"))) == 1


def test_a_fork_is_refused_with_what_to_do(desk: Desk, queue: QueueState) -> None:
    desk.forked_in_child()
    with pytest.raises(ForkedBroker, match="belongs to the parent") as caught:
        desk.put(queue, b"body")
    assert "spawn" in (caught.value.hint or "")
    desk.store.close(clean=False)  # nobody else does: only the desk took itself for a child


# ----------------------------------------------------------------------------- interrupts


def test_after_an_interruption_everything_is_looked_at_again(
    desk: Desk, queue: QueueState, group: GroupState
) -> None:
    desk.put_many(queue, [b"body"] * 3)
    (held,) = desk.claim(group)
    interruptions, generation = desk.interruptions, group.index.generation
    with desk.writer.lock:
        desk.interrupted()
    assert (desk.interruptions, desk.counts_exact) == (interruptions + 1, False)
    assert group.index.generation > generation
    assert held.is_held
    assert [lease.seq for lease in desk.claim(group, 9)] == [2, 3]
    desk.ack(held)


def test_a_lease_that_nobody_watches_after_an_interruption_still_ends(
    desk: Desk, queue: QueueState, group: GroupState, clock: VirtualClock
) -> None:
    desk.put(queue, b"body")
    desk.claim(group, lease_s=10)
    desk.deadlines.watch_only([])
    with desk.writer.lock:
        desk.interrupted()
    clock.advance(10)
    assert desk.end_leases() == 1
    assert [lease.attempt for lease in desk.claim(group)] == [2]
