"""What a transport asks of groups: whether one is there, and its removal."""

from __future__ import annotations

import threading

import pytest

from embedq import Broker
from embedq.errors import GroupNotFound, NotAllowed, QueueNotFound
from embedq.net import Connection, Identity, Session, Site
from tests.conformance.transport_suite import PATIENCE_S, dial


class Asked(Session):
    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def received(self, data: bytes) -> None:
        """Nothing: the tests ask."""


class Asking:
    """A transport whose sessions the tests use."""

    name = "asking"
    default_port = 7778
    has_login = False

    def __init__(self) -> None:
        self.sessions: list[Asked] = []
        self.came = threading.Event()

    def open(self, _site: Site):
        def make(connection: Connection) -> Session:
            self.sessions.append(Asked(connection))
            self.came.set()
            return self.sessions[-1]

        return make

    def ask(self, call) -> object:
        """Return what `then` got; `call` gets the access and `then`, on the loop."""
        connection = self.sessions[0].connection
        answers: list[object] = []
        there = threading.Event()

        def then(answer: object) -> None:
            answers.append(answer)
            there.set()

        connection.site.network.post(lambda: call(connection, then))
        assert there.wait(PATIENCE_S)
        return answers[0]


@pytest.fixture
def broker():
    with Broker(":memory:") as broker:
        yield broker


@pytest.fixture
def asking(broker):
    transport = Asking()
    listener = broker.listen("asking://127.0.0.1:0", transport=transport)
    with dial(listener):
        assert transport.came.wait(PATIENCE_S)
        yield transport


def test_a_group_that_is_there_is_found_and_one_that_is_not_is_not_made(broker, asking):
    queue = broker.queue("q")
    queue.put(b"x")

    def find(group: str, of: str = "q") -> object:
        return asking.ask(lambda client, then: client.broker.find(of, group, then))

    assert isinstance(find("g"), GroupNotFound)
    assert isinstance(find("g", "other"), QueueNotFound)
    assert [each.name for each in queue.groups] == []
    queue.group("g", start="auto")
    assert find("g") is None
    assert find("g") is None
    assert [each.name for each in queue.groups] == ["g"]


def test_a_group_that_was_removed_can_be_made_anew_at_once(broker, asking):
    queue = broker.queue("q")
    queue.group("keeper", start="auto")
    for _ in range(3):
        queue.group("g", start="auto")
        assert asking.ask(lambda client, then: client.broker.find("q", "g", then)) is None
        queue.put(b"x")
        taken = asking.ask(lambda client, then: client.broker.take("q", 9, then, group="g"))
        assert isinstance(taken, list)
        assert [each.body for each in taken] == [b"x"]
        removed = asking.ask(lambda client, then: client.broker.remove_group("q", "g", then))
        assert removed is None
        found = asking.ask(lambda client, then: client.broker.find("q", "g", then))
        assert isinstance(found, GroupNotFound)


def test_the_subscriptions_of_a_group_that_is_removed_fail(broker, asking):
    queue = broker.queue("q")
    queue.group("g", start="auto")

    def subscribe(client, then) -> None:
        client.broker.subscribe("q", lambda _delivery: None, group="g", failed=then)
        client.broker.remove_group("q", "g")

    assert isinstance(asking.ask(subscribe), GroupNotFound)


def test_who_may_not_consume_does_not_learn_what_is_there(broker, asking):
    broker.queue("q").group("g", start="auto")

    def find(client, then) -> None:
        client.identity = Identity("put only", frozenset({"put"}))
        client.broker.find("q", "g", then)

    def remove(client, then) -> None:
        client.broker.remove_group("q", "g", then)

    assert isinstance(asking.ask(find), NotAllowed)
    assert isinstance(asking.ask(remove), NotAllowed)
    assert [each.name for each in broker.queue("q").groups] == ["g"]
