"""Batches of a sink: staged by many, published once, wholly, with everything they ask for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from embedq.broker.chunks import PlainBodies, Wish, Wishes, encode
from embedq.broker.desk import Desk
from embedq.broker.host import open_engine
from embedq.broker.staging import ONCE, Published, sweep
from embedq.broker.state import QueueState
from embedq.clock import VirtualClock
from embedq.errors import (
    InvalidName,
    InvalidOption,
    InvalidPayload,
    LimitExceeded,
    QueueFull,
    QueueNotFound,
    StageLost,
    StorageError,
)
from embedq.limits import LIMITS
from embedq.policy import QueuePolicy
from embedq.storage.staged import Part

SOON = 20.0


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def desk(clock: VirtualClock) -> Iterator[Desk]:
    with open_engine(":memory:", clock=clock, upkeep=False) as opened:
        yield opened


@pytest.fixture
def queue(desk: Desk) -> QueueState:
    return desk.queue("orders")


def stage(desk: Desk, *bodies: bytes, token: str = "t", number: int = 0, sink: str = "s") -> Part:
    desk.office.stage_put("orders", sink, token, number, encode(PlainBodies(0, list(bodies))))
    return Part(token, number + 1, len(bodies))


def wish(desk: Desk, *rows: Wish, token: str = "t") -> Part:
    desk.office.stage_put("orders", "s", token, 0, encode(Wishes(list(rows))))
    return Part(token, 1, len(rows))


def publish(desk: Desk, *parts: Part, batch: int = 0, older: str = "error") -> Published:
    return desk.office.stage_publish("orders", "s", batch, list(parts), older)


def bodies_of(desk: Desk, queue: QueueState) -> list[bytes]:
    return [lease.message.body for lease in desk.claim(desk.group(queue), 99)]


# ------------------------------------------------------------------------- publishing


def test_a_published_batch_is_delivered_as_it_was_staged(desk: Desk, queue: QueueState) -> None:
    desk.group(queue)
    desk.put(queue, b"before")
    parts = [stage(desk, b"a", b"b"), stage(desk, b"c", token="u")]
    assert bodies_of(desk, queue) == [b"before"]
    assert publish(desk, *parts) == Published(repeated=False, rows=3, stored=3)
    desk.put(queue, b"after")
    assert bodies_of(desk, queue) == [b"a", b"b", b"c", b"after"]
    assert (queue.stored, queue.puts) == (5, 5)


def test_a_batch_that_comes_again_adds_nothing(desk: Desk, queue: QueueState) -> None:
    publish(desk, stage(desk, b"a"))
    again = publish(desk, stage(desk, b"a", token="of the second run"))
    assert again == Published(repeated=True, rows=1, stored=0)
    assert bodies_of(desk, queue) == [b"a"]
    assert desk.store.staged() == []
    assert publish(desk, stage(desk, b"b"), batch=1).stored == 1


def test_the_answer_to_a_publishing_can_be_asked_for_again(desk: Desk, queue: QueueState) -> None:
    part = stage(desk, b"a")
    publish(desk, part)
    assert publish(desk, part).repeated
    assert queue.stored == 1


def test_a_batch_without_messages_counts_as_published(desk: Desk, queue: QueueState) -> None:
    assert publish(desk, batch=4) == Published(repeated=False, rows=0, stored=0)
    assert publish(desk, batch=4).repeated
    assert queue.stored == 0


def test_of_two_who_publish_the_same_batch_at_once_one_adds_it(
    desk: Desk, queue: QueueState
) -> None:
    parts = [stage(desk, b"a")]
    done: list[Published | StageLost] = []

    def run() -> None:
        try:
            done.append(publish(desk, *parts))
        except StageLost as error:  # it had looked before the other one published
            done.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON)
    assert len(done) == 4
    assert sum(isinstance(each, Published) and not each.repeated for each in done) == 1
    assert queue.stored == 1


@pytest.mark.parametrize("batch", [0, 4])
def test_an_older_batch_is_refused_or_left_out(desk: Desk, queue: QueueState, batch: int) -> None:
    publish(desk, stage(desk, b"a"), batch=5)
    with pytest.raises(InvalidOption, match=rf"at batch 5 already, this is {batch}") as caught:
        publish(desk, stage(desk, b"b"), batch=batch)
    assert "new sinkId" in str(caught.value)
    assert publish(desk, stage(desk, b"b"), batch=batch, older="skip").repeated
    assert bodies_of(desk, queue) == [b"a"]


def test_the_same_number_for_another_batch_is_noticed_by_its_messages(
    desk: Desk, queue: QueueState
) -> None:
    publish(desk, stage(desk, b"a"))
    with pytest.raises(InvalidOption, match="batch 0 with 1 messages, and now it has 2"):
        publish(desk, stage(desk, b"b", b"c"))
    assert queue.stored == 1


def test_sinks_and_queues_count_their_batches_for_themselves(
    desk: Desk, queue: QueueState
) -> None:
    desk.queue("other")
    publish(desk, stage(desk, b"a"))
    office = desk.office
    part = stage(desk, b"b", sink="another")
    assert office.stage_publish("orders", "another", 0, [part]).stored == 1
    chunk = encode(PlainBodies(0, [b"c"]))
    office.stage_put("other", "s", "t", 0, chunk)
    assert office.stage_publish("other", "s", 0, [Part("t", 1, 1)]).stored == 1
    assert queue.stored == 2


def test_the_newest_batch_of_a_sink_can_be_asked_for(desk: Desk, queue: QueueState) -> None:
    ask = desk.office.newest_batch
    assert ask("orders", "s") is None
    publish(desk, stage(desk, b"a"), batch=7)
    desk.queue("other")
    assert (ask("orders", "s"), ask("orders", "another"), ask("other", "s")) == (7, None, None)


def test_what_was_staged_for_another_queue_is_not_published_here(
    desk: Desk, queue: QueueState
) -> None:
    desk.queue("other")
    part = stage(desk, b"a")
    with pytest.raises(StageLost, match="0 of the 1 chunks"):
        desk.office.stage_publish("other", "s", 0, [part])
    assert queue.stored == 0


@pytest.mark.parametrize("part", [Part("t", 2, 1), Part("t", 1, 2), Part("u", 1, 1)])
def test_a_batch_that_is_not_all_there_is_not_published(
    desk: Desk, queue: QueueState, part: Part
) -> None:
    stage(desk, b"a")
    with pytest.raises(StageLost, match="nothing was published"):
        publish(desk, part)
    assert queue.stored == 0
    assert publish(desk, Part("t", 1, 1)).stored == 1


# ------------------------------------------------------------------ what messages ask for


def test_priorities_keys_and_headers_are_kept(desk: Desk, queue: QueueState) -> None:
    group = desk.group(queue)
    desk.claim(group)  # memory has looked: what comes is offered to it
    rows = [
        Wish(b"low"),
        Wish(b"high", priority=9, headers={"a": "b"}),
        Wish(b"k1", ordering_key="k"),
        Wish(b"k2", ordering_key="k", kind=1),
    ]
    assert publish(desk, wish(desk, *rows)).stored == 4
    leases = desk.claim(group, 9)
    assert [lease.message.body for lease in leases] == [b"high", b"low", b"k1"]
    assert leases[0].message.headers == b"\x81\xa1a\xa1b"
    desk.ack(*leases)
    (last,) = desk.claim(group, 9)
    assert (last.message.body, last.message.kind) == (b"k2", 1)


def test_plain_and_other_chunks_of_a_batch_come_in_order(desk: Desk, queue: QueueState) -> None:
    group = desk.group(queue)
    desk.claim(group)
    first = wish(desk, Wish(b"1", ordering_key="k"), Wish(b"2"))
    publish(desk, first, stage(desk, b"3", token="u"))
    assert bodies_of(desk, queue) == [b"1", b"2", b"3"]


def test_a_delay_counts_from_the_publishing_on(
    desk: Desk, queue: QueueState, clock: VirtualClock
) -> None:
    group = desk.group(queue)
    desk.claim(group)
    now = desk.now_ms()
    part = wish(desk, Wish(b"delayed", delay=5_000), Wish(b"due", due=now + 61_000))
    clock.advance(60)
    publish(desk, part)
    assert desk.claim(group, 9) == []
    clock.advance(1)
    assert [lease.message.body for lease in desk.claim(group, 9)] == [b"due"]
    clock.advance(4)
    assert [lease.message.body for lease in desk.claim(group, 9)] == [b"delayed"]


def test_dedup_keys_hold_between_batches_and_puts(desk: Desk, queue: QueueState) -> None:
    first = publish(desk, wish(desk, Wish(b"1", dedup_key="a"), Wish(b"2", dedup_key="a")))
    assert first == Published(repeated=False, rows=2, stored=1)
    again = publish(desk, wish(desk, Wish(b"3", dedup_key="a")), batch=1)
    assert again == Published(repeated=False, rows=1, stored=0)
    assert bodies_of(desk, queue) == [b"1"]


def test_whoever_waits_gets_what_is_published(desk: Desk, queue: QueueState) -> None:
    group = desk.group(queue)
    got: list[bytes] = []

    def wait() -> None:
        got.extend(lease.message.body for lease in desk.wait_claim(group, 2, timeout=SOON))

    waiting = threading.Thread(target=wait)
    waiting.start()
    publish(desk, stage(desk, b"a", b"b"))
    waiting.join(SOON)
    assert got == [b"a", b"b"]


# ----------------------------------------------------------------------------- at once


def test_a_chunk_is_put_at_once_and_once(desk: Desk, queue: QueueState) -> None:
    office = desk.office
    for number in (0, 0, 1, 1, 0):
        chunk = encode(PlainBodies(0, [f"{number}".encode()] * 2))
        told = office.put_through("orders", "t", number, chunk)
        assert told.rows == 2
    assert bodies_of(desk, queue) == [b"0", b"0", b"1", b"1"]
    assert desk.store.staged() == []
    assert told.repeated


def test_a_chunk_that_has_no_room_is_refused(desk: Desk) -> None:
    queue = desk.queue("orders", QueuePolicy(max_length=1).changed(when_full="reject"))
    chunk = encode(PlainBodies(0, [b"a"]))
    assert not desk.office.put_through("orders", "t", 0, chunk).repeated
    with pytest.raises(QueueFull):
        desk.office.put_through("orders", "t", 1, chunk)
    with pytest.raises(QueueFull, match="max_length=1"):
        desk.office.put_through("orders", "t", 1, encode(PlainBodies(0, [b"a", b"b"])))
    desk.ack(*desk.claim(desk.group(queue)))
    assert not desk.office.put_through("orders", "t", 1, chunk).repeated


# ----------------------------------------------------------------------- bounds and limits


def test_a_full_queue_refuses_a_batch_before_anything_is_published(desk: Desk) -> None:
    queue = desk.queue("orders", QueuePolicy(max_length=3).changed(when_full="reject"))
    desk.put_many(queue, [b"x", b"y"])
    part = stage(desk, b"a", b"b")
    with pytest.raises(QueueFull):
        publish(desk, part)
    assert queue.stored == 2
    desk.ack(*desk.claim(desk.group(queue)))
    assert publish(desk, part).stored == 2
    assert publish(desk, part).repeated  # though there is no room for it


def test_a_batch_that_never_fits_says_so(desk: Desk) -> None:
    desk.queue("orders", QueuePolicy(max_length=1))
    with pytest.raises(QueueFull, match="more than max_length=1"):
        publish(desk, stage(desk, b"a", b"b"))


def test_a_queue_that_drops_its_oldest_makes_room_for_a_batch(desk: Desk) -> None:
    queue = desk.queue("orders", QueuePolicy(max_length=3).changed(when_full="drop_oldest"))
    desk.put_many(queue, [b"x", b"y", b"z"])
    publish(desk, stage(desk, b"a", b"b"))
    assert bodies_of(desk, queue) == [b"z", b"a", b"b"]
    assert desk.events.count("dropped", "orders") == 2


def test_a_batch_may_not_be_larger_than_its_limit(desk: Desk, queue: QueueState) -> None:
    desk.limits = replace(LIMITS, publish_bytes=500)
    parts = [stage(desk, b"x" * 300, token=token) for token in ("t", "u")]
    with pytest.raises(LimitExceeded, match="mode=direct") as caught:
        publish(desk, *parts)
    assert caught.value.details["limit"] == "publish_bytes"
    stage(desk, b"x" * 300, token="v")  # of an attempt that failed
    with pytest.raises(LimitExceeded, match="one batch"):
        stage(desk, b"x" * 300, token="w")
    assert queue.stored == 0


def test_all_that_is_staged_has_a_limit(desk: Desk, queue: QueueState) -> None:
    desk.limits = replace(LIMITS, stage_bytes=500)
    stage(desk, b"x" * 300, sink="one")
    with pytest.raises(LimitExceeded, match="stage_bytes=500"):
        stage(desk, b"x" * 300, sink="other")
    assert queue.stored == 0


@pytest.mark.parametrize(
    ("chunk", "error", "text"),
    [
        (b"\xc1", InvalidPayload, "no chunk of messages"),
        (encode([2, 0, []]), InvalidPayload, "no chunk of messages"),
        (encode([0, 0, ["text"]]), InvalidPayload, "no chunk of messages"),
        (encode(PlainBodies(999, [b"x"])), InvalidOption, "kind=999"),
        (encode(Wishes([Wish(b"x"), Wish(b"y", priority=99)])), InvalidOption, "row 1 .*priority"),
        (encode(Wishes([Wish(b"x", headers={"": "v"})])), InvalidName, "row 0 "),
        (encode(Wishes([Wish(b"x", delay=-1)])), InvalidOption, "row 0 .*delay"),
        (encode(Wishes([Wish(b"x", expires=1, due=2)])), InvalidOption, "row 0 .*expires"),
        (encode(PlainBodies(0, [b""] * 10_001)), LimitExceeded, "batch_messages"),
    ],
)
def test_a_host_believes_no_chunk_blindly(
    desk: Desk, queue: QueueState, chunk: bytes, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        desk.office.stage_put("orders", "s", "t", 0, chunk)
    assert desk.store.staged() == []
    assert queue.stored == 0


def test_wrong_arguments_are_named(desk: Desk, queue: QueueState) -> None:
    office, chunk = desk.office, encode(PlainBodies(0, [b"x"]))
    with pytest.raises(QueueNotFound):
        office.stage_put("nowhere", "s", "t", 0, chunk)
    with pytest.raises(InvalidName, match="sink"):
        office.stage_put("orders", "", "t", 0, chunk)
    with pytest.raises(InvalidOption, match="number=-1"):
        office.stage_put("orders", "s", "t", -1, chunk)
    with pytest.raises(InvalidOption, match="batch=-1"):
        office.stage_publish("orders", "s", -1, [])
    with pytest.raises(InvalidOption, match="older="):
        office.stage_publish("orders", "s", 0, [], "never")
    assert queue.stored == 0


# ----------------------------------------------------------------- what is never published


def test_what_a_task_staged_can_be_taken_back(desk: Desk, queue: QueueState) -> None:
    stage(desk, b"a")
    stage(desk, b"b", token="u")
    assert desk.office.stage_abort("s", ["t"]) == 1
    assert [row.token for row in desk.store.staged()] == ["u"]
    assert desk.office.stage_abort("s") == 1
    assert queue.stored == 0


def test_what_was_staged_long_ago_is_swept_and_told(
    desk: Desk, queue: QueueState, clock: VirtualClock
) -> None:
    stage(desk, b"a", b"b", token="old")
    clock.advance(LIMITS.stage_kept_s - 10)
    stage(desk, b"c", token="new")
    sweep(desk)
    assert len(desk.store.staged()) == 2
    clock.advance(11)
    desk.upkeep.round()
    assert [row.token for row in desk.store.staged()] == ["new"]
    assert desk.events.count("stage_swept", queue.name) == 1


def test_sinks_of_one_batch_are_forgotten_after_a_day(
    desk: Desk, queue: QueueState, clock: VirtualClock
) -> None:
    desk.office.stage_publish("orders", f"{ONCE}1", 0, [])
    publish(desk, stage(desk, b"a"))
    clock.advance(2 * 24 * 3600)
    desk.put(queue, b"x")
    desk.upkeep.round()
    desk.upkeep.round()
    assert not desk.office.stage_publish("orders", f"{ONCE}1", 0, []).repeated
    assert publish(desk, Part("t", 1, 1)).repeated


def test_a_failed_commit_leaves_the_stage_for_another_try(tmp_path: Path) -> None:
    with open_engine(tmp_path / "q.db", clock=VirtualClock(), upkeep=False) as desk:
        queue = desk.queue("orders")
        part = stage(desk, b"a")
        raw = desk.store.connection  # type: ignore[attr-defined]
        refuse = "BEFORE INSERT ON main.sink BEGIN SELECT raise(ABORT, 'no'); END"
        raw.execute(f"CREATE TEMP TRIGGER no {refuse}")
        with pytest.raises(StorageError, match=r"\bno\b"):
            publish(desk, part)
        assert (queue.stored, len(desk.store.staged())) == (0, 1)
        raw.execute("DROP TRIGGER no")
        assert publish(desk, part).stored == 1
        assert bodies_of(desk, queue) == [b"a"]
