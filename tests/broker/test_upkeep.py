"""Each chore does its work in time, does no more, and does not keep the others from theirs."""

from __future__ import annotations

import dataclasses
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from embedq.broker.desk import Desk
from embedq.broker.host import open_engine
from embedq.broker.state import GroupState, QueueState
from embedq.clock import VirtualClock
from embedq.errors import StoreBusy, StoreCorrupt, StoreFailed
from embedq.lifecycle import Outcome, Reason
from embedq.limits import LIMITS
from embedq.message import draft
from embedq.storage.sqlite import SqliteStore
from embedq.storage.verify import Verifier

SMALL = dataclasses.replace(LIMITS, disk_watermark_bytes=0, ballast_bytes=0)
RETAIN_MS = 60_000


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "q.db"


def open_desk(path: Path | str, clock: VirtualClock) -> Desk:
    return open_engine(path, durability="normal", clock=clock, limits=SMALL, upkeep=False)


@pytest.fixture(params=["memory", "file"])
def desk(request, clock: VirtualClock, path: Path) -> Iterator[Desk]:
    with open_desk(":memory:" if request.param == "memory" else path, clock) as opened:
        yield opened


@pytest.fixture
def hosted(clock: VirtualClock, path: Path) -> Iterator[Desk]:
    """A desk on a file."""
    with open_desk(path, clock) as opened:
        yield opened


@pytest.fixture
def queue(desk: Desk) -> QueueState:
    return desk.queue("orders")


@pytest.fixture
def group(desk: Desk, queue: QueueState) -> GroupState:
    return desk.group(queue)


def die(desk: Desk) -> None:
    """Let go of the file as a process does that is killed."""
    desk.writer.close()
    desk.store.close(clean=False)


def commits(desk: Desk) -> int:
    """Return how many commits the next round makes."""
    before = desk.writer.groups
    desk.upkeep.round()
    return desk.writer.groups - before


# -------------------------------------------------------------------------------- leases


def test_a_round_ends_leases_of_every_group_whose_time_is_over(
    desk: Desk, queue: QueueState, group: GroupState, clock: VirtualClock
) -> None:
    audit = desk.group(queue, "audit")
    desk.put_many(queue, [b"body"] * 3)
    desk.claim(group, 2, lease_s=10)
    desk.claim(audit, 1, lease_s=10)
    desk.claim(audit, 1, lease_s=20)
    clock.advance(9.999)
    assert commits(desk) == 0
    clock.advance(0.001)
    assert commits(desk) == 2
    assert (len(group.leases), len(audit.leases)) == (0, 1)
    (row,) = [row for row in desk.store.deliveries(1) if row.group == group.id]
    assert (row.outcome, row.ended) == (Outcome.TIMED_OUT, desk.now_ms())


def test_leases_whose_end_could_not_be_stored_are_ended_a_second_later(
    desk: Desk, queue: QueueState, group: GroupState, clock: VirtualClock, monkeypatch
) -> None:
    desk.put(queue, b"body")
    (lease,) = desk.claim(group, lease_s=10)
    clock.advance(10)
    with monkeypatch.context() as patched:
        patched.setattr(desk.store, "commit", raiser(StoreBusy("somebody has the file")))
        desk.upkeep.round()
    assert (type(desk.upkeep.trouble), lease.is_held) == (StoreBusy, True)
    clock.advance(1)
    desk.upkeep.round()
    assert (desk.upkeep.trouble, lease.is_held) == (None, False)


def raiser(error: BaseException):
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


# ------------------------------------------------------------------------------- expiry


def expiring(desk: Desk, queue: QueueState, seconds: float, **more) -> int:
    wanted = draft(b"body", expires_at_ms=desk.now_ms() + round(1000 * seconds), **more)
    return desk.put_drafts(queue, [wanted])[0].seq


def test_a_message_expires_in_every_group_that_waits_for_it(
    desk: Desk, queue: QueueState, group: GroupState, clock: VirtualClock
) -> None:
    audit = desk.group(queue, "audit", "beginning")
    seq = expiring(desk, queue, 5)
    desk.ack(*desk.claim(audit))
    clock.advance(4.999)
    desk.upkeep.round()
    assert queue.dead == 0
    clock.advance(0.001)
    desk.upkeep.round()
    (letter,) = desk.store.dead(queue.id, 0, 9)
    assert (letter.seq, letter.group, letter.reason) == (seq, group.id, Reason.EXPIRED)
    assert (letter.moved_by, letter.died) == ("host", desk.now_ms())
    assert (queue.stored, queue.dead, group.waiting, audit.waiting) == (0, 1, 0, 0)


def test_in_a_queue_without_groups_an_expired_message_just_leaves(
    desk: Desk, queue: QueueState, clock: VirtualClock
) -> None:
    expiring(desk, queue, 5)
    kept = expiring(desk, queue, 50)
    clock.advance(5)
    desk.upkeep.round()
    assert (queue.stored, queue.dead) == (1, 0)
    assert [found.seq for found in desk.peek(queue)] == [kept]


