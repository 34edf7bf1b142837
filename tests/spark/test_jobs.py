"""Consumers with `spark=`: labels, progress, and every way in which a job comes to its end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from embedq import Broker, Delivery, Queue, RetryPolicy
from embedq.catalogue import CATALOGUE
from embedq.events import Notice
from embedq.spark import cancel_job, register, running_jobs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOON = 60.0
QUICK = RetryPolicy(max_attempts=2, base=0)


class Site:
    """A broker with a queue, and what it told."""

    def __init__(self, path: Path) -> None:
        self.broker = Broker(path, grace="60s")
        self.orders: Queue[Any] = self.broker.queue("nightly", retry=QUICK)
        self.heard: list[Notice] = []
        self.broker.on("*", self.heard.append)
        self.broker.start()

    def told(self, event: str) -> list[Notice]:
        return [notice for notice in self.heard if notice.name == event]

    def wait_for(self, event: str) -> threading.Event:
        happened = threading.Event()
        self.broker.on(event, lambda _: happened.set())
        return happened


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path / "q.db")
    yield made
    made.broker.stop()
    for notice in made.heard:
        assert set(notice.fields) == set(CATALOGUE[notice.name].fields), notice
        assert "None" not in notice.text.splitlines()[0]


def wait_until(true: Callable[[], object]) -> None:
    pause = threading.Event()
    for _ in range(int(SOON / 0.05)):
        if true():
            return
        pause.wait(0.05)
    raise AssertionError("it did not happen")


def long_job(spark: SparkSession, marks: Path, attempt: int = 1) -> None:
    """Run a job for minutes, whose Python workers leave a line five times a second."""
    path = str(marks)

    def work(batches):
        import os
        import time
        from pathlib import Path

        for batch in batches:
            for _ in range(1_500):
                with Path(path).open("a", encoding="utf-8") as log:
                    log.write(f"{attempt} {os.getpid()}\n")
                time.sleep(0.2)
            yield batch

    spark.range(2, numPartitions=2).mapInArrow(work, "id long").collect()


def test_a_handler_writes_into_a_queue_by_format_on_the_thread_it_runs_on(
    spark: SparkSession, site: Site
) -> None:
    """Spark looks for formats to write with in the session of the thread."""
    results = site.broker.queue("results", str)
    options = results.spark_options()

    @site.orders.consumer(spark=lambda: spark)
    def handle(_: str) -> None:
        spark.range(3).selectExpr("cast(id AS string) AS body").write.format("embedq").options(
            **options
        ).mode("append").save()

    site.orders.put("go")
    wait_until(lambda: site.orders.stats().length == 0)
    assert sorted(message.body for message in results.peek(10)) == [b"0", b"1", b"2"]


def test_a_thread_that_registers_the_format_writes_with_it(
    spark: SparkSession, site: Site
) -> None:
    results = site.broker.queue("results", str)
    failed: list[Exception] = []

    def write() -> None:
        try:
            read = spark.read.format("embedq").options(**site.orders.spark_options())
            assert read.load().count() == 0  # reading finds it without
            register(spark)
            rows = spark.range(3).selectExpr("cast(id AS string) AS body")
            rows.write.format("embedq").options(**results.spark_options()).mode("append").save()
        except Exception as error:  # noqa: BLE001  # of another thread
            failed.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    thread.join(SOON)
    assert failed == []
    assert results.stats().length == 3


def workers_left(marks: Path) -> list[int]:
    """List the Python workers that left a mark and have not ended."""
    written = marks.read_text().splitlines() if marks.exists() else []
    stats = {int(line.split()[1]): Path("/proc", line.split()[1], "stat") for line in written}
    # The letter behind the name says what it does: Z has ended, and waits to be noticed.
    return [
        pid
        for pid, stat in stats.items()
        if stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"
    ]


def at_work(marks: Path) -> bool:
    return marks.exists() and marks.read_text() != ""


def test_a_job_has_the_names_of_its_message_and_the_next_one_has_others(site, spark):
    seen: list[dict[str, str | None]] = []
    both = threading.Event()

    @site.orders.consumer(spark=lambda: spark)
    def handle(body: int, spark: SparkSession, delivery: Delivery[int]) -> None:
        context = spark.sparkContext
        assert spark.range(body).count() == body
        said = {name: context.getLocalProperty(f"spark.{name}") for name in NAMES}
        seen.append({**said, "id": delivery.id, "tags": str(sorted(context.getJobTags()))})
        if len(seen) == 2:
            both.set()

    site.orders.put_many([10, 20])
    assert both.wait(SOON)
    for one in seen:
        assert one["jobGroup.id"] == f"embedq/nightly/default/{one['id']}/1"
        assert f"message={one['id']}" in str(one["job.description"])
        assert one["scheduler.pool"] == "nightly"
        assert one["job.interruptOnCancel"] == "true"
        assert f"embedq-{one['id']}-1-" in str(one["tags"])
        assert str(one["tags"]).count("embedq-") == 1
    tracker = spark.sparkContext.statusTracker()
    assert tracker.getJobIdsForGroup(str(seen[0]["jobGroup.id"]))
    wait_until(lambda: site.orders.stats().length == 0)


NAMES = ("jobGroup.id", "job.description", "scheduler.pool", "job.interruptOnCancel")


def test_progress_is_told_and_shown_while_a_job_runs(site, spark, tmp_path):
    shown = threading.Event()
    deliveries: list[Delivery[int]] = []

    @site.orders.consumer(spark=lambda: spark)
    def handle(body: int, delivery: Delivery[int]) -> None:
        deliveries.append(delivery)
        spark.range(4, numPartitions=4).mapInArrow(slow_but_the_first(tmp_path), "id long").count()

    def look(notice: Notice) -> None:
        if notice.fields["done"]:
            shown.set()

    site.broker.on("job_progress", look)
    receipt = site.orders.put(1)
    assert shown.wait(SOON)
    (job,) = running_jobs()
    assert (job.queue, job.group, job.id, job.attempt) == ("nightly", "default", receipt.id, 1)
    assert (job.cancelled, job.jobs) == (None, 1)
    assert 0 < job.done < job.tasks
    assert deliveries[0].progress == (job.done, job.tasks)
    (tmp_path / "go").touch()
    wait_until(lambda: site.orders.stats().length == 0)
    assert running_jobs() == []


def slow_but_the_first(folder: Path) -> Callable[[Any], Iterator[Any]]:
    """Return work that waits for a file, except in the first partitions."""
    go = str(folder / "go")

    def work(batches: Any) -> Iterator[Any]:
        import time
        from pathlib import Path

        for batch in batches:
            while batch.num_rows and batch["id"][0].as_py() >= 2 and not Path(go).exists():
                time.sleep(0.05)
            yield batch

    return work


def test_a_timeout_cancels_and_the_retry_begins_when_no_worker_is_left(site, spark, tmp_path):
    marks = tmp_path / "marks"
    done = threading.Event()
    still: list[int] = []

    spark.range(2, numPartitions=2).mapInArrow(lambda batches: batches, "id long").collect()

    @site.orders.consumer(spark=lambda: spark, timeout="3s")
    def handle(body: int, delivery: Delivery[int]) -> None:
        if delivery.attempt == 1:
            long_job(spark, marks)
        else:
            still.extend(workers_left(marks))
            done.set()

    site.orders.put(1)
    assert done.wait(SOON)
    assert still == [], "a worker of the first attempt went on beside the second"
    (cancelled,) = site.told("job_cancelled")
    assert cancelled.fields["reason"] == "timeout"
    assert len(site.told("handler_timeout")) == 1
    assert site.told("stuck_slot") == []


def test_a_job_that_is_cancelled_on_request_ends_as_a_dead_letter(site, spark, tmp_path):
    marks = tmp_path / "marks"
    dead = site.wait_for("dead")

    @site.orders.consumer(spark=lambda: spark)
    def handle(body: int) -> None:
        long_job(spark, marks)

    receipt = site.orders.put(1)
    wait_until(lambda: at_work(marks))
    assert not cancel_job("f" * 32)
    assert cancel_job(receipt.id, "wrong month")
    assert dead.wait(SOON)
    (letter,) = site.orders.dead.list()
    assert (letter.reason, letter.detail) == ("rejected", "its job was cancelled: wrong month")


def test_a_message_that_is_purged_under_its_job_ends_the_job(site, spark, tmp_path):
    marks = tmp_path / "marks"
    ended = site.wait_for("job_cancelled")

    @site.orders.consumer(spark=lambda: spark)
    def handle(body: int) -> None:
        long_job(spark, marks)

    site.orders.put(1)
    wait_until(lambda: at_work(marks))
    assert site.orders.purge() == 1
    assert ended.wait(SOON)
    assert site.told("job_cancelled")[0].fields["reason"] == "lease_lost"


def test_a_drain_cancels_what_outlasts_its_grace_and_gives_the_message_back(spark, tmp_path):
    marks = tmp_path / "marks"
    site = Site(tmp_path / "q.db")
    site.orders.consumer(spark=lambda: spark)(lambda body: long_job(spark, marks))
    site.orders.put(1)
    wait_until(lambda: at_work(marks))
    report = site.broker.stop(grace=0)
    assert report is not None
    assert workers_left(marks) == []
    assert (report.released, report.stuck) == (1, 0)
    assert site.told("job_cancelled")[0].fields["reason"] == "drain"
    again = Site(tmp_path / "q.db")
    with again.orders.get(SOON) as delivery:
        assert delivery.attempt == 1
    again.broker.stop()


@pytest.mark.parametrize("query", ["SELECT nonsense FROM nowhere", "SELEC 1", "SELECT 'a' + INT"])
def test_a_query_that_means_nothing_is_dead_at_once(site, spark, query):
    dead = site.wait_for("dead")
    site.orders.consumer(spark=lambda: spark)(lambda body: spark.sql(query).collect())
    site.orders.put(1)
    assert dead.wait(SOON)
    (letter,) = site.orders.dead.list()
    assert letter.reason == "rejected"
    assert "would fail the same way again" in letter.detail
    assert len(letter.attempts) == 1


def test_what_the_retry_policy_names_is_tried_again_all_the_same(site, spark):
    from pyspark.errors import AnalysisException

    dead = site.wait_for("dead")
    policy = RetryPolicy(max_attempts=2, base=0, retry_on=AnalysisException)

    @site.orders.consumer(spark=lambda: spark, retry=policy)
    def handle(body: int) -> None:
        spark.table("not_yet_there").collect()

    site.orders.put(1)
    assert dead.wait(SOON)
    (letter,) = site.orders.dead.list()
    assert (letter.reason, len(letter.attempts)) == ("max_attempts", 2)


def test_an_error_in_a_task_is_an_error_like_any_other(site, spark):
    dead = site.wait_for("dead")

    def broken(batches):
        raise ValueError("row 17 is broken")

    @site.orders.consumer(spark=lambda: spark)
    def handle(body: int) -> None:
        spark.range(1).mapInArrow(broken, "id long").collect()

    site.orders.put(1)
    assert dead.wait(SOON)
    (letter,) = site.orders.dead.list()
    assert (letter.reason, len(letter.attempts)) == ("max_attempts", 2)
    assert "row 17 is broken" in str(letter.attempts[-1].error)


def test_a_factory_that_fails_costs_no_attempt_and_is_asked_again(site, spark):
    attempts: list[int] = []
    asked: list[int] = []
    done = threading.Event()

    def factory() -> SparkSession:
        asked.append(1)
        if len(asked) == 1:
            raise ConnectionError("the cluster restarts")
        return spark

    @site.orders.consumer(spark=factory)
    def handle(body: int, delivery: Delivery[int]) -> None:
        attempts.append(delivery.attempt)
        done.set()

    site.orders.put_many([1, 2])
    assert done.wait(SOON)
    wait_until(lambda: site.orders.stats().length == 0)
    assert attempts == [1, 1]
    assert len(asked) == 2
    (lost,) = site.told("spark_lost")
    assert "the cluster restarts" in str(lost.fields["error"])


def test_a_batch_is_one_job(site, spark):
    sums: list[int] = []

    @site.orders.consumer(spark=lambda: spark, batch=10, linger="60s")
    def handle(bodies: list[int], spark: SparkSession) -> None:
        sums.append(spark.createDataFrame([(n,) for n in bodies], "n int").count())

    site.orders.put_many(list(range(10)))
    wait_until(lambda: site.orders.stats().length == 0)
    assert sums == [10]


def test_jobs_that_run_on_in_other_threads_end_with_a_handler_that_fails(site, spark, tmp_path):
    from pyspark import InheritableThread

    marks, left = tmp_path / "marks", []
    done = threading.Event()

    def quietly() -> None:
        with pytest.raises(Exception, match="cancelled"):
            long_job(spark, marks)

    @site.orders.consumer(spark=lambda: spark)
    def handle(body: int, delivery: Delivery[int]) -> None:
        if delivery.attempt == 2:
            left.extend(workers_left(marks))
            done.set()
            return
        thread = InheritableThread(target=quietly, session=spark)
        thread.start()
        others.append(thread)
        wait_until(lambda: at_work(marks))
        raise ValueError("not this one")

    others: list[Any] = []
    site.orders.put(1)
    assert done.wait(SOON)
    others[0].join(SOON)
    assert left == []
