"""Theme: what is staged is no message until its batch is published, wholly and at once."""

from __future__ import annotations

import pytest

from embedq.errors import StageLost
from embedq.policy import QueuePolicy
from embedq.storage.ops import DeclareGroup, DeclareQueue, PutPlain
from embedq.storage.staged import (
    ForgetSinks,
    Fresh,
    Part,
    PlainChunk,
    Publish,
    RowChunk,
    SinkRow,
    Stage,
    StagedRow,
    StageRow,
    Unstage,
    encode_chunk,
)
from tests.conformance.scenario import PUT_AT, Scenario, Theme, checksum

NOW = PUT_AT + 500
SINK = "shop"


def plain(*bodies: bytes) -> bytes:
    items: list[int | bytes] = []
    for body in bodies:
        items += (checksum(body), body)
    return encode_chunk(PlainChunk(0, items))


def wide(body: bytes, **columns: object) -> StagedRow:
    said_nothing = dict.fromkeys(
        ("due", "delay", "expires", "key", "max_attempts", "headers"), None
    )
    given = {"kind": 0, "crc": checksum(body), "priority": 0, **said_nothing, **columns}
    return StagedRow(**given, body=body)  # type: ignore[arg-type]


def rows(*wanted: StagedRow) -> bytes:
    return encode_chunk(RowChunk(list(wanted)))


def stage(
    queue: int, token: str, number: int, chunk: bytes, messages: int, sink: str = SINK
) -> Stage:
    return Stage(queue, sink, token, number, messages, PUT_AT, chunk)


def publish(queue: int, *parts: Part, batch: int = 0, sink: str = SINK, now: int = NOW) -> Publish:
    messages = sum(part.messages for part in parts)
    return Publish(SinkRow(queue, sink, batch, messages, now, now + 100), parts, now)