def test_a_leased_message_may_be_finished_after_its_time(
    desk: Desk, queue: QueueState, group: GroupState, clock: VirtualClock
) -> None:
    expiring(desk, queue, 5)
    (lease,) = desk.claim(group, lease_s=100)
    clock.advance(6)
    desk.upkeep.round()
    assert queue.dead == 0
    desk.ack(lease)
    assert (queue.stored, queue.dead) == (0, 0)


def test_what_waits_behind_an_expired_message_of_its_key_may_move(
    desk: Desk, queue: QueueState, group: GroupState, clock: VirtualClock
) -> None:
    desk.claim(group)  # so that what comes is in memory
    expiring(desk, queue, 5, ordering_key="k", available_at_ms=desk.now_ms() + 4_000)
    (second,) = desk.put_drafts(queue, [draft(b"next", ordering_key="k")])
    assert desk.claim(group, 9) == []
    clock.advance(5)
    desk.upkeep.round()
    assert [lease.seq for lease in desk.claim(group, 9)] == [second.seq]


# -------------------------------------------------------------------- saving and pruning


def test_counts_floors_and_bounds_are_saved_once_a_minute(path: Path, clock: VirtualClock) -> None:
    desk = open_desk(path, clock)
    queue = desk.queue("orders")
    group = desk.group(queue)
    desk.put_many(queue, [b"body"] * 5)
    desk.ack(*desk.claim(group, 3))
    clock.advance(59.9)
    assert commits(desk) == 0
    clock.advance(0.1)
    assert commits(desk) == 2
    ((row,), (member,)) = desk.store.catalogue()
    assert (row.stored, row.last, member.floor, group.floor) == (2, 5, 3, 3)
    clock.advance(60)
    assert commits(desk) == 0  # nothing has happened since
    die(desk)
    with open_desk(path, clock) as desk:
        assert not desk.store.clean  # nobody said that the counts were exact
        assert desk.group(desk.queue("orders")).floor == 3


def test_the_last_counts_are_saved_although_nobody_does_anything_any_more(
    hosted: Desk, clock: VirtualClock
) -> None:
    queue = hosted.queue("orders")
    hosted.group(queue)
    hosted.put(queue, b"body")
    clock.advance(30)
    hosted.upkeep.round()
    hosted.upkeep.round()
    clock.advance(30)
    assert commits(hosted) == 2
    assert hosted.store.catalogue()[0][0].stored == 1


def test_dedup_keys_are_forgotten_when_their_window_is_over(
    desk: Desk, queue: QueueState, clock: VirtualClock
) -> None:
    def put(key: str) -> bool:
        wanted = draft(b"", dedup_key=key, dedup_window_ms=60_000)
        return desk.put_drafts(queue, [wanted])[0].duplicate

    assert not put("a")
    clock.advance(59)
    assert (put("a"), put("b")) == (True, False)
    clock.advance(1)
    desk.upkeep.round()
    assert dedup_keys(desk) == {"b"}
    assert (put("a"), put("b")) == (False, True)


def dedup_keys(desk: Desk) -> set[str]:
    store = desk.store
    if isinstance(store, SqliteStore):
        return {key for (key,) in store.connection.execute("SELECT key FROM dedup")}
    return {key for _, key in store._state.dedup}  # type: ignore[attr-defined]


