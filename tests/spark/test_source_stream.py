"""Reading as a stream: batches follow each other without a gap, and say what is wrong."""

from __future__ import annotations

import json
import shutil
from contextlib import contextmanager

import pytest

from embedq import Broker
from embedq.storage.onlooker import Onlooker
from tests.spark import direct
from tests.spark.patience import finished


@pytest.fixture
def shop(tmp_path):
    """A broker that hosts its file while the test runs, with 25 messages in a retained queue."""
    with Broker(tmp_path / "q.db") as broker:
        broker.queue("orders", bytes, retain="1d").put_many([b"%d" % n for n in range(25)])
        yield broker


def stream(spark, tmp_path, **options):
    reader = spark.readStream.format("embedq").schema("seq long, body binary")
    given = {"path": str(tmp_path / "q.db"), "subscribe": "orders", "startingOffsets": "earliest"}
    return reader.options(**{**given, **options}).load()


def drain(frame, tmp_path, name="out"):
    """Write what is available now to Parquet; return the progress of the query."""
    writer = (
        frame.writeStream.format("parquet")
        .option("path", str(tmp_path / name))
        .option("checkpointLocation", str(tmp_path / f"{name}-checkpoint"))
        .trigger(availableNow=True)
    )
    query = finished(writer.start)
    return query.recentProgress


@contextmanager
def refused(told):
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match=told):
        yield


def bodies(spark, tmp_path, name="out"):
    return sorted(
        int(bytes(row.body)) for row in spark.read.parquet(str(tmp_path / name)).collect()
    )


def test_what_is_available_comes_once_in_batches_and_a_later_run_goes_on(spark, shop, tmp_path):
    frame = stream(spark, tmp_path, maxOffsetsPerTrigger="10")
    progress = drain(frame, tmp_path)
    assert [one.numInputRows for one in progress if one.numInputRows] == [10, 10, 5]
    last = json.loads(progress[-1].sources[0].latestOffset)
    assert last == {"v": 1, "seq": 25}
    shop.queue("orders", bytes).put_many([b"%d" % n for n in range(25, 30)])
    drain(frame, tmp_path)
    assert bodies(spark, tmp_path) == list(range(30))
    # The file is put back to what it was before: the checkpoint is ahead of it.
    restored = tmp_path / "restored.db"
    with Broker(restored) as other:
        other.queue("orders", bytes, retain="1d")
    offsets = (tmp_path / "out-checkpoint" / "offsets").iterdir()
    offset = max((file for file in offsets if file.suffix != ".crc"), key=lambda f: int(f.name))
    text = offset.read_text().replace('"seq": 30', '"seq": 3000000')
    for folder in ("offsets", "sources"):
        crc = tmp_path / "out-checkpoint" / folder / f".{offset.name}.crc"
        crc.unlink(missing_ok=True)
    offset.write_text(text)
    assert "3000000" in text
    with refused("beyond everything that this file ever had"):
        drain(stream(spark, tmp_path, path=str(restored)), tmp_path)


def test_a_group_holds_messages_that_others_have_acked_until_spark_has_read_them(spark, tmp_path):
    with Broker(tmp_path / "q.db") as broker:
        queue = broker.queue("orders", bytes)
        queue.put_many([b"first", b"0", b"1"])
        queue.get(timeout=60).ack()  # the consumers were there before
        options = {
            "path": "",
            "endpoint": str(tmp_path / "q.db"),
            "group": "lake",
            "maxOffsetsPerTrigger": "4",
        }
        frame = stream(spark, tmp_path, **options)
        drain(frame, tmp_path)
        queue.put_many([b"%d" % n for n in range(2, 12)])
        for _ in range(12):
            with queue.get(timeout=60) as delivery:
                delivery.ack()
        held = Onlooker(tmp_path / "q.db").range(1, 0, 99)
        assert len(held) >= 10  # acked by the consumers, but not read yet
        drain(frame, tmp_path)
        assert bodies(spark, tmp_path) == list(range(12))
        left = Onlooker(tmp_path / "q.db").range(1, 0, 99)
        assert len(left) < len(held)  # all but what Spark has not committed to the source
        # Another checkpoint starts where the group has nothing any more.
        with refused("has released everything"):
            drain(stream(spark, tmp_path, **options), tmp_path, "again")
        shutil.rmtree(tmp_path / "again", ignore_errors=True)
        shutil.rmtree(tmp_path / "again-checkpoint")
        drain(stream(spark, tmp_path, **options, failOnDataLoss="false"), tmp_path, "again")
        assert bodies(spark, tmp_path, "again") == [int(one.body) for one in left]


@pytest.mark.spark
def test_the_host_gives_what_the_file_gives(shop, tmp_path):
    with shop.queue("orders", bytes).get(timeout=60) as delivery:
        delivery.ack()
    from embedq.spark.columns import COLUMNS

    path = str(tmp_path / "q.db")
    for feed in ("messages", "history"):
        options = {"subscribe": "orders", "include": feed}
        columns = " ".join(COLUMNS[feed])
        by_file = direct.read({"path": path, **options}, columns)
        by_host = direct.read({"endpoint": path, "minPartitions": 2, **options}, columns)
        assert by_host == by_file
        assert by_host


def test_a_stream_from_a_queue_that_keeps_nothing_is_refused(spark, tmp_path):
    with Broker(tmp_path / "q.db") as broker:
        broker.queue("orders", bytes).put(b"x")
    with refused("set the option `group`"):
        drain(stream(spark, tmp_path), tmp_path)


def test_a_host_that_is_not_there_is_named(spark, tmp_path):
    with refused("endpoint 'nohost://x' is no address of a host"):
        spark.read.format("embedq").options(
            endpoint="nohost://x", subscribe="orders"
        ).load().collect()