class Staging(Theme):
    def test_what_is_staged_is_no_message(self, scene: Scenario) -> None:
        queue = scene.queue()
        chunk = plain(b"a", b"b")
        scene.do(stage(queue, "t", 0, chunk, 2))
        assert scene.store.range(queue, 0, 9) == []
        assert scene.store.last_seq == 0
        found = [StageRow(SINK, "t", 0, queue, 2, len(chunk), PUT_AT)]
        assert scene.store.staged() == scene.store.staged(SINK) == found
        assert scene.store.staged("other") == []

    def test_a_chunk_that_is_staged_again_stays_as_it_was(self, scene: Scenario) -> None:
        queue = scene.queue()
        scene.do(stage(queue, "t", 0, plain(b"first"), 1))
        scene.do(stage(queue, "t", 0, plain(b"second"), 1))
        scene.do(publish(queue, Part("t", 1, 1)))
        assert [m.body for m in scene.store.range(queue, 0, 9)] == [b"first"]

    def test_a_batch_is_put_in_the_order_of_its_parts_and_chunks(self, scene: Scenario) -> None:
        queue = scene.queue()
        scene.put(queue)
        scene.do(stage(queue, "x", 1, plain(b"x1"), 1))
        scene.do(stage(queue, "x", 0, plain(b"x0", b"x00"), 2))
        scene.do(stage(queue, "a", 0, plain(b"a0"), 1))
        done = scene.do(publish(queue, Part("x", 2, 3), Part("a", 1, 1)))
        found = scene.store.range(queue, 1, 9)
        assert [m.body for m in found] == [b"x0", b"x00", b"x1", b"a0"]
        assert {m.put_at for m in found} == {NOW}
        assert (done.stored, done.last, done.runs) == (4, 5, [(2, 2), (4, 1), (5, 1)])
        assert scene.store.staged() == []
        assert scene.put(queue) == [6]

    def test_the_newest_batch_of_a_sink_is_remembered_for_each_queue(
        self, scene: Scenario
    ) -> None:
        one, other = scene.queue(), scene.queue("other")
        scene.do(publish(one, batch=7))
        scene.do(publish(one, batch=8, now=NOW + 1))
        scene.do(publish(other, batch=3))
        assert scene.store.sink(one, SINK) == SinkRow(one, SINK, 8, 0, NOW + 1, NOW + 101)
        assert scene.store.sink(other, SINK) == SinkRow(other, SINK, 3, 0, NOW, NOW + 100)
        assert scene.store.sink(one, "unknown") is None

    def test_everything_a_message_may_have_is_published_with_it(self, scene: Scenario) -> None:
        queue = scene.queue()
        chunk = rows(
            wide(b"0", priority=7, headers=b"\x81\xa1a\xa1b"),
            wide(b"1", delay=50),
            wide(b"2", due=NOW + 900, expires=NOW + 1000),
            wide(b"3", due=NOW - 1),
            wide(b"4", key="k", max_attempts=9, kind=1),
        )
        scene.do(stage(queue, "t", 0, chunk, 5))
        done = scene.do(publish(queue, Part("t", 1, 5)))
        found = {m.body: m for m in scene.store.range(queue, 0, 9)}
        assert (found[b"0"].priority, found[b"0"].headers) == (7, b"\x81\xa1a\xa1b")
        assert [found[body].due for body in (b"1", b"2", b"3")] == [NOW + 50, NOW + 900, None]
        assert found[b"2"].expires == NOW + 1000
        assert (found[b"4"].key, found[b"4"].max_attempts, found[b"4"].kind) == ("k", 9, 1)
        assert done.others[0] == Fresh(1, 7, None, None, None)
        assert [fresh.seq for fresh in done.others] == [1, 2, 3, 4, 5]

    def test_a_dedup_key_counts_from_the_publishing_on(self, scene: Scenario) -> None:
        queue = scene.queue()
        scene.put_row(queue, b"known", dedup_key="a", dedup_until=NOW + 1)
        chunk = rows(
            wide(b"0", dedup_key="a", window=10),
            wide(b"1", dedup_key="b", window=10),
            wide(b"2", dedup_key="b", window=10),
        )
        scene.do(stage(queue, "t", 0, chunk, 3))
        done = scene.do(publish(queue, Part("t", 1, 3)))
        assert (done.stored, done.last) == (1, 2)
        assert [m.body for m in scene.store.range(queue, 0, 9)] == [b"known", b"1"]
        again = [wide(b"3", dedup_key="b").at(NOW + 9), wide(b"4", dedup_key="b").at(NOW + 10)]
        assert scene.put_rows(queue, again[0], now=NOW + 9) == [2]
        assert scene.put_rows(queue, again[1], now=NOW + 10) == [3]

    def test_a_publishing_removes_all_that_its_sink_has_staged_and_nothing_else(
        self, scene: Scenario
    ) -> None:
        queue = scene.queue()
        for token in ("won", "lost"):
            scene.do(stage(queue, token, 0, plain(token.encode()), 1))
        scene.do(stage(queue, "t", 0, plain(b"x"), 1, sink="other"))
        scene.do(publish(queue, Part("won", 1, 1)))
        assert [m.body for m in scene.store.range(queue, 0, 9)] == [b"won"]
        assert [row.sink for row in scene.store.staged()] == ["other"]

    def test_a_batch_with_a_chunk_that_is_gone_changes_nothing(self, scene: Scenario) -> None:
        queue = scene.queue()
        scene.do(stage(queue, "t", 0, plain(b"x"), 1))
        before = scene.store.staged()
        with pytest.raises(StageLost, match="chunk 1"):
            scene.commit(PutPlain(queue, NOW, 0, [0, b""], 1), publish(queue, Part("t", 2, 2)))
        assert scene.store.range(queue, 0, 9) == []
        assert scene.store.staged() == before
        assert scene.store.sink(queue, SINK) is None

    def test_a_chunk_that_is_none_is_not_published(self, scene: Scenario) -> None:
        queue = scene.queue()
        scene.do(stage(queue, "t", 0, b"\x93\x09\x00\x00", 1))
        with pytest.raises(StageLost, match="damaged"):
            scene.commit(publish(queue, Part("t", 1, 1)))
        assert scene.store.range(queue, 0, 9) == []

    def test_staged_chunks_can_be_removed_by_token_or_all(self, scene: Scenario) -> None:
        queue = scene.queue()
        for token in ("a", "b", "c"):
            for number in (0, 1):
                scene.do(stage(queue, token, number, plain(b"x"), 1))
        assert scene.do(Unstage(SINK, ["b", "nobody"])).removed == 2
        assert [row.token for row in scene.store.staged()] == ["a", "a", "c", "c"]
        assert scene.do(Unstage("other")).removed == 0
        assert scene.do(Unstage(SINK)).removed == 4
        assert scene.store.staged() == []

    def test_sinks_are_forgotten_when_their_time_has_come(self, scene: Scenario) -> None:
        queue = scene.queue()
        scene.do(publish(queue, sink="early"))
        scene.do(publish(queue, sink="late", now=NOW + 1))
        assert scene.do(ForgetSinks(NOW + 100)).removed == 1
        assert scene.store.sink(queue, "early") is None
        assert scene.store.sink(queue, "late") is not None

    def test_what_is_staged_and_published_outlives_a_crash(self, scene: Scenario) -> None:
        declared = scene.do(DeclareQueue("orders", QueuePolicy())).row
        assert declared is not None
        queue = declared.id
        scene.do(DeclareGroup(queue, "default", 0))
        scene.do(stage(queue, "t", 0, plain(b"a"), 1))
        scene.reopen()
        assert [row.token for row in scene.store.staged()] == ["t"]
        done = scene.do(publish(queue, Part("t", 1, 1), batch=4))
        scene.reopen()
        assert [m.seq for m in scene.store.range(queue, 0, 9)] == [done.last]
        known = scene.store.sink(queue, SINK)
        assert known is not None
        assert known.batch == 4
