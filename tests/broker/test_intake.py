"""Batches that are too large are refused before anything is stored."""

from dataclasses import replace
from pathlib import Path

import pytest

from embedq.broker.engine import Engine
from embedq.broker.host import open_engine
from embedq.errors import LimitExceeded
from embedq.limits import LIMITS
from embedq.message import Draft

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
