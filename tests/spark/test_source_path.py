"""Reading the file itself: every column, every range, and what is said when something is wrong."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from embedq.broker.host import open_engine
from embedq.errors import EmbedqError
from embedq.message import ErrorInfo, draft
from embedq.policy import QueuePolicy
from tests.spark import direct

KEPT = QueuePolicy(retain_ms=86_400_000, max_attempts=2)
BODIES = [b"", b"\0\xff", b"a\0b,\n", "Grüße".encode(), b"x" * 5000]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A queue with every sort of message and outcome, among others; its host stays."""
    path = tmp_path_factory.mktemp("source") / "q.db"
    with open_engine(path, upkeep=False) as desk:
        first, second = desk.queue("first", KEPT), desk.queue("second", KEPT)
        desk.queue("empty", KEPT)
        group = desk.group(first)
        for n, body in enumerate(BODIES):
            headers = {"n": str(n), "ü": "\n,"} if n % 2 else None
            key = f"key,{n}" if n % 3 == 0 else None
            late = 4_000_000_000_123 if n == 4 else None
            desk.put_drafts(
                first,
                [
                    draft(
                        body,
                        n % 3,
                        headers,
                        priority=n % 10,
                        ordering_key=key,
                        expires_at_ms=late,
                    )
                ],
            )
            desk.put_many(second, [b"other"] * 20)
        error = ErrorInfo("ValueError", "no", "line 1")
        for lease in desk.claim(group, 3):
            if lease.seq == 43:
                desk.ack(lease)
            else:
                desk.reject(lease, "bad", error)
        yield path


def read(spark, path, queue="first", schema=None, **options):
    reader = spark.read.format("embedq").options(
        path=str(path), subscribe=queue, **{name: str(value) for name, value in options.items()}
    )
    return (reader if schema is None else reader.schema(schema)).load()


def test_every_column_of_a_message_arrives_as_it_was_put(spark, path):
    from embedq.storage.onlooker import Onlooker

    rows = read(spark, path).collect()
    assert [bytes(row.body) for row in rows] == BODIES
    onlooker = Onlooker(path)
    stored = onlooker.range(1, 0, 99)
    assert [row.seq for row in rows] == [one.seq for one in stored]
    assert [row.id for row in rows] == [onlooker.ids.encode(one.seq) for one in stored]
    assert {row.queue for row in rows} == {"first"}
    assert [row.priority for row in rows] == [0, 1, 2, 3, 4]
    assert [row.key for row in rows] == ["key,0", None, None, "key,3", None]
    assert [row.headers for row in rows] == [
        {"n": str(n), "ü": "\n,"} if n % 2 else None for n in range(5)
    ]
    assert [row.kind for row in rows[:3]] == [
        "application/octet-stream",
        "text/plain;charset=utf-8",
        "application/json",
    ]
    put_at = datetime.fromtimestamp(stored[0].put_at / 1000, UTC)
    assert abs(rows[0].put_at.astimezone(UTC) - put_at).total_seconds() < 0.001
    assert rows[4].expires_at.astimezone(UTC).year == 2096
    assert rows[0].due_at is None


def test_a_schema_reads_its_columns_only_in_as_many_tasks_as_asked_for(spark, path):
    found = read(spark, path, "first, second", "body binary, seq long", minPartitions=3)
    assert found.rdd.getNumPartitions() == 3
    assert found.columns == ["body", "seq"]
    assert sorted(row.seq for row in found.collect()) == list(range(1, 106))


@pytest.mark.parametrize(
    ("options", "seqs"),
    [
        ({"startingOffsets": '{"seq": 22}'}, [43, 64, 85]),
        ({"startingOffsets": '{"seq": 22}', "endingOffsets": '{"v": 1, "seq": 64}'}, [43, 64]),
        ({"startingOffsets": "latest"}, []),
        ({"startingTimestamp": 0, "endingTimestamp": 4_000_000_000_000}, [1, 22, 43, 64, 85]),
        ({"startingTimestamp": 4_000_000_000_000}, []),
        ({"endingTimestamp": 5}, []),
    ],
)
@pytest.mark.spark
def test_offsets_and_times_bound_what_is_read(path, options, seqs):
    found = direct.read({"path": path, "subscribe": "first", **options})
    assert [row["seq"] for row in found] == seqs


@pytest.mark.spark
def test_a_pattern_chooses_queues_and_none_reads_nothing(path):
    found = direct.read({"path": path, "subscribePattern": "(fir|seco).*"}, "queue")
    assert {row["queue"] for row in found} == {"first", "second"}
    assert direct.read({"path": path, "subscribePattern": "none.*"}) == []


def test_the_history_tells_how_each_delivery_ended(spark, path):
    rows = read(spark, path, include="history").orderBy("seq").collect()
    assert [(row.seq, row.attempt, row.outcome) for row in rows] == [
        (43, 1, "acked"),
        (64, 1, "dead"),
        (85, 1, "dead"),
    ]
    assert {(row.queue, row.group) for row in rows} == {("first", "default")}
    assert rows[0].started_at <= rows[0].ended_at
    assert rows[0].put_at <= rows[0].started_at
    assert [row.error_type for row in rows] == [None, "ValueError", "ValueError"]
    dead = direct.read(
        {"path": path, "subscribe": "first", "include": "history", "states": "dead"}
    )
    assert sorted(row["seq"] for row in dead) == [64, 85]


def test_dead_letters_have_their_reason_and_their_last_error(spark, path):
    rows = read(spark, path, include="dead").orderBy("seq").collect()
    assert [(row.seq, row.reason, row.attempts) for row in rows] == [
        (64, "rejected", 1),
        (85, "rejected", 1),
    ]
    assert {(row.error_type, row.error_message) for row in rows} == {("ValueError", "no")}
    assert [bytes(row.body) for row in rows] == BODIES[3:]
    assert rows[0].headers == {"n": "3", "ü": "\n,"}
    moved = {"path": path, "subscribe": "first", "include": "dead", "states": "moved"}
    assert direct.read(moved) == []


def test_tasks_that_fail_are_repeated_with_the_same_rows(spark, path):
    def fails_at_first(batches):
        from pyspark import TaskContext

        for batch in batches:
            yield batch
            context = TaskContext.get()
            if context is None or context.attemptNumber() == 0:
                raise ValueError("the first attempt of each task fails")

    frame = read(spark, path, "first,second", "seq long", minPartitions=2)
    found = frame.mapInArrow(fails_at_first, "seq long").collect()
    assert sorted(row.seq for row in found) == list(range(1, 106))


def test_a_queue_without_messages_is_an_empty_frame(spark, path):
    frame = read(spark, path, "empty", include="dead")
    assert frame.collect() == []
    assert "error_type" in frame.columns


@pytest.mark.spark
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"subscribe": "third"}, "correct the option `subscribe`"),
        ({"startingOffsets": '{"seq": 1000000000}'}, "beyond everything that this file ever had"),
    ],
)
def test_what_is_wrong_with_a_file_names_the_option(path, options, told):
    with pytest.raises(EmbedqError, match=told):
        direct.read({"path": path, "subscribe": "first", **options})


def test_what_is_wrong_is_told_through_spark(spark):
    from pyspark.errors import PySparkException

    reader = spark.read.format("embedq").schema("seq long")
    with pytest.raises(PySparkException, match="correct the option `path`"):
        reader.options(path="/nowhere/q.db", subscribe="first").load().collect()


def test_a_schema_that_does_not_fit_is_told_by_column_and_type(spark, path):
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match="seq is string; it is bigint"):
        read(spark, path, schema="seq string").collect()
