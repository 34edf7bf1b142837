"""Rows that Spark writes become messages: once, wholly, with everything their columns say."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from embedq import Broker
from embedq.broker.desk import Desk

SOON = 60.0


@pytest.fixture
def broker(tmp_path):
    with Broker(tmp_path / "q.db") as opened:
        opened.queue("orders").put("before")
        yield opened


def desk_of(broker) -> Desk:
    assert isinstance(broker.desk, Desk)
    return broker.desk


def stored(broker, queue="orders"):
    """Return what was put after the first message."""
    desk = desk_of(broker)
    return desk.peek(desk.queues[queue], 100_000)[1:]


def write(rows, broker, **options):
    given = {"endpoint": desk_of(broker).store.path, "queue": "orders", **options}
    rows.write.format("embedq").mode("append").options(**given).save()


def numbers(spark, count, partitions=3):
    return spark.range(0, count, 1, partitions).selectExpr("cast(id as string) as body")


def test_every_column_is_kept_as_it_was_written(spark, broker):
    rows = spark.sql(
        "SELECT X'00ff' AS body, map('a', 'ü') AS headers, 'k' AS key, 7 AS priority, "
        "timestamp'2100-01-01 00:00:00.123456' AS due_at, "
        "timestamp'2100-01-02' AS expires_at, 'd' AS dedup_key, 3 AS max_attempts, "
        "'application/json' AS kind"
    )
    write(rows, broker)
    (message,) = stored(broker)
    assert (message.body, message.kind, message.key) == (b"\x00\xff", 2, "k")
    assert (message.priority, message.max_attempts) == (7, 3)
    assert message.headers == "\x81\xa1a\xa2ü".encode("latin-1").replace(b"\xfc", "ü".encode())
    due = datetime(2100, 1, 1, 0, 0, 0, 123_000, tzinfo=UTC)
    assert message.due == round(due.timestamp() * 1000)
    assert message.expires == round(datetime(2100, 1, 2, tzinfo=UTC).timestamp() * 1000)
    write(rows, broker)  # the same dedup key
    assert len(stored(broker)) == 1


def test_what_is_null_is_as_if_nothing_had_been_said(spark, broker):
    columns = ("headers", "key", "priority", "delay_s", "expires_at", "dedup_key", "max_attempts")
    kinds = ("map<string,string>", "string", "int", "double", "timestamp", "string", "int")
    nulls = ", ".join(
        f"cast(NULL AS {kind}) AS {name}" for name, kind in zip(columns, kinds, strict=True)
    )
    write(spark.sql(f"SELECT 'text' AS value, {nulls}"), broker)
    (message,) = stored(broker)
    assert (message.body, message.kind, message.priority) == (b"text", 1, 0)
    assert (message.headers, message.key, message.due, message.expires) == (None,) * 4


def test_a_delay_counts_from_the_publishing_on(spark, broker):
    write(spark.sql("SELECT 'x' AS body, 3600.5 AS delay_s"), broker)
    (message,) = stored(broker)
    assert message.due == message.put_at + 3_600_500


def test_rows_of_many_tasks_and_chunks_are_published_once_and_together(spark, broker):
    write(numbers(spark, 25_000), broker)
    found = stored(broker)
    assert sorted(int(message.body) for message in found) == list(range(25_000))
    assert len({message.put_at for message in found}) == 1
    assert desk_of(broker).store.staged() == []


def test_large_bodies_go_in_several_chunks(spark, broker):
    rows = spark.range(0, 12, 1, 1).selectExpr("repeat(cast(id % 10 as string), 1000000) as body")
    write(rows, broker)
    assert [len(message.body) for message in stored(broker)] == [1_000_000] * 12


def test_nothing_written_publishes_nothing(spark, broker):
    write(numbers(spark, 10).where("body = 'none'"), broker)
    assert stored(broker) == []


def test_direct_writing_puts_everything(spark, broker):
    write(numbers(spark, 25_000), broker, mode="direct")
    assert sorted(int(message.body) for message in stored(broker)) == list(range(25_000))


# -------------------------------------------------------------------------- wrong columns


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("SELECT 1 AS x", "neither body nor value"),
        ("SELECT 'a' AS body, 'b' AS value", "both body and value"),
        ("SELECT 1 AS body", "'body' is int, not binary or string"),
        ("SELECT 'a' AS body, 'b' AS priority", "'priority' is string, not a whole number"),
        ("SELECT 'a' AS body, map('a', 1) AS headers", "'headers' is map<string,int>"),
        ("SELECT 'a' AS body, 1L AS seq", "'seq' is given by the queue"),
        ("SELECT 'a' AS body, 1 AS colour", "'colour' is none of a message"),
        ("SELECT 'a' AS body, 1 AS delay_s, now() AS due_at", "delay_s and due_at"),
        ("SELECT 'a' AS body, timestamp_ntz'2100-01-01' AS due_at", "'due_at' is timestamp_ntz"),
    ],
)
def test_columns_that_do_not_fit_are_named_before_a_task_runs(spark, broker, query, text):
    with pytest.raises(Exception, match="InvalidPayload") as caught:
        write(spark.sql(query), broker)
    assert text in str(caught.value)
    assert "select what a message is made from: body" in str(caught.value)
    assert "Job aborted" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"queue": ""}, "queue"),
        ({"mode": "fast"}, "neither atomic nor direct"),
        ({"batchId": "1"}, "batchId without sinkId"),
        ({"sinkId": "s"}, "sinkId without batchId"),
        ({"sinkId": "s", "batchId": "-1"}, "no whole number"),
        ({"sinkld": "s"}, "did you mean sinkid?"),
        ({"putTimeout": "soon"}, "no duration"),
        ({"olderBatches": "never"}, "neither error nor skip"),
    ],
)
def test_options_that_do_not_fit_are_named(spark, broker, options, text):
    with pytest.raises(Exception, match="Invalid") as caught:
        write(numbers(spark, 1), broker, **options)
    assert text in str(caught.value)


def test_a_queue_is_never_overwritten(spark, broker):
    options = {"endpoint": desk_of(broker).store.path, "queue": "orders"}
    with pytest.raises(Exception, match="cannot be overwritten"):
        numbers(spark, 1).write.format("embedq").mode("overwrite").options(**options).save()


@pytest.mark.parametrize("mode", ["atomic", "direct"])
@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("SELECT if(id = 5, NULL, 'x') AS body FROM range(9)", "have no body (NULL)"),
        ("SELECT 'x' AS body, if(id = 5, 99, 1) AS priority FROM range(9)", "priority=99"),
        ("SELECT 'x' AS body, if(id = 5, 'jpeg', NULL) AS kind FROM range(9)", "'jpeg'"),
    ],
)
def test_values_that_do_not_fit_fail_the_write_and_leave_nothing(spark, broker, mode, query, text):
    with pytest.raises(Exception, match="Invalid") as caught:
        write(spark.sql(query).coalesce(1), broker, mode=mode)
    assert text in str(caught.value)
    assert stored(broker) == []
    assert desk_of(broker).store.staged() == []


def test_a_queue_that_is_not_there_is_named(spark, broker):
    with pytest.raises(Exception, match="QueueNotFound"):
        write(numbers(spark, 1), broker, queue="nowhere")


def test_a_batch_larger_than_the_queue_may_be_is_refused_and_nothing_is_published(spark, broker):
    small = broker.queue("small", max_length=5, when_full="reject")
    small.put("before")
    with pytest.raises(Exception, match="QueueFull"):
        write(numbers(spark, 6), broker, queue="small")
    assert small.stats().stored == 1
    assert desk_of(broker).store.staged() == []


# ------------------------------------------------------------------------ failures and repeats


def fail_once(flag):
    """Return a function for mapInArrow whose first attempt fails after its first batch."""

    def run(batches):
        from pathlib import Path as File

        for number, batch in enumerate(batches):
            yield batch
            if number == 0 and not File(flag).exists():
                File(flag).touch()
                raise RuntimeError("planted")

    return run


def test_a_task_that_is_tried_again_adds_its_rows_once(spark, broker, tmp_path):
    flag = tmp_path / "failed"
    rows = numbers(spark, 40_000, 1).mapInArrow(fail_once(str(flag)), "body string")
    write(rows, broker)
    assert flag.exists()
    assert sorted(int(message.body) for message in stored(broker)) == list(range(40_000))
    assert desk_of(broker).store.staged() == []


def test_a_batch_of_foreach_batch_that_comes_again_adds_nothing(spark, broker):
    for batch, count in ((0, 10), (1, 20), (1, 20), (2, 5)):
        write(numbers(spark, count), broker, sinkId="s", batchId=str(batch))
    assert len(stored(broker)) == 35
    desk = desk_of(broker)
    newest = desk.store.sink(desk.queues["orders"].id, "s")
    assert newest is not None
    assert (newest.batch, newest.messages) == (2, 5)
    with pytest.raises(Exception, match="with a new checkpoint use a new sinkId"):
        write(numbers(spark, 10), broker, sinkId="s", batchId="0")
    write(numbers(spark, 10), broker, sinkId="s", batchId="0", olderBatches="skip")
    assert len(stored(broker)) == 35


def stream(spark, broker, folder: Path, **options):
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder / "in"))
    given = {"endpoint": desk_of(broker).store.path, "queue": "orders", **options}
    query = (
        lines.selectExpr("value as body")
        .writeStream.format("embedq")
        .options(**given, checkpointLocation=str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(SOON * 2)
    return query


def test_a_stream_counts_its_batches_by_its_query(spark, broker, tmp_path):
    source = tmp_path / "in"
    source.mkdir()
    for batch in range(3):
        (source / f"{batch}.txt").write_text(f"{batch}a\n{batch}b\n")
    query = stream(spark, broker, tmp_path)
    assert len(stored(broker)) == 6
    desk = desk_of(broker)
    queue = desk.queues["orders"].id
    newest = desk.store.sink(queue, f"query:{query.id}")
    assert newest is not None
    assert (newest.batch, newest.messages) == (2, 2)
    # Spark forgets that it has done the last batch, as if it had died before it noted that.
    for name in ("2", ".2.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink()
    stream(spark, broker, tmp_path)
    assert (tmp_path / "checkpoint" / "commits" / "2").exists()
    assert len(stored(broker)) == 6
    assert desk.store.sink(queue, f"query:{query.id}") == newest
