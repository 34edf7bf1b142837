"""Pools of worker processes: deaths, timeouts, recycling, and what is told of them."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from embedq import Broker
from embedq.errors import UsageError
from embedq.events import Notice
from embedq.ipc.marks import Marks
from embedq.lifecycle import Outcome
from tests.workers.pooled import App, until

pytestmark = pytest.mark.slow

KILLER = """
jobs = broker.queue("jobs", retry=AT_ONCE)

@jobs.consumer(pool="process", concurrency=2)
def work(n: int) -> None:
    note("start", n, os.getpid())
    if n == 13:
        os.kill(os.getpid(), signal.SIGKILL)
    if n == 17:
        ctypes.string_at(0)
    note("end", n, os.getpid())
"""


def test_a_message_that_kills_its_worker_is_dead_after_three_of_them(tmp_path: Path) -> None:
    with App(tmp_path, KILLER) as app:
        app.put("jobs", *range(40))
        app.wait("jobs")
        until(lambda: len(app.told("worker_died")) == 6)
        starts = Counter(int(words[1]) for words in app.said() if words[0] == "start")
        ends = Counter(int(words[1]) for words in app.said() if words[0] == "end")
        assert starts.pop(13) == starts.pop(17) == 3
        assert starts == ends == dict.fromkeys(set(range(40)) - {13, 17}, 1)
        letters = {letter.body: letter for letter in app.letters("jobs")}
        deaths = app.told("worker_died")
        # Each death was seen for what it was, and cost one process.
        assert {death["pid"] for death in deaths} == {
            int(words[2])
            for words in app.said()
            if words[:2] in (["start", "13"], ["start", "17"])
        }
        for death in deaths:
            assert (death["started"], len(death["messages"])) == (1, 1)
            assert death["worker"].startswith("embedq-worker-work-")
        until(lambda: len(app.pids) == 2)
    killed, crashed = letters[b"13"], letters[b"17"]
    assert [attempt.error.type for attempt in killed.attempts] == ["SIGKILL"] * 3
    assert [attempt.error.type for attempt in crashed.attempts] == ["SIGSEGV"] * 3
    assert "in work" in crashed.attempts[-1].error.traceback  # what faulthandler wrote
    by_message = {death["messages"][0]: death for death in deaths}
    assert "SIGKILL" in by_message[killed.id]["cause"]
    assert by_message[killed.id]["rss"] >= 0
    assert "Segmentation fault" in by_message[crashed.id]["cause"]


QUICK = """
jobs = broker.queue("jobs", retry=AT_ONCE)

@jobs.consumer(pool="process")
def work(n: int, delivery: Delivery) -> None:
    note("start", n, delivery.attempt, os.getpid())
    if n == 6 and delivery.attempt == 1:
        time.sleep(60)
"""
FORGETFUL = "from embedq.ipc.marks import Marks\nMarks.end = lambda *_: None\n"


def starts_after_a_kill(app: App) -> dict[int, int]:
    """Kill a worker in the middle of quick messages; return how often each has started."""
    app.put("jobs", 0)  # so that it knows how quick they are, and fetches ahead
    app.wait("jobs")
    app.put("jobs", *range(1, 21))
    until(lambda: any(words[1] == "6" for words in app.said()))
    os.kill(int(app.said()[-1][3]), signal.SIGKILL)
    app.wait("jobs")
    return Counter(int(words[1]) for words in app.said())


def test_what_was_done_before_a_kill_is_not_done_again(tmp_path: Path) -> None:
    with App(tmp_path, QUICK) as app:
        starts = starts_after_a_kill(app)
        assert starts == dict.fromkeys(range(21), 1) | {6: 2}
        (crash,) = app.told("crashed_delivery")
        assert crash["seq"] == 7
        assert [fields["started"] for fields in app.told("worker_died")] == [1]


def test_a_worker_that_does_not_note_what_it_has_done_is_noticed(tmp_path: Path) -> None:
    for attempt in range(5):  # what the host was told before the kill needs no note
        folder = tmp_path / str(attempt)
        folder.mkdir()
        with App(folder, QUICK, FORGETFUL) as app:
            starts = starts_after_a_kill(app)
        assert Marks.end.__name__ == "end", "the fault is in this process, too"
        if any(starts[number] == 2 for number in range(1, 6)):
            return
    pytest.fail("the planted fault did nothing")


LATE = """
jobs = broker.queue("jobs", max_attempts=1)
calm = broker.queue("calm")

