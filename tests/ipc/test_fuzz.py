"""A raw socket sends whatever it likes: that costs the offender, and nothing else.

EMBEDQ_TEST_LONG=1 sends a hundred times as much.
"""

from __future__ import annotations

import logging
import os
import random
import secrets
from collections.abc import Iterator

import msgspec
import pytest
import zmq

from embedq.ipc import frames, verbs
from embedq.storage.rows import Row
from tests.ipc.conftest import Served
from tests.ipc.peer import Peer

MESSAGES = 1_000_000 if os.environ.get("EMBEDQ_TEST_LONG") else 10_000
#: A greeting is a commit: so many messages follow each.
_AFTER_HELLO = 40
_GOOD_EVERY = 500

#: What fuzzed fields become.
ODD: list[object] = [
    *(None, True, False, 0, -1, 1, 2, 255, 1 << 31, 1 << 63, (1 << 64) - 1, -(1 << 63), 1.5),
    *("", "x", "\ud7ff", "a" * 300, b"", b"\xff" * 300, [], {}, [[]], [None] * 20, {"a": 1}),
]


def messages(served: Served, chance: random.Random) -> Iterator[bytes | list[bytes]]:
    """Make messages of a client that breaks the rules, some only a little."""
    row = Row(0, 0, 7, None, None, None, 3, None, b"x", "once", 1 << 50)
    token = frames.Token(served.g, 1, 1)
    ending = frames.WireEnding(served.g, 1, 1)
    sound = [
        frames.Put(1, served.q + 1, 0, [b"x"]),
        frames.PutRows(2, served.q + 1, [row]),
        frames.Exchange(3, [ending], served.g, 0),
        frames.Cancel(3),
        frames.Extend(4, token, 5),
        frames.Keep(token, on=True),
        frames.Call(5, "info", msgspec.Raw(msgspec.msgpack.encode(["fuzz"]))),
        frames.Listen(["paused"]),
        frames.Hello(list(frames.VERSIONS), bytes(16), "twice", 1),
    ]
    while True:
        data = bytearray(frames.encode([chance.choice(sound)]))
        how = chance.random()
        if how < 0.4:
            yield msgspec.msgpack.encode(_bent(msgspec.msgpack.decode(data), chance))
        elif how < 0.6:
            for _ in range(chance.randint(1, 4)):
                data[chance.randrange(len(data))] = chance.randrange(256)
            yield bytes(data)
        elif how < 0.75:
            yield bytes(data[: chance.randrange(len(data))])
        elif how < 0.9:
            yield chance.randbytes(chance.randrange(200))
        else:
            yield [chance.randbytes(chance.randrange(20)) for _ in range(chance.randrange(2, 5))]


def _bent(value: object, chance: random.Random) -> object:
    """Return a list of lists with one thing in it replaced."""
    if not isinstance(value, list) or not value or chance.random() < 0.2:
        return chance.choice(ODD)
    place = chance.randrange(len(value))
    return [*value[:place], _bent(value[place], chance), *value[place + 1 :]]


def torment(served: Served, count: int, seed: int) -> None:
    """Send `count` messages; somebody else goes on meanwhile, and loses nothing."""
    chance = random.Random(seed)
    good = served.peer()
    good.put(served.q, b"held")
    (held,) = good.exchange(group=served.g, most=1, keep=True).leases
    bodies = []
    bad = served.peer(hello=False)
    stream = messages(served, chance)
    for number in range(count):
        if number % _AFTER_HELLO == 0:
            bad.close()
            bad = served.peer(hello=False, session=secrets.token_bytes(16))
            bad.hello()
        message = next(stream)
        bad.socket.send_multipart(message if isinstance(message, list) else [message])
        if number % _GOOD_EVERY == 0:
            bodies.append(b"%d" % number)
            good.put(served.q, bodies[-1])
    _drained(bad)
    settled = good.exchange(frames.WireEnding(served.g, held.message.seq, held.counter))
    assert settled.stale == []
    found = {message.body for message in served.desk.peek(served.queue, 100)}
    assert found >= set(bodies)


def _drained(bad: Peer) -> None:
    """Wait until all that was sent has been read: the answer to a new greeting comes last."""
    bad.inbox.clear()
    bad.token = secrets.token_bytes(16)
    bad.socket.setsockopt(zmq.LINGER, 0)
    bad.socket.send(b"")
    bad.hello()


def defects(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the host has logged as its own failure."""
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR]


@pytest.fixture
def serving_all(unstarted: Served) -> Served:
    unstarted.desk.queue("fuzz")
    unstarted.start(verbs=verbs.served(unstarted.desk.office))
    return unstarted


def test_whatever_a_raw_socket_sends_costs_itself_only(
    serving_all: Served, caplog: pytest.LogCaptureFixture
) -> None:
    torment(serving_all, MESSAGES, seed=1)
    assert defects(caplog) == []
    assert serving_all.server.stats.refused > MESSAGES / 10


def test_a_host_that_does_not_expect_garbage_is_noticed(
    serving_all: Served, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode = msgspec.msgpack.Decoder(list[frames.Requests]).decode
    monkeypatch.setattr(frames, "decode_requests", decode)
    torment(serving_all, 200, seed=1)
    assert defects(caplog) != []
