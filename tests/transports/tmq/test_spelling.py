"""Channels are the same in any case, however others have spelled their queues."""

from __future__ import annotations

import pytest


@pytest.fixture
def queues(broker):
    return [broker.queue(name, bytes) for name in ("Ch/1", "ch/2", "CH/1")]


def test_each_queue_of_a_channel_keeps_the_name_under_which_it_was_made(queues, connect):
    client = connect("c")
    client.put("cH", 1, b"a")
    client.put("cH", 2, b"b")
    assert [queue.stats().length for queue in queues] == [1, 1, 0]
    assert client.join("CH") == 200
    assert {client.message().body for _ in range(2)} == {b"a", b"b"}
    queues[1].put(b"c")
    assert client.message().body == b"c"


def test_what_changes_or_ends_such_a_queue_changes_or_ends_that_one(broker, queues, connect):
    client = connect("c")
    assert client.update("ch", 2, message_limit=5) == 200
    assert broker.queue("ch/2").policy.max_length == 5
    client.put("ch", 2, b"x")
    assert client.command(611, "CH", (2).to_bytes(2, "little")) == 200
    assert queues[1].stats().length == 0
    assert {queue.name for queue in broker.queues} == {"Ch/1", "ch/2", "CH/1", "@tmq"}