@jobs.consumer(pool="process", concurrency=2, timeout="1s")
def work(how: str) -> None:
    note("start", how, time.monotonic())
    if how == "sleep":
        time.sleep(600)
    elif how == "spin":
        while True:
            pass
    elif how == "socket":
        socket.create_server(("127.0.0.1", 0)).accept()
    elif how == "swallow":
        while True:
            try:
                time.sleep(600)
            except TimeoutError:
                note("swallowed", how)
    elif how == "deaf":
        while True:
            try:
                time.sleep(600)
            except BaseException:
                note("swallowed", how)
    elif how == "regex":
        re.match("(a+)+b", "a" * 60)
    elif how == "gil":
        sum(range(10**13))

@calm.consumer(pool="process", timeout="60s")
def be_calm(n: int) -> None:
    note("calm", n, os.getpid())

waits = broker.queue("waits", max_attempts=1)

@waits.consumer(pool="process", timeout="1s")
async def wait(how: str) -> None:
    note("start", how, time.monotonic())
    try:
        await asyncio.sleep(600)
    finally:
        note("cancelled", how)
"""


def test_a_handler_that_is_late_is_ended_whatever_it_does(tmp_path: Path) -> None:
    kinds = ["sleep", "spin", "socket", "swallow", "deaf", "regex", "gil"]
    dead_at: dict[object, float] = {}
    with App(tmp_path, LATE) as app:
        app.broker.on(
            "dead", lambda notice: dead_at.setdefault(notice.fields["id"], time.monotonic())
        )
        app.put("calm", 0)
        app.wait("calm")
        app.put("jobs", *kinds)
        app.put("waits", "await")
        app.wait("jobs", "waits")
        app.put("calm", 1)
        app.wait("calm")
        until(lambda: len(dead_at) == len(kinds) + 1)
        letters = {letter.body.decode(): letter for letter in app.letters("jobs")}
        letters |= {letter.body.decode(): letter for letter in app.letters("waits")}
        began = {words[1]: float(words[2]) for words in app.said() if words[0] == "start"}
        deaths = app.told("worker_died")
    assert len({words[2] for words in app.said() if words[0] == "calm"}) == 1
    assert ["cancelled", "await"] in app.said()
    assert ["swallowed", "swallow"] in app.said()
    assert ["swallowed", "deaf"] in app.said()
    for kind in [*kinds, "await"]:
        (attempt,) = letters[kind].attempts
        assert dead_at[letters[kind].id] - began[kind] >= 1, kind
        assert attempt.error.type == "Timeout", kind
        assert "longer than 1 seconds" in attempt.error.message, kind
        assert attempt.outcome == Outcome.TIMED_OUT, kind
    # Nothing but SIGKILL ends these.
    killed = {death["messages"][0]: death for death in deaths}
    assert set(killed) == {letters["deaf"].id, letters["gil"].id}
    assert all("Timeout" in death["cause"] for death in deaths)
    assert not app.told("suspect")


TOLD = """
jobs = broker.queue("jobs", max_attempts=1)

@jobs.consumer(pool="process")
def work(n: int) -> None:
    print("the handler prints", n, flush=True)
    raise ValueError("no %d" % n)
"""


def test_what_happens_in_a_worker_is_told_in_its_application_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    source = TOLD + 'broker.on("handler_failed", lambda notice: note("heard", os.getpid()))\n'
    with caplog.at_level(logging.INFO, "embedq"), App(tmp_path, source) as app:
        app.put("jobs", 1, 2)
        app.wait("jobs")
        until(lambda: len(app.told("handler_failed")) == 2)
        stats = app.broker.queue("jobs").stats()
        assert stats.events["handler_failed"] == 2
    fields = app.told("handler_failed")[0]
    assert (fields["queue"], fields["consumer"], fields["seq"]) == ("jobs", "work", 1)
    assert fields["error"] == "ValueError: no 1"
    assert sum("attempt 1: ValueError: no 1" in each.getMessage() for each in caplog.records) == 1
    assert app.said() == [["heard", str(os.getpid())]] * 2
    out, err = capfd.readouterr()
    assert "the handler prints 1\nthe handler prints 2\n" in out
    assert "ValueError" not in err


OLD = """
jobs = broker.queue("jobs")
large = broker.queue("large")
idle = broker.queue("idle")
kept = []

