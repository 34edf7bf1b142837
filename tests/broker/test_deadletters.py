"""Dead letters are listed, shown, put again and removed; secrets are hidden."""

from datetime import UTC, datetime

import pytest

from embedq.broker.deadletters import CHUNK, DeadLetters
from embedq.broker.desk import Desk
from embedq.broker.endings import Failed, Rejected
from embedq.broker.host import open_engine
from embedq.broker.state import GroupState, QueueState
from embedq.clock import VirtualClock
from embedq.errors import InvalidOption, UnknownMessage
from embedq.lifecycle import Outcome, Reason
from embedq.message import ErrorInfo, draft


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture(params=["memory", "file"])
def desk(request, clock: VirtualClock, tmp_path):
    path = ":memory:" if request.param == "memory" else tmp_path / "q.db"
    with open_engine(path, clock=clock, upkeep=False) as opened:
        yield opened


@pytest.fixture
def queue(desk: Desk) -> QueueState:
    return desk.queue("orders")


@pytest.fixture
def group(desk: Desk, queue: QueueState) -> GroupState:
    return desk.group(queue)


@pytest.fixture
def dead(desk: Desk, queue: QueueState) -> DeadLetters:
    return DeadLetters(desk, queue)


def kill(desk: Desk, group: GroupState, body: bytes, **how: object) -> str:
    """Put a message and reject it; return its id."""
    (receipt,) = desk.put_drafts(group.queue, [draft(body, headers={"token": "s3cret"})])
    (lease,) = desk.claim(group)
    rejected = Rejected(error=ErrorInfo("app.Broken", "password=s3cret", "line 1"), by="worker")
    for name, value in how.items():
        object.__setattr__(rejected, name, value)
    desk.settle([(lease, rejected)])
    return receipt.id


def test_a_letter_has_the_message_and_every_attempt(
    desk: Desk, queue: QueueState, group: GroupState, dead: DeadLetters, clock: VirtualClock
) -> None:
    (receipt,) = desk.put_drafts(queue, [draft(b"body", headers={"a": "b"}, max_attempts=2)])
    for number in range(2):
        (lease,) = desk.claim(group)
        clock.advance(1)
        desk.settle([(lease, Failed(ErrorInfo("E", f"try {number}")))])
    (letter,) = dead.list()
    assert (letter.id, letter.body, letter.headers) == (receipt.id, b"body", {"a": "b"})
    assert (letter.reason, letter.group, letter.moved_by) == ("max_attempts", "default", "host")
    assert [(a.attempt, a.outcome, a.error.message) for a in letter.attempts if a.error] == [
        (1, Outcome.FAILED, "try 0"),
        (2, Outcome.FAILED, "try 1"),
    ]
    assert all(a.ended_ms == a.started_ms + 1000 for a in letter.attempts if a.ended_ms)
    assert dead.show(receipt.id) == letter
    assert len(dead) == 1


def test_filters_and_paging(
    desk: Desk, queue: QueueState, group: GroupState, dead: DeadLetters, clock: VirtualClock
) -> None:
    audit = desk.group(queue, "audit", "end")
    old = kill(desk, group, b"old")
    clock.advance(3600)
    middle = datetime.fromtimestamp(clock.time(), UTC)
    new = kill(desk, group, b"new", reason=Reason.AGE)
    other = kill(desk, audit, b"x", error=ErrorInfo("app.Other", "no"))
    assert [letter.id for letter in dead.list(since="30m")] == [new, *dead_of(dead, "audit")]
    assert [letter.id for letter in dead.list(since=middle, reason="age")] == [new]
    assert [letter.id for letter in dead.list(group="default")] == [old, new]
    assert [letter.id for letter in dead.list(error="Broken", reason=Reason.REJECTED)] == [old]
    assert dead.list(group="nobody") == []
    first = dead.list(limit=1)
    rest = dead.list(after=first[0].number)
    assert [letter.id for letter in first + rest] == [letter.id for letter in dead.list()]
    assert other


def dead_of(dead: DeadLetters, group: str) -> list[str]:
    return [letter.id for letter in dead.list(group=group)]


def test_one_letter_is_put_again_with_its_origin(
    desk: Desk, queue: QueueState, group: GroupState, dead: DeadLetters
) -> None:
    first, second = kill(desk, group, b"one"), kill(desk, group, b"two")
    (receipt,) = dead.redrive(second)
    (lease,) = desk.claim(group)
    assert (lease.message.body, lease.attempt, lease.seq) == (b"two", 1, receipt.seq)
    assert [letter.id for letter in dead.list()] == [first]
    assert (queue.dead, queue.stored) == (1, 1)
    with pytest.raises(UnknownMessage, match="no dead letter"):
        dead.redrive(first, second)
    assert queue.dead == 1
    desk.settle([(lease, Rejected())])
    again = dead.list()[-1]
    assert again.headers == {"token": "s3cret", "redriven-from": second}


