"""`name_bytes` of a listener: where a protocol leaves the length of a name open, it bounds it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from embedq import Broker
from embedq.net import NetLimits
from tests.conformance.transport_suite import eventually
from tests.interop.mmqp_client import Mack
from tests.interop.phpmq_client import Died, PhpmqClient

MOST = 10


def put_phpmq(address: Any, queue: str) -> None:
    client = PhpmqClient(address, timeout=30)
    try:
        client.publish(queue.encode(), b"x")
        client.receipt()
    except (OSError, EOFError, Died):
        return  # refused: the test looks at what is stored
    finally:
        client.close()


def put_mmqp(address: Any, queue: str) -> None:
    Mack(address).send(queue, "x", "main")


@pytest.mark.parametrize(
    ("url", "put"),
    [
        ("phpmq://127.0.0.1:0?receipts=1", put_phpmq),
        ("mmqp://127.0.0.1:0?create=1", put_mmqp),
    ],
    ids=["phpmq", "mmqp"],
)
def test_a_name_of_exactly_the_limit_counts_and_a_longer_one_does_not(
    url: str, put: Callable[[Any, str], None]
) -> None:
    with Broker(":memory:") as broker:
        listener = broker.listen(url, limits=NetLimits(name_bytes=MOST))
        put(listener.address, "n" * (MOST + 1))
        put(listener.address, "n" * MOST)
        eventually(lambda: not listener.stats.connections)
        assert [queue.name for queue in broker.stats().queues] == ["n" * MOST]