@jobs.consumer(pool="process", concurrency=2, max_messages=5)
def work(n: int) -> None:
    note("work", n, os.getpid())
    time.sleep(0.02)

@large.consumer(pool="process", max_rss="120MB")
def grow(n: int) -> None:
    note("grow", n, os.getpid())
    kept.append(b"x" * (150 << 20))

@idle.consumer(pool="process", max_age="2s")
def wait(n: int) -> None:
    note("wait", n, os.getpid())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only on Linux does memory shrink again")
def test_an_old_worker_goes_when_its_successor_is_there(tmp_path: Path) -> None:
    with App(tmp_path, OLD) as app:
        jobs, large, idle = app.crews
        until(lambda: len(app.told("consumer_registered")) == 3)
        app.put("jobs", 0, 1)
        app.wait("jobs")
        first_of_idle = idle.pids
        app.put("large", 0)
        fewest, last = 9, 1

        def recycled(name: str) -> int:
            return sum(fields["consumer"] == name for fields in app.told("worker_recycled"))

        def look() -> bool:
            nonlocal fewest, last
            fewest = min(fewest, len(jobs.pids))
            app.pids  # noqa: B018 - notes whom it has seen
            app.put("jobs", last := last + 1)
            return bool(recycled("work") > 2 and recycled("grow") and recycled("wait"))

        until(look)
        app.wait("jobs", "large")
        assert fewest >= 2, "capacity was lost"
        until(lambda: idle.pids != first_of_idle and first_of_idle[0] not in idle.pids)
        until(lambda: len(large.pids) == 1)
        reasons = {fields["consumer"]: fields["reason"] for fields in app.told("worker_recycled")}
    done = Counter(words[1] for words in app.said() if words[0] == "work")
    assert done == {str(n): 1 for n in range(last + 1)}
    assert len({words[2] for words in app.said() if words[0] == "work"}) > 2
    assert reasons["work"].endswith(" messages")
    assert reasons["grow"].endswith(" MB of memory")
    assert reasons["wait"].endswith(" seconds")
    assert not app.told("worker_died")


BROKEN = """
jobs = broker.queue("jobs")
if is_worker():
    note("import", time.monotonic())
    if not (FOLDER / "mended").exists():
        {what}

@jobs.consumer(pool="process")
def work(n: int) -> None:
    note("work", n)
"""


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ('raise ValueError("the table is missing")', "ValueError: the table is missing"),
        ("broker = Broker(FOLDER / 'other.db'); jobs = broker.queue('others')", "no consumer"),
        ("os._exit(3)", "exit code 3 before it was ready"),
        ("sys.exit(4)", "SystemExit: 4"),
    ],
    ids=["raises", "registers another one", "exits", "asks to exit"],
)
def test_a_worker_that_cannot_start_is_told_about_and_tried_again(
    tmp_path: Path, what: str, told: str
) -> None:
    with App(tmp_path, BROKEN.format(what=what)) as app:
        app.put("jobs", 1)
        until(lambda: len(app.told("worker_refused")) >= 2)
        (tmp_path / "mended").touch()
        app.wait("jobs")
        assert app.said()[-1] == ["work", "1"]
        refusals = app.told("worker_refused")
        assert told in refusals[0]["error"]
        assert refusals[0]["number"] == 1
        assert refusals[0]["consumer"] == "work"
        assert len(refusals) < 8, "it was tried without a pause"
        assert not app.told("crashed_delivery")


@pytest.fixture
def without_sigchld() -> Iterator[None]:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGCHLD, before)


