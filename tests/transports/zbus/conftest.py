"""A broker with a zbus listener, and clients of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from embedq import Broker
from embedq_transports.zbus import ZBUS
from tests.transports.zbus.ends import Http, Ws

URL = "zbus://127.0.0.1:0"


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(":memory:") as broker:
        yield broker


@pytest.fixture
def listener(broker):
    return broker.listen(URL, transport=ZBUS)


@pytest.fixture
def ends() -> Iterator[list[Http]]:
    ends: list[Http] = []
    yield ends
    for end in ends:
        end.close()


@pytest.fixture
def http(listener, ends) -> Callable[[], Http]:
    def http() -> Http:
        ends.append(Http(listener))
        return ends[-1]

    return http


@pytest.fixture
def ws(listener, ends) -> Callable[[], Ws]:
    def ws() -> Ws:
        end = Ws(listener)
        ends.append(end)
        return end

    return ws
