"""A broker whose clock stands still, and a listener of the protocol of the guide."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from embedq import Broker
from embedq.app.listeners import BrokerListener
from embedq.clock import VirtualClock
from embedq.net import NetLimits
from tests.net.lines import LINES


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def broker(tmp_path, clock):
    with Broker(tmp_path / "q.db", clock=clock) as broker:
        broker.queue("q")
        yield broker


@pytest.fixture
def listen(broker) -> Callable[..., BrokerListener]:
    """Listen; words that are limits become NetLimits."""

    def listen(url: str = "lines://127.0.0.1:0", **given: object) -> BrokerListener:
        names = NetLimits.__dataclass_fields__.keys() & given.keys()
        limits = {name: given.pop(name) for name in names}
        if limits:
            given["limits"] = NetLimits(**limits)  # type: ignore[arg-type]
        return broker.listen(url, transport=LINES, **given)

    return listen