@pytest.mark.skipif(sys.platform != "linux", reason="only on Linux are there pidfds")
@pytest.mark.usefixtures("without_sigchld")
def test_an_application_that_ignores_the_ends_of_its_children_has_workers_too(
    tmp_path: Path,
) -> None:
    with App(tmp_path, KILLER) as app:
        app.put("jobs", 1, 13, 2)
        app.wait("jobs")
        (letter,) = app.letters("jobs")
        until(lambda: len(app.pids) == 2)
    assert str(letter.reason) == "crashed"
    assert {words[1] for words in app.said() if words[0] == "end"} == {"1", "2"}


def test_a_broker_in_memory_has_no_worker_processes() -> None:
    broker = Broker(":memory:")
    broker.queue("jobs").consumer(pool="process")(_handle)
    with pytest.raises(UsageError, match="in memory"):
        broker.start()
    broker.stop()


def _handle(body: int) -> None:
    """Do nothing."""


STOPPED = """
jobs = broker.queue("jobs", retry=AT_ONCE)

@jobs.consumer(pool="process", concurrency=2)
def work(n: int, delivery: Delivery) -> None:
    note("start", n, delivery.attempt, os.getpid())
    time.sleep(2.0 if (n, delivery.attempt) == (0, 1) else 0.05)
    note("end", n, delivery.attempt, os.getpid())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only on Linux is a heartbeat this quick")
def test_a_worker_that_is_stopped_loses_its_message_and_goes_on_later(tmp_path: Path) -> None:
    with App(tmp_path, STOPPED) as app:
        app.put("jobs", 0)
        until(app.said)
        stopped = int(app.said()[0][3])
        os.kill(stopped, signal.SIGSTOP)
        try:
            app.wait("jobs")  # the other one has it
        finally:
            os.kill(stopped, signal.SIGCONT)
        until(lambda: ["end", "0", "1", str(stopped)] in app.said())
        (lost,) = app.told("client_lost")
        assert (lost["pid"], lost["started"]) == (stopped, 1)
        again = next(words for words in app.said() if words[:3] == ["end", "0", "2"])
        assert int(again[3]) != stopped

        def both_work() -> bool:
            app.put("jobs", 1, 1)
            return len({words[3] for words in app.said() if words[1] == "1"}) == 2

        until(both_work)
        app.wait("jobs")
        assert not app.letters("jobs")


GIL = """
jobs = broker.queue("jobs", lease="1s", retry=AT_ONCE)

@jobs.consumer(pool="process")
def work(how: str, delivery: Delivery) -> None:
    note("start", how, delivery.attempt)
    if how == "gil":
        began, most = time.monotonic(), 10**6
        while time.monotonic() - began < 2.5:  # in few and long calls that keep the GIL
            sum(range(most))
            most = min(2 * most, 10**8)
    else:
        time.sleep(2.5)
    note("end", how)
"""


def test_a_handler_that_runs_for_longer_than_its_lease_has_its_message_once(
    tmp_path: Path,
) -> None:
    with App(tmp_path, GIL) as app:
        app.put("jobs", "gil", "sleep")
        app.wait("jobs")
        assert app.said() == [
            ["start", "gil", "1"],
            ["end", "gil"],
            ["start", "sleep", "1"],
            ["end", "sleep"],
        ]
        assert not app.told("lease_expired")


def test_a_pool_of_an_application_that_is_not_the_host(tmp_path: Path) -> None:
    client = 'broker = Broker(FOLDER / "app.db", grace="20s", role="client")\n'
    with Broker(tmp_path / "app.db") as host:
        host.backing.wait_until_served()
        deaths: list[Notice] = []
        host.on("worker_died", deaths.append)
        with App(tmp_path, client + KILLER) as app:
            app.put("jobs", *range(10), 13)
            app.wait("jobs")
            (letter,) = app.letters("jobs")
            until(lambda: len(deaths) == 3)
            until(lambda: len(app.told("worker_died")) == 3)
        # Whoever watched over them has said how they ended.
        assert [attempt.error.type for attempt in letter.attempts if attempt.error] == (
            ["SIGKILL"] * 3
        )
        starts = Counter(int(words[1]) for words in app.said() if words[0] == "start")
        assert starts == dict.fromkeys(range(10), 1) | {13: 3}