def test_all_that_fit_are_put_again_and_nothing_twice(
    desk: Desk, queue: QueueState, group: GroupState, dead: DeadLetters
) -> None:
    count = 2 * CHUNK + 50
    desk.put_many(queue, [b"%d" % n for n in range(count)])
    leases = desk.claim(group, count)
    desk.settle([(lease, Rejected(reason=_reason(lease.seq))) for lease in leases])
    seen: list[tuple[int, int]] = []
    moved = dead.redrive(reason="age", progress=lambda done, total: seen.append((done, total)))
    assert len(moved) == count // 2
    assert seen[-1] == (count // 2, count // 2)
    assert (queue.dead, queue.stored) == (count // 2, count // 2)
    bodies = sorted(int(lease.message.body) for lease in desk.claim(group, count))
    assert bodies == sorted(lease.seq - 1 for lease in leases if lease.seq % 2)


def _reason(seq: int) -> Reason:
    return Reason.AGE if seq % 2 else Reason.REJECTED


def test_an_interrupted_redrive_goes_on_where_it_was(
    desk: Desk, queue: QueueState, group: GroupState, dead: DeadLetters
) -> None:
    count = 3 * CHUNK
    desk.put_many(queue, [b"%d" % n for n in range(count)])
    desk.settle([(lease, Rejected()) for lease in desk.claim(group, count)])

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dead.redrive(progress=stop)
    assert (queue.dead, queue.stored) == (count - CHUNK, CHUNK)
    assert len(dead.redrive(limit=10)) == 10
    assert len(dead.redrive()) == count - CHUNK - 10
    bodies = [int(lease.message.body) for lease in desk.claim(group, count)]
    assert sorted(bodies) == list(range(count))
    assert desk.events.count("redriven", "orders") == count


def test_letters_are_purged_by_id_and_by_filter(
    desk: Desk, queue: QueueState, group: GroupState, dead: DeadLetters
) -> None:
    ids = [kill(desk, group, b"x") for _ in range(5)]
    kill(desk, group, b"y", reason=Reason.AGE)
    assert dead.purge(ids[0], ids[1]) == 2
    assert dead.purge(reason="rejected") == 3
    assert (len(dead), len(dead.list())) == (1, 1)
    assert dead.purge() == 1
    assert queue.dead == 0


def test_secrets_are_hidden_when_stored_and_when_shown(
    desk: Desk, queue: QueueState, group: GroupState, dead: DeadLetters
) -> None:
    seen = kill(desk, group, b"x")
    desk.redact = lambda text: text.replace("s3cret", "***")
    hidden = kill(desk, group, b"x")
    for each in (seen, hidden):
        letter = dead.show(each)
        assert letter.headers == {"token": "***"}
        assert [a.error.message for a in letter.attempts if a.error] == ["password=***"]
    desk.redact = None
    assert b"s3cret" in (desk.store.dead(queue.id, 0, 9)[0].attempts or b"")
    assert b"s3cret" not in (desk.store.dead(queue.id, 0, 9)[1].attempts or b"")


def test_a_redact_function_that_fails_shows_nothing(
    desk: Desk, group: GroupState, dead: DeadLetters, caplog
) -> None:
    kill(desk, group, b"x")
    desk.redact = lambda text: str(1 / 0)
    (letter,) = dead.list()
    assert "s3cret" not in repr(letter.headers) + repr(letter.attempts)
    assert "redact= function failed" in caplog.text


def test_wrong_filters_are_named(desk: Desk, dead: DeadLetters) -> None:
    with pytest.raises(InvalidOption, match="reason='bored'"):
        dead.list(reason="bored")
    with pytest.raises(InvalidOption, match="limit=0"):
        dead.list(limit=0)
    with pytest.raises(InvalidOption, match="since"):
        dead.purge(since="yesterday")
    with pytest.raises(UnknownMessage):
        dead.show("nonsense")


def test_a_letter_stays_until_somebody_removes_it(
    desk: Desk, group: GroupState, dead: DeadLetters, clock: VirtualClock
) -> None:
    ids = [kill(desk, group, b"x"), kill(desk, group, b"y", reason=Reason.EXPIRED)]
    for _ in range(20):
        clock.advance(365 * 24 * 3600.0)
        desk.upkeep.round()
    assert [letter.id for letter in dead.list()] == ids
