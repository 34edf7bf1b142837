"""Replay: which messages come again, what they keep, and that a repetition adds nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from embedq import Broker
from embedq.broker.host import open_engine
from embedq.errors import InvalidOption, NotRetained, QueueNotFound
from embedq.message import ErrorInfo
from embedq.spark.pipelines import replaying
from embedq.spark.pipelines.fingerprints import fingerprint

FRAME = 'File "/srv/app.py", line 7, in ship\n'
BODIES = [b"acked", b"\xff\x00\xfe", b"failed once", b"", "dead ü".encode(), b"waits"]


@pytest.fixture
def path(tmp_path):
    """Six messages that are kept: acked, acked, failed, delayed, dead, waiting."""
    path = tmp_path / "q.db"
    with Broker(path) as broker:
        queue = broker.queue("orders", bytes, retain="1d", max_attempts=5)
        broker.queue("fleeting", bytes)
        queue.put_many(BODIES[:2])
        queue.put(BODIES[2], headers={"trace": "t1", "replayed-from": "elsewhere/1"})
        queue.put(BODIES[3], priority=7, delay="1h", headers={"a": "ä"})
        queue.put(BODIES[4], ordering_key="k", headers={"b": ""})
    with open_engine(path, upkeep=False) as desk:
        state = desk.existing_queue("orders")
        group = desk.group(state)
        acked, raw, failed, dying = desk.claim(group, 4)
        desk.ack(acked, raw)
        desk.fail(failed, ErrorInfo("OSError", "later", FRAME))
        desk.reject(dying, "no", ErrorInfo("ValueError", "order 4", FRAME))
        desk.put(state, BODIES[5])
    return path


@pytest.fixture
def broker(path):
    with Broker(path) as broker:
        yield broker


def target(broker, name="again"):
    return broker.queue(name, bytes).spark_options()


def copies(broker, name="again"):
    return broker.queue(name, bytes).peek(100)


def test_copies_are_the_messages_byte_for_byte_and_a_repetition_adds_only_what_is_new(
    spark, broker, monkeypatch
):
    orders = broker.queue("orders", bytes)
    told = []
    monkeypatch.setattr(replaying, "PER_BATCH", 4)
    done = replaying.replay(
        spark, orders.spark_options(), target(broker), progress=lambda *two: told.append(two)
    )
    assert (done.found, done.put, done.batches, done.gone) == (6, 6, 2, 0)
    assert told == [(4, 4 + 2), (6, 6)]
    origins = orders.peek(100)
    for origin, copy in zip(origins, copies(broker), strict=True):
        assert (copy.body, copy.kind, copy.priority, copy.ordering_key) == (
            origin.body,
            origin.kind,
            origin.priority,
            origin.ordering_key,
        )
        headers = {**(origin.headers or {}), "replayed-from": f"orders/{origin.id}"}
        assert copy.headers == headers
    # The original is delayed by an hour, its copy is not.
    assert broker.queue("again", bytes).get(0).body == BODIES[3]

    orders.put(b"new")
    again = replaying.replay(spark, orders.spark_options(), target(broker))
    assert (again.found, again.put, again.name) == (7, 1, done.name)
    assert [copy.body for copy in copies(broker)] == [*BODIES, b"new"]


def test_outcomes_fingerprints_dead_letters_and_times_choose(spark, broker):
    orders = broker.queue("orders", bytes)
    given = orders.spark_options()

    def chosen(**choice):
        name = f"to-{len(list(broker.queues))}"
        done = replaying.replay(spark, given, target(broker, name), **choice)
        found = [copy.body for copy in copies(broker, name)]
        assert len(found) == done.put
        return found

    assert chosen(outcomes=["failed"]) == [b"failed once"]
    ship = fingerprint("ValueError", "order 4", FRAME)
    assert chosen(fingerprints=[ship]) == [BODIES[4]]
    now = datetime.now(UTC)
    assert chosen(since=now - timedelta(hours=1), until=now + timedelta(hours=1)) == BODIES
    assert chosen(until=timedelta(hours=1)) == []


def test_a_run_that_is_interrupted_between_two_batches_goes_on_where_it_was(
    spark, broker, monkeypatch
):
    monkeypatch.setattr(replaying, "PER_BATCH", 4)
    given = broker.queue("orders").spark_options()

    def interrupt(done, _):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replaying.replay(spark, given, target(broker), progress=interrupt)
    assert len(copies(broker)) == 4
    again = replaying.replay(spark, given, target(broker))
    assert (again.found, again.put) == (6, 2)
    assert [copy.body for copy in copies(broker)] == BODIES


def test_an_archive_is_replayed_after_its_queue_is_empty_and_a_queue_into_itself_once(
    spark, broker, tmp_path
):
    from embedq.spark.pipelines import archive

    orders = broker.queue("orders", bytes)
    folder = tmp_path / "archive"
    for feed in ("messages", "history"):
        archive(spark, orders.spark_options(include=feed, startingOffsets="earliest"), folder)
    with pytest.raises(InvalidOption, match="its own messages"):
        replaying.replay(spark, folder, orders.spark_options())
    done = replaying.replay(spark, folder, target(broker), outcomes=["failed"])
    assert [copy.body for copy in copies(broker)] == [b"failed once"]
    with pytest.raises(InvalidOption, match="has no dead"):
        replaying.replay(spark, folder, target(broker), dead=True)
    assert done.gone == 0

    def into_itself(**more):
        given = orders.spark_options()
        return replaying.replay(spark, given, given, same_queue=True, **more).put

    # One has the header already: it counts as a copy here. What is put is not copied in its turn.
    assert into_itself(name="twice") == 5
    assert into_itself(name="twice") == 0


def test_what_cannot_be_replayed_is_said_before_anything_is_put(spark, broker, tmp_path):
    given = broker.queue("orders").spark_options()
    fleeting = broker.queue("fleeting").spark_options()
    for source, to, choice, error, text in (
        (given, given, {}, InvalidOption, "its own messages"),
        (given, {**given, "queue": "nobody"}, {}, QueueNotFound, "nobody"),
        ({**given, "subscribe": "nobody"}, fleeting, {}, QueueNotFound, "nobody"),
        (fleeting, given, {}, NotRetained, "keeps none that is settled"),
        (fleeting, given, {"outcomes": ["failed"]}, NotRetained, "keeps no history"),
        (given, fleeting, {"outcomes": ["lost"]}, InvalidOption, "is none of"),
        (given, fleeting, {"queues": "orders"}, InvalidOption, "not several"),
        (given, fleeting, {"queues": ["mail"]}, InvalidOption, "not among"),
        (given, fleeting, {"since": datetime(2030, 1, 1)}, InvalidOption, "time zone"),  # noqa: DTZ001
        (given, fleeting, {"dead": True, "outcomes": ["dead"]}, InvalidOption, "exclude"),
        (given, {"endpoint": given["endpoint"]}, {}, InvalidOption, "which queue"),
        (tmp_path / "none", given, {}, InvalidOption, "no folder"),
        (tmp_path, given, {}, InvalidOption, "has no messages"),
    ):
        with pytest.raises(error, match=text):
            replaying.replay(spark, source, to, **choice)
    assert broker.queue("fleeting").stats().stored == 0
