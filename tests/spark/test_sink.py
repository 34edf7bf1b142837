"""Rows that Spark writes become messages: once, wholly, with everything their columns say."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from embedq import Broker
from embedq.broker.desk import Desk
from tests.spark.patience import finished


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


def file_of(broker) -> str:
    return str(broker.settings.path)


def write(rows, broker, **options):
    given = {"endpoint": file_of(broker), "queue": "orders", **options}
    rows.write.format("embedq").mode("append").options(**given).save()


def numbers(spark, count, partitions=3):
    return spark.range(0, count, 1, partitions).selectExpr("cast(id as string) as body")


def test_every_column_is_kept_as_it_was_written(spark, broker):
    due = datetime.now(UTC).replace(microsecond=123_456) + timedelta(days=2)
    expires = due + timedelta(days=1)
    rows = spark.sql(
        "SELECT X'00ff' AS body, map('a', 'b') AS headers, 'k' AS key, 7 AS priority, "
        f"timestamp'{due}' AS due_at, timestamp'{expires}' AS expires_at, 'd' AS dedup_key, "
        "3 AS max_attempts, 'application/json' AS kind"
    )
    write(rows, broker)
    (message,) = stored(broker)
    assert (message.body, message.kind, message.key) == (b"\x00\xff", 2, "k")
    assert (message.priority, message.max_attempts) == (7, 3)
    assert message.headers == b"\x81\xa1a\xa1b"
    assert message.due == int(due.timestamp() * 1000)
    assert message.expires == int(expires.timestamp() * 1000)
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


# ------------------------------------------------------------------------ failures and repeats


def test_what_does_not_fit_is_named_before_a_task_runs(spark, broker):
    with pytest.raises(Exception, match="InvalidPayload") as caught:
        write(spark.sql("SELECT 1 AS body"), broker)
    assert "'body' is int, not binary or string" in str(caught.value)
    assert "Job aborted" not in str(caught.value)


def test_a_value_that_does_not_fit_fails_the_write_and_leaves_nothing(spark, broker):
    rows = spark.sql("SELECT 'x' AS body, if(id = 5, 99, 1) AS priority FROM range(0, 9, 1, 1)")
    with pytest.raises(Exception, match="InvalidOption") as caught:
        write(rows, broker)
    assert "row 5 of a chunk: priority=99" in str(caught.value)
    assert stored(broker) == []
    assert desk_of(broker).store.staged() == []


def test_a_batch_larger_than_the_queue_may_be_is_refused_and_nothing_is_published(spark, broker):
    small = broker.queue("small", max_length=5, when_full="reject")
    small.put("before")
    with pytest.raises(Exception, match="QueueFull"):
        write(numbers(spark, 6), broker, queue="small")
    assert small.stats().stored == 1
    assert desk_of(broker).store.staged() == []


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


def writer_of(spark, folder: Path, batches: int):
    """Return what writes a stream of files, one with two rows for each batch."""
    source = folder / "in"
    source.mkdir(exist_ok=True)
    for batch in range(batches):
        (source / f"{batch}.txt").write_text(f"{batch}a\n{batch}b\n")
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(source))
    writer = lines.selectExpr("value as body").writeStream.trigger(availableNow=True)
    return writer.option("checkpointLocation", str(folder / "checkpoint"))


def forget_batch(folder: Path, batch: int) -> None:
    """Let Spark forget that it has done the last batch, as if it had died before it noted that."""
    for name in (f"{batch}", f".{batch}.crc"):
        (folder / "checkpoint" / "commits" / name).unlink()


def test_what_foreach_batch_writes_to_two_queues_is_there_once_when_a_batch_comes_again(
    spark, broker, tmp_path
):
    broker.queue("audit").put("before")
    batches: list[int] = []

    def both(rows, batch: int) -> None:
        batches.append(batch)
        for name in ("orders", "audit"):
            write(rows, broker, queue=name, sinkId=f"shop-{name}", batchId=str(batch))

    writer = writer_of(spark, tmp_path, 2).foreachBatch(both)
    finished(writer.start)
    forget_batch(tmp_path, 1)
    finished(writer.start)
    assert batches[-2:] == [1, 1]
    for name in ("orders", "audit"):
        assert len(stored(broker, name)) == 4


def test_a_stream_counts_its_batches_by_its_query(spark, broker, tmp_path):
    options = {"endpoint": file_of(broker), "queue": "orders"}
    writer = writer_of(spark, tmp_path, 3).format("embedq").options(**options)
    query = finished(writer.start)
    assert len(stored(broker)) == 6
    desk = desk_of(broker)
    queue = desk.queues["orders"].id
    newest = desk.store.sink(queue, f"query:{query.id}")
    assert newest is not None
    assert (newest.batch, newest.messages) == (2, 2)
    forget_batch(tmp_path, 2)
    finished(writer.start)
    assert (tmp_path / "checkpoint" / "commits" / "2").exists()
    assert len(stored(broker)) == 6
    assert desk.store.sink(queue, f"query:{query.id}") == newest