def test_more_dedup_keys_than_a_round_removes_are_gone_after_a_few_rounds(
    desk: Desk, queue: QueueState, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("embedq.broker.upkeep._MANY", 2)
    monkeypatch.setattr("embedq.broker.upkeep._BATCHES", 3)
    drafts = [draft(b"", dedup_key=str(n), dedup_window_ms=60_000) for n in range(9)]
    desk.put_drafts(queue, drafts)
    clock.advance(60)
    left = []
    for _ in range(3):
        desk.upkeep.round()
        left.append(len(dedup_keys(desk)))
    assert left == [3, 0, 0]
    desk.upkeep.round()
    assert commits(desk) == 0


def test_an_idle_file_is_tidied_up_and_a_busy_one_is_not(hosted: Desk) -> None:
    queue = hosted.queue("orders")
    store = hosted.store
    assert isinstance(store, SqliteStore)
    hosted.put_many(queue, [b"x" * 5000] * 50)
    hosted.cancel(queue, *range(1, 51))
    hosted.upkeep.round()
    free = store.connection.execute("PRAGMA freelist_count").fetchone()[0]
    checkpoints = store.wal.checkpoints
    assert free > 50
    hosted.put(queue, b"body")
    hosted.upkeep.round()
    assert store.wal.checkpoints == checkpoints
    hosted.upkeep.round()
    assert store.wal.checkpoints == checkpoints + 1
    assert store.connection.execute("PRAGMA freelist_count").fetchone() == (0,)
    hosted.upkeep.round()
    hosted.upkeep.round()
    assert store.wal.checkpoints == checkpoints + 2  # of the pages that were given back


# ------------------------------------------------------------------------------ trouble


def test_a_chore_that_fails_does_not_keep_the_others_from_being_done(
    desk: Desk,
    queue: QueueState,
    group: GroupState,
    clock: VirtualClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    desk.put(queue, b"body")
    desk.claim(group, lease_s=10)
    clock.advance(10)
    monkeypatch.setattr(desk.store, "look_around", raiser(StoreFailed("no disk")))
    monkeypatch.setattr(desk.store, "expired", raiser(ZeroDivisionError("a defect")))
    desk.upkeep.round()
    assert isinstance(desk.upkeep.trouble, ZeroDivisionError)
    assert not group.leases
    (record,) = [record for record in caplog.records if record.name == "embedq.upkeep"]
    assert "a chore of the host failed: _expire" in record.message


def test_a_removed_file_stops_the_store(hosted: Desk, path: Path) -> None:
    path.unlink()
    hosted.upkeep.round()
    assert isinstance(hosted.store.stopped, StoreFailed)
    assert "deleted" in str(hosted.store.stopped)
    with pytest.raises(StoreFailed, match="deleted"):
        hosted.queue("orders")


def verify_all(desk: Desk) -> None:
    while desk.upkeep.verifier is not None:
        desk.upkeep.verify()


def test_damage_that_is_found_in_the_background_stops_the_store(
    path: Path, clock: VirtualClock
) -> None:
    with open_desk(path, clock) as desk:
        queue = desk.queue("orders")
        desk.put_drafts(queue, [draft(b"x" * 100, priority=1) for _ in range(50)])
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA writable_schema=1")
        (page,) = database.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name='msg_priority'"
        ).fetchone()
        (size,) = database.execute("PRAGMA page_size").fetchone()
    content = bytearray(path.read_bytes())
    content[size * (page - 1) : size * page] = bytes(size)
    path.write_bytes(content)
    desk = open_desk(path, clock)
    store = desk.store
    assert isinstance(store, SqliteStore)
    desk.upkeep.verifier = Verifier(store)
    with pytest.raises(StoreCorrupt, match="is damaged"):
        verify_all(desk)
    assert isinstance(store.stopped, StoreCorrupt)
    desk.upkeep.verify()  # nothing is left to do
    with pytest.raises(StoreCorrupt):
        desk.put(desk.queue("orders"), b"more")
    desk.close()


def test_a_sound_file_is_verified_once(hosted: Desk) -> None:
    store = hosted.store
    assert isinstance(store, SqliteStore)
    hosted.put_many(hosted.queue("orders"), [b"body"] * 10)
    hosted.upkeep.verifier = Verifier(store)
    verify_all(hosted)
    assert store.stopped is None


# ------------------------------------------------------------------------------- thread


class OneTurn(threading.Event):
    """Ends the thread's loop where it would wait for the next turn."""

    def __init__(self, desk: Desk) -> None:
        super().__init__()
        self._desk = desk

    def wait(self, timeout: float | None = None) -> bool:
        self._desk.upkeep._ending = True
        return True


def test_the_thread_outlives_a_store_that_has_stopped_before_it_was_counted(
    path: Path, clock: VirtualClock
) -> None:
    die(open_desk(path, clock))
    desk = open_desk(path, clock)
    assert not desk.counts_exact
    clock.advance(1)
    desk.store.stop(StoreFailed("a test said so"))
    desk.upkeep._wake = OneTurn(desk)
    desk.upkeep._run()
    assert isinstance(desk.upkeep.trouble, StoreFailed)
    desk.close()


def test_the_first_claims_after_a_kill_have_the_disk_before_it_is_counted(
    path: Path, clock: VirtualClock
) -> None:
    die(open_desk(path, clock))
    with open_desk(path, clock) as desk:
        desk.upkeep.count_when_due()
        assert not desk.counts_exact
        clock.advance(1)
        desk.upkeep.count_when_due()
        assert desk.counts_exact


def test_the_thread_looks_again_when_the_nearest_lease_ends(
    desk: Desk, queue: QueueState, group: GroupState, clock: VirtualClock
) -> None:
    upkeep = desk.upkeep
    assert upkeep._pause() == 1.0
    desk.put_many(queue, [b"body"] * 2)
    desk.claim(group, lease_s=100)
    assert upkeep._pause() == 1.0
    desk.claim(group, lease_s=0.25)
    assert upkeep._pause() == pytest.approx(0.25)
    clock.advance(5)
    assert upkeep._pause() == 0.01  # never in a loop without a breath


def test_the_thread_does_its_rounds_until_it_is_told_to_stop(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    turned = threading.Event()
    monkeypatch.setattr(desk.upkeep, "wake_due", turned.set)
    desk.upkeep.start()
    thread = desk.upkeep._thread
    assert thread is not None
    assert turned.wait(20)
    desk.upkeep.stop()
    desk.upkeep.stop()
    assert not thread.is_alive()
