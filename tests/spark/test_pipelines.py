"""Archive, triage and redrive, on a queue whose messages have succeeded, failed and died."""

from __future__ import annotations

import pytest

from embedq import Broker
from embedq.broker.host import open_engine
from embedq.clock import VirtualClock
from embedq.errors import InvalidOption
from embedq.message import ErrorInfo
from embedq.policy import QueuePolicy

FRAME = 'File "/srv/app.py", line {n}, in {name}\n'


@pytest.fixture
def path(tmp_path):
    """Eleven deliveries: five acked, six dead of two causes; nobody has the file open."""
    path = tmp_path / "q.db"
    with open_engine(path, upkeep=False) as desk:
        queue = desk.queue("orders", QueuePolicy(retain_ms=86_400_000))
        desk.put_many(queue, [b"%d" % n for n in range(11)])
        for n, lease in enumerate(desk.claim(desk.group(queue), 11)):
            if n < 5:
                desk.ack(lease)
            elif n < 9:
                text = FRAME.format(n=n, name="ship")
                desk.reject(lease, "no", ErrorInfo("ValueError", f"order {n}", text))
            else:
                desk.reject(lease, "no", ErrorInfo("KeyError", "x", FRAME.format(n=1, name="pay")))
    return path


def options(path, **more):
    return {"path": str(path), "subscribe": "orders", **more}


def test_an_archive_has_each_delivery_once_for_plain_readers_too(spark, path, tmp_path):
    from pyarrow import dataset

    from embedq.spark.pipelines import archive

    told = []
    folder = tmp_path / "archive"
    first = archive(
        spark,
        options(path, maxOffsetsPerTrigger="4"),
        folder,
        progress=lambda batches, rows: told.append((batches, rows)),
    )
    assert first.rows == 11
    assert sum(rows for _, rows in told) == 11
    with pytest.raises(InvalidOption, match=r"subscribe='orders': how far .*'mail,orders'"):
        archive(spark, options(path, subscribe="orders, mail"), folder)  # older mail is not there

    # A run that was killed in its last batch: its files are there, Spark's word for it is not.
    commits = folder / "_checkpoint" / "history" / "commits"
    last = max(
        (file for file in commits.iterdir() if file.name.isdigit()), key=lambda f: int(f.name)
    )
    last.unlink()
    (commits / f".{last.name}.crc").unlink(missing_ok=True)
    again = archive(spark, options(path), folder)
    assert again.rows > 0, "the batch was not repeated"
    rows = dataset.dataset(folder / "history", partitioning="hive").to_table().to_pylist()
    assert len(rows) == 11
    assert len({row["id"] for row in rows}) == 11
    assert [row["outcome"] for row in rows].count("acked") == 5


def test_causes_are_counted_and_those_chosen_are_put_again(spark, path):
    from embedq.spark.pipelines import redrive, triage

    causes = triage(spark, options(path))
    assert [(c.type, c.place, c.letters) for c in causes] == [
        ("ValueError", "app:ship", 4),
        ("KeyError", "app:pay", 2),
    ]
    assert [len(c.ids) for c in causes] == [3, 2]
    assert causes[0].first <= causes[0].last
    assert causes[0].message.startswith("order ")

    with Broker(path) as broker:
        queue = broker.queue("orders")
        moved = redrive(spark, options(path), queue.dead, [causes[1].fingerprint])
        assert moved == 2
        again = [one.body for one in queue.peek(20) if "redriven-from" in (one.headers or {})]
        assert sorted(again) == [b"10", b"9"]
        assert {letter.id for letter in queue.dead.list()} >= set(causes[0].ids)
        assert queue.stats().dead == 4


def test_of_letters_that_died_at_once_the_first_by_id_speaks_for_a_cause(spark, tmp_path):
    from embedq.spark.pipelines import triage

    path = tmp_path / "once.db"
    with open_engine(path, clock=VirtualClock(), upkeep=False) as desk:
        queue = desk.queue("orders")
        desk.put_many(queue, [b""] * 40)
        for n, lease in enumerate(desk.claim(desk.group(queue), 40)):
            trace = f'File "/srv/app.py", line {n}, in ship\n'
            desk.reject(lease, "no", ErrorInfo("ValueError", f"order {n}", trace))
    (cause,) = triage(spark, options(path))
    assert (cause.letters, cause.first) == (40, cause.last)
    assert cause.message == "order 0"


def test_what_cannot_be_done_is_said_before_anything_is_read(spark, path):
    from embedq.spark.pipelines import archive, redrive

    with pytest.raises(InvalidOption, match="no fingerprint"):
        redrive(spark, options(path), Broker(path).queue("orders").dead, [])
    with pytest.raises(InvalidOption, match="no local path"):
        archive(spark, options(path), "s3://bucket/x")


def test_an_archive_of_messages_moves_its_group_to_the_end_by_itself(spark, tmp_path):
    from embedq.spark.pipelines import archive

    with Broker(tmp_path / "q.db") as broker:
        queue = broker.queue("orders")
        queue.put_many([b"a", b"b", b"c"])
        given = queue.spark_options(group="lake", include="messages")
        assert archive(spark, given, tmp_path / "archive").rows == 3
        assert queue.group("lake").stats().waiting == 0
