"""Batches that are too large are refused before anything is stored; the rest can be checked."""

import zlib
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from embedq.broker.engine import Engine
from embedq.broker.host import open_engine
from embedq.broker.intake import checksum, row_of
from embedq.errors import LimitExceeded
from embedq.limits import LIMITS
from embedq.message import Draft, draft

SMALL = replace(LIMITS, batch_messages=3, batch_bytes=100, body_bytes=60)


@pytest.fixture
def engine(tmp_path: Path):
    with open_engine(tmp_path / "q.db", limits=SMALL, upkeep=False) as engine:
        yield engine


@pytest.mark.parametrize(
    ("bodies", "limit"),
    [
        ([b"a"] * 4, "batch_messages"),
        ([bytes(51)] * 2, "batch_bytes"),
        ([b"a", bytes(61)], "body_bytes"),
    ],
)
def test_a_batch_over_a_limit_names_it_and_stores_nothing(
    engine: Engine, bodies: list[bytes], limit: str
) -> None:
    queue = engine.queue("orders")
    for put in (
        lambda: engine.put_many(queue, bodies),
        lambda: engine.put_drafts(queue, [Draft(body) for body in bodies]),
    ):
        with pytest.raises(LimitExceeded, match=limit) as caught:
            put()
        assert "orders" in str(caught.value)
        assert engine.peek(queue) == []


def test_batches_at_the_limits_are_stored(engine: Engine) -> None:
    queue = engine.queue("orders")
    engine.put_many(queue, [b"a"] * 3)
    engine.put_many(queue, [bytes(50)] * 2)
    engine.put_drafts(queue, [Draft(bytes(60))])
    assert queue.stored == 6


def test_what_is_stored_of_a_draft_can_be_checked() -> None:
    headers = {"a": "1", "b": "2"}
    row = row_of(draft(b"body", 3, headers, priority=4, max_attempts=7), 1000)
    assert row.headers is not None
    assert msgspec.msgpack.decode(row.headers) == headers
    assert row.crc == zlib.crc32(row.headers + b"body") == checksum(row.headers, b"body")
    assert (row.kind, row.priority, row.max_attempts, row.body) == (3, 4, 7, b"body")
    plain = row_of(draft(b"body"), 1000)
    assert (plain.headers, plain.crc) == (None, zlib.crc32(b"body"))
    assert plain.crc == checksum(None, b"body")


@pytest.mark.parametrize(
    ("due", "stored"), [(None, None), (999, None), (1000, None), (1001, 1001)]
)
def test_a_time_that_has_passed_is_no_delay(due: int | None, stored: int | None) -> None:
    assert row_of(draft(b"", available_at_ms=due), 1000).due == stored


def test_a_dedup_window_begins_with_the_put() -> None:
    row = row_of(draft(b"", dedup_key="k", dedup_window_ms=500), 1000)
    assert (row.dedup_key, row.dedup_until) == ("k", 1500)
    assert row_of(draft(b""), 1000).dedup_until == 0
