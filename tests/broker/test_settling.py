"""Settling the same delivery twice in one call counts once."""

from collections.abc import Callable, Sequence

import pytest

from embedq.broker.engine import Engine
from embedq.broker.host import open_engine
from embedq.broker.leases import Lease

Settle = Callable[[Engine, Sequence[Lease]], object]


def ack(engine: Engine, leases: Sequence[Lease]) -> None:
    engine.ack(*leases)


def release(engine: Engine, leases: Sequence[Lease]) -> None:
    engine.release(leases)


@pytest.mark.parametrize(("settle", "again"), [(ack, 0), (release, 1)])
def test_a_delivery_named_twice_is_settled_once(settle: Settle, again: int) -> None:
    with open_engine(":memory:", upkeep=False) as engine:
        queue = engine.queue("orders")
        group, other = engine.group(queue), engine.group(queue, "audit", "beginning")
        engine.put_many(queue, [b"one", b"two"])
        (lease,) = engine.claim(group, 1)
        settle(engine, [lease, lease])
        assert group.settled == 1 - again
        assert (group.waiting, other.waiting) == (1 + again, 2)
        assert len(engine.claim(group, 10)) == 1 + again
