"""The report with Spark: its figures are those that plain Python finds in the same history."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest

from embedq.broker.host import open_engine
from embedq.errors import InvalidOption
from embedq.message import ErrorInfo
from embedq.policy import QueuePolicy

START = datetime(2026, 3, 1, 8, tzinfo=UTC)
OUTCOMES = ("acked", "failed", "timed_out", "crashed", "dead")
FRAME = 'File "/srv/app.py", line {n}, in {name}\n'


def history(rows=600, queues=15):
    """Deliveries of many queues in three hours; some without a put, some that were no delivery."""
    made = random.Random(7)
    found = []
    for n in range(rows):
        started = START + timedelta(seconds=made.randrange(3 * 3600))
        outcome = made.choices(OUTCOMES, (80, 8, 2, 3, 7))[0]
        attempt = 0 if n % 97 == 5 else made.choices((1, 2, 3, 12), (8, 2, 1, 0.2))[0]
        kind = None if outcome == "acked" else made.choice(("ValueError", "KeyError", None))
        found.append(
            {
                "queue": f"q{int(made.paretovariate(1)) % queues}",
                "id": f"{n:032x}",
                "group": made.choice(("default", "audit")),
                "attempt": attempt,
                "worker": made.choice(("a 1", "b 2", None)),
                "started_at": started,
                "ended_at": started + timedelta(milliseconds=made.randrange(1, 5000)),
                "outcome": outcome,
                "put_at": None if n % 9 == 0 else started - timedelta(milliseconds=n * 37 % 9000),
                "error_type": kind,
                "error_message": kind and f"order {n}",
                "error_traceback": kind and FRAME.format(n=n, name=kind.lower()),
            }
        )
    return found


def write(folder, rows):
    import pyarrow as pa
    from pyarrow import parquet

    batch = folder / "history" / "batch=00000001"
    batch.mkdir(parents=True)
    table = pa.Table.from_pylist(rows)
    parquet.write_table(
        table.set_column(3, "attempt", table["attempt"].cast(pa.int32())), batch / "x.parquet"
    )


def read(reported, name):
    from pyarrow import parquet

    path = next(one for one in reported.tables if one.name == f"{name}.parquet")
    return parquet.read_table(path).to_pylist()


def percentile(values, share):
    """The smallest value that is not below this share of all."""
    ordered = sorted(values)
    return ordered[max(0, -(-int(share * 100) * len(ordered) // 100) - 1)]


def seconds(values):
    return [value.total_seconds() for value in values]


def check(line, rows):
    """See that a line of a table says of deliveries what Python does."""
    tried = [row for row in rows if row["attempt"] > 0]
    first = [row for row in rows if row["attempt"] == 1]
    assert line["deliveries"] == len(tried)
    assert line["messages"] == len(first)
    for outcome in OUTCOMES:
        assert line[outcome] == sum(row["outcome"] == outcome for row in rows)
    assert line["acked_at_once"] == sum(row["outcome"] == "acked" for row in first)
    waits = seconds(row["started_at"] - row["put_at"] for row in first if row["put_at"])
    runs = seconds(row["ended_at"] - row["started_at"] for row in tried)
    assert line["waits"] == len(waits)
    for name, values in (("wait", waits), ("run", runs)):
        if not values:
            assert line[f"{name}_p50_s"] is None
            continue
        for p in (50, 90, 99):
            assert line[f"{name}_p{p}_s"] == pytest.approx(percentile(values, p / 100)), (name, p)
        assert line[f"{name}_longest_s"] == pytest.approx(max(values))
        assert line[f"{name}_total_s"] == pytest.approx(sum(values))


def test_the_figures_of_an_archive_are_those_that_python_computes(spark, tmp_path):
    from embedq.spark.pipelines import report

    rows = history()
    write(tmp_path / "archive", rows)
    told: list[str] = []
    reported = report(spark, tmp_path / "archive", tmp_path / "report", progress=told.append)
    tried = [row for row in rows if row["attempt"] > 0]
    assert reported.deliveries == len(tried)
    assert len(told) > 3
    assert len(reported.plots) == 5
    assert "The archive has no dead letters" in reported.page.read_text()

    queues = read(reported, "queues")
    assert len(queues) == len({row["queue"] for row in rows})
    for line in queues:
        check(line, [row for row in rows if row["queue"] == line["queue"]])
    for line in read(reported, "workers"):
        of = {key: line[key] for key in ("queue", "group", "worker")}
        check(line, [row for row in tried if of.items() <= row.items()])
    hours = read(reported, "times")
    assert sum(line["deliveries"] for line in hours) == len(tried)
    for line in hours:
        end = line["since"] + timedelta(minutes=1)
        check(line, [row for row in tried if line["since"] <= row["ended_at"] < end])

    apart = [line["queue"] for line in queues[:12]]
    others = [row for row in tried if row["queue"] not in apart]
    assert others, "all queues have a line of their own"
    beyond = [line for line in read(reported, "queue_times") if line["queue"] == ""]
    assert sum(line["deliveries"] for line in beyond) == len(others)
    attempts = read(reported, "attempts")
    assert sum(line["acked"] for line in attempts if line["attempt"] == 10) == sum(
        row["outcome"] == "acked" for row in tried if row["attempt"] == 12
    )
    longest = read(reported, "longest_runs")
    assert [line["run_s"] for line in longest] == pytest.approx(
        sorted(seconds(row["ended_at"] - row["started_at"] for row in tried), reverse=True)[:20]
    )
    failed = [row for row in rows if row["outcome"] != "acked"]
    causes = read(reported, "failures")
    assert sum(line["deliveries"] for line in causes) == len(failed)
    assert {line["type"] for line in causes} == {"ValueError", "KeyError", *OUTCOMES[1:]}
    known = {row["id"]: row for row in failed}
    for line in causes:
        assert all(known[id]["queue"] == line["queue"] for id in line["ids"].split())


def test_a_report_of_queues_marks_failures_and_dead_letters_as_triage_does(spark, tmp_path):
    from embedq.spark.pipelines import report
    from embedq.spark.pipelines.fingerprints import fingerprint

    path = tmp_path / "shop.db"
    with open_engine(path, upkeep=False) as desk:
        queue = desk.queue("orders", QueuePolicy(retain_ms=86_400_000))
        desk.queue("idle")
        desk.put_many(queue, [b"%d" % n for n in range(9)])
        for n, lease in enumerate(desk.claim(desk.group(queue), 9)):
            if n < 5:
                desk.ack(lease)
            else:
                error = ErrorInfo("ValueError", f"<b>{n}</b>", FRAME.format(n=n, name="ship"))
                desk.reject(lease, "no", error)
    options = {"path": str(path), "subscribePattern": ".*"}
    reported = report(spark, options, tmp_path / "report", title="Orders & more")
    assert (reported.deliveries, reported.letters) == (9, 4)
    text = reported.page.read_text()
    assert "<h1>Orders &amp; more</h1>" in text
    assert "<b>5</b>" not in text
    mark = fingerprint("ValueError", "", FRAME.format(n=0, name="ship"))
    (letters,) = read(reported, "dead_letters")
    assert (letters["fingerprint"], letters["letters"]) == (mark, 4)
    (failure,) = read(reported, "failures")
    assert (failure["fingerprint"], failure["dead"]) == (mark, 4)

    # Nobody has the history of it, and it is no error.
    nothing = report(spark, options | {"subscribePattern": "idle"}, tmp_path / "report")
    assert (nothing.deliveries, nothing.letters, nothing.plots) == (0, 0, ())
    assert list((tmp_path / "report" / "plots").iterdir()) == []
    assert "Nothing was delivered" in nothing.page.read_text()


def test_what_no_report_can_be_made_of_is_said_before_anything_is_read(spark, tmp_path):
    from embedq.spark.pipelines import report

    with pytest.raises(InvalidOption, match="is no archive"):
        report(spark, tmp_path, tmp_path / "report")
    with pytest.raises(InvalidOption, match="no local path"):
        report(spark, tmp_path, "s3://bucket/report")
    with pytest.raises(InvalidOption, match="states"):
        report(spark, {"path": "x", "subscribe": "q", "states": "dead"}, tmp_path)
    assert list(tmp_path.iterdir()) == []
