"""What handlers and callers hand in: texts of 50 MB, errors that cannot be printed, odd names.

Knows: what must be refused with a name, and what must be made small.
Does not know: where it is checked or cut.
"""

from __future__ import annotations

import pytest

from embedq.broker.host import open_engine
from embedq.clock import VirtualClock
from embedq.errors import InvalidName, InvalidOption, LimitExceeded
from embedq.limits import LIMITS
from embedq.message import ErrorInfo, draft
from embedq.policy import QueuePolicy

pytestmark = pytest.mark.reliability

HUGE = "x" * 50_000_000


@pytest.fixture
def engine(tmp_path):
    with open_engine(
        tmp_path / "q.db", clock=VirtualClock(), durability="normal", upkeep=False
    ) as one:
        yield one


def size_of_files(engine):
    folder = engine.store.placement.path.parent
    return sum(file.stat().st_size for file in folder.iterdir() if "ballast" not in file.name)


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("not even this")


def caused_by_huge():
    error = ValueError("short")
    error.__cause__ = KeyError(HUGE)
    return error


ERRORS = {
    "a text of 50 MB": lambda: ValueError(HUGE),
    "a text of 50 MB in bytes": lambda: ValueError(HUGE.encode()),
    "a cause of 50 MB": caused_by_huge,
    "no text at all": Unprintable,
    "half a character": lambda: ValueError("\ud800 lone"),
    "a type with a long name": lambda: type("E" * 100_000, (Exception,), {})("x"),
    "control characters": lambda: ValueError("a\0b\x1b[31mc\r\n"),
    "a group": lambda: ExceptionGroup("many", [ValueError(HUGE)] * 3),
}


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_of_any_size_is_stored_small_with_its_beginning(engine, name):
    queue = engine.queue("orders", QueuePolicy(max_attempts=2))
    group = engine.group(queue)
    engine.put(queue, b"x")
    before = size_of_files(engine)
    for _ in range(2):
        (lease,) = engine.claim(group)
        engine.fail(lease, ErrorInfo.from_exception(ERRORS[name]()))
    (row,) = engine.store.dead(queue.id, 0, 10)
    assert row.reason == "max_attempts"
    assert len(row.attempts) < 3 * LIMITS.error_bytes
    assert size_of_files(engine) - before < 500_000


def test_a_reason_of_any_size_is_stored_small(engine):
    queue = engine.queue("orders")
    group = engine.group(queue)
    engine.put(queue, b"x")
    before = size_of_files(engine)
    (lease,) = engine.claim(group)
    engine.reject(lease, "because " + HUGE, by=HUGE)
    (row,) = engine.store.dead(queue.id, 0, 10)
    assert row.detail.startswith("because xxx")
    assert size_of_files(engine) - before < 500_000


BAD_NAMES = ["", "\0", "a\nb", "\x7f", "x" * 256, "é" * 128, "\ud800", None, 7, b"bytes"]
ODD_NAMES = ["'; DROP TABLE msg; --", "a/../b", "%s", "ü" * 127, "queue", ".", " ", "x" * 255]


@pytest.mark.parametrize("name", BAD_NAMES, ids=ascii)
def test_an_invalid_name_is_refused_and_creates_nothing(engine, name):
    queue = engine.queue("orders")
    for declare in (engine.queue, lambda name: engine.group(queue, name)):
        with pytest.raises((InvalidName, LimitExceeded)) as refused:
            declare(name)
        assert refused.value.hint
    queues, groups = engine.store.catalogue()
    assert [row.name for row in queues] == ["orders"]
    assert groups == []


@pytest.mark.parametrize("name", ODD_NAMES, ids=ascii)
def test_an_odd_name_is_a_name_like_any_other(engine, name):
    queue = engine.queue(name)
    group = engine.group(queue, name)
    engine.put(queue, name.encode())
    (lease,) = engine.claim(group)
    assert lease.message.body == name.encode()
    engine.ack(lease)
    assert engine.queue(name) is queue


@pytest.mark.parametrize("name", ["\0", "x" * 256, "\ud800"], ids=ascii)
def test_an_invalid_key_or_header_is_refused_when_the_draft_is_made(name):
    for option in ("ordering_key", "dedup_key"):
        with pytest.raises((InvalidName, LimitExceeded)):
            draft(b"x", **{option: name})
    with pytest.raises((InvalidName, LimitExceeded, InvalidOption)):
        draft(b"x", headers={name: "value"})


def test_bodies_and_batches_beyond_their_limits_are_refused_and_leave_nothing(engine):
    queue = engine.queue("orders")
    too_large = bytes(LIMITS.body_bytes + 1)
    for call in (
        lambda: engine.put(queue, too_large),
        lambda: engine.put_many(queue, [b"x", too_large]),
        lambda: draft(too_large),
        lambda: engine.put_many(queue, [b"x"] * (LIMITS.batch_messages + 1)),
    ):
        with pytest.raises(LimitExceeded):
            call()
    assert (queue.stored, engine.peek(queue)) == (0, [])
