"""A broker opens nothing before it must, runs what was declared, and ends when told."""

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from embedq import (
    Broker,
    DuplicateConsumer,
    InvalidName,
    InvalidOption,
    NotRunning,
    RetryPolicy,
    StoreClosed,
    StoreInUse,
    UsageError,
)
from embedq.broker.desk import Desk
from embedq.events import Notice
from tests.processes import line_of
from tests.vanishing import vanishing

SOON = 20.0


def poll(condition: Callable[[], object]) -> None:
    pause = threading.Event()
    for _ in range(4_000):
        if condition():
            return
        pause.wait(0.005)
    raise AssertionError("it did not happen")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "var" / "app.db"


def test_declaring_opens_nothing(path: Path) -> None:
    broker = Broker(path)
    orders = broker.queue("orders", dict, retry=RetryPolicy(3), max_length=5)

    @orders.consumer
    def handle(body: dict[str, Any]) -> str:
        return "handled"

    broker.on("dead", print)
    assert not path.parent.exists()
    assert handle({}) == "handled"
    assert not broker.running
    assert repr(broker) == f"Broker({str(path)!r})"


def test_the_first_use_makes_the_process_the_host(path: Path) -> None:
    broker = Broker(path)
    broker.queue("orders").put("x")
    assert path.exists()
    with pytest.raises(StoreInUse):
        Broker(path, role="host").queue("orders").put("y")
    broker.stop()
    with pytest.raises(NotRunning):
        broker.queue("orders").put("z")
    with Broker(path) as other:
        assert other.queue("orders").get(0).body == "x"
        assert [queue.name for queue in other.queues] == ["orders"]


def test_consumers_run_between_start_and_stop(path: Path) -> None:
    broker = Broker(path)
    orders = broker.queue("orders")
    seen: list[object] = []

    @orders.consumer(concurrency=2)
    def handle(body: object) -> None:
        seen.append(body)

    @orders.consumer(group="audit")
    async def audit(body: object) -> None:
        seen.append(("audit", body))

    with broker:
        orders.put("one")
        poll(lambda: len(seen) == 2)

        @orders.consumer(group="late")
        def late(body: object) -> None:
            seen.append(("late", body))

        orders.put("two")
        poll(lambda: len(seen) == 5)
    assert sorted(map(str, seen)) == sorted(
        ["one", "two", "('audit', 'one')", "('audit', 'two')", "('late', 'two')"]
    )
    with broker:  # once more
        orders.put("three")
        poll(lambda: len(seen) == 8)


def test_a_second_function_in_a_group_is_refused_at_its_decoration(path: Path) -> None:
    orders = Broker(path).queue("orders")

    @orders.consumer
    def one(body: object) -> None: ...

    with pytest.raises(DuplicateConsumer):

        @orders.consumer
        def two(body: object) -> None: ...

    with pytest.raises(InvalidOption, match="did you mean concurrency="):
        orders.consumer(concurency=2)  # type: ignore[call-overload]


def test_a_broker_starts_once(path: Path) -> None:
    broker = Broker(path)
    with broker, pytest.raises(UsageError, match="runs already"):
        broker.start()
    assert broker.stop() is None


def test_async_handlers_run_on_the_loop_of_async_with(path: Path) -> None:
    broker = Broker(path)
    orders = broker.queue("orders")
    seen: list[object] = []

    @orders.consumer
    async def handle(body: object) -> None:
        seen.append(asyncio.get_running_loop())

    async def main() -> None:
        async with broker:
            await orders.aput("x")
            for _ in range(2_000):
                if seen:
                    break
                await asyncio.sleep(0.005)
            assert seen == [asyncio.get_running_loop()]
            assert (await broker.astats()).events["acked"] >= 0

    asyncio.run(main())
    assert not broker.running


def test_the_last_explicit_declaration_wins_and_says_so(path: Path) -> None:
    told: list[Notice] = []
    with Broker(path) as broker:
        broker.queue("orders", max_length=5, lease="1m")
        assert broker.queue("orders").policy.max_length == 5
    broker = Broker(path)
    broker.on("settings_changed", told.append)
    orders = broker.queue("orders", max_length=9)
    with broker:
        assert orders.policy.max_length == 9
        assert orders.policy.lease_ms == 60_000
        broker.queue("orders", retry=RetryPolicy(2))
        broker.desk.events.flush()
    assert [notice.fields["changes"] for notice in told] == [
        "max_length 5 -> 9",
        "max_attempts 5 -> 2",
    ]


def test_listeners_hear_from_the_start_to_the_end_and_can_leave(path: Path) -> None:
    broker = Broker(path)
    told: list[str] = []

    @broker.on("*")
    def everything(notice: Notice) -> None:
        told.append(notice.name)

    paused: list[Notice] = []
    off = broker.on("paused", paused.append, queue="b")
    with broker:
        for name in ("a", "b"):
            broker.queue(name).pause()
        broker.desk.events.flush()
        off()
        broker.queue("b").pause()
    assert [notice.queue for notice in paused] == ["b"]
    assert told[:3] == ["started", "queue_declared", "paused"]
    assert told[-1] == "stopped"
    with pytest.raises(InvalidOption, match="no event"):
        broker.on("deed", print)
    with pytest.raises(InvalidOption, match="no event"):
        broker.on("deed")
    with pytest.raises(InvalidOption, match="no event"):
        broker.on(print)  # type: ignore[call-overload]


def test_wrong_arguments_are_named_at_the_call() -> None:
    with pytest.raises(InvalidOption, match="durability='off'"):
        Broker("x.db", durability="off")  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="redact="):
        Broker("x.db", redact="(")
    with pytest.raises(InvalidName):
        Broker("x.db").queue("")
    with pytest.raises(InvalidOption, match="no option 'lenght'"):
        Broker("x.db").queue("q", lenght=3)  # type: ignore[call-overload]


def test_stop_ends_run_from_another_thread(path: Path) -> None:
    broker = Broker(path, grace="5s")
    orders = broker.queue("orders")
    seen: list[object] = []
    orders.consumer(seen.append)
    reports: list[object] = []
    thread = threading.Thread(target=lambda: reports.append(broker.run()))
    thread.start()
    poll(lambda: broker.running)
    orders.put("x")
    poll(lambda: seen)
    assert broker.stop() is None
    thread.join(SOON)
    assert not thread.is_alive()
    assert len(reports) == 1


@pytest.mark.parametrize("looks", range(4))
@pytest.mark.parametrize("attribute", ["_backing", "_runner"])
def test_several_threads_may_stop_a_broker(path: Path, attribute: str, looks: int) -> None:
    broker = vanishing(Broker, attribute, looks)(path)
    other = Broker(path)
    other.queue("orders").consumer(print)
    with other:
        setattr(broker, attribute, getattr(other, attribute))
        asyncio.run(broker.astop())
    assert not other.running


def test_asgi_lifespan_runs_the_broker_while_the_application_does(path: Path) -> None:
    broker = Broker(path)
    orders = broker.queue("orders")
    seen: list[object] = []
    orders.consumer(seen.append)

    async def main() -> None:
        async with broker.lifespan(None) as state:
            assert state == {"broker": broker}
            await orders.aput("x")
            for _ in range(2_000):
                if seen:
                    break
                await asyncio.sleep(0.005)

    asyncio.run(main())
    assert seen == ["x"]
    assert not broker.running


PROGRAM = """
import sys, threading
from embedq import Broker

broker = Broker(sys.argv[1], grace="60s")
orders = broker.queue("orders")
drains = threading.Event()
broker.on("drain_started", lambda notice: drains.set())

@orders.consumer
def handle(body: str) -> None:
    print("begun", flush=True)
    drains.wait(60)
    print("done", flush=True)

orders.put("x")
print(broker.run())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["TERM", "INT"])
def test_a_signal_drains_and_the_exit_is_clean(path: Path, number: signal.Signals) -> None:
    program = [sys.executable, "-c", PROGRAM, str(path)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert line_of(process) == "begun\n"
            process.send_signal(number)
            rest, _ = process.communicate(timeout=SOON)
        finally:
            process.kill()
    assert rest.startswith("done\nReport(finished=1, released=0, stuck=0")
    assert process.returncode == 0
    with Broker(path) as broker:
        assert broker.queue("orders").stats().stored == 0


EXIT = """
import sys
from embedq import Broker
broker = Broker(sys.argv[1])
broker.queue("orders").put("x")
"""


def test_a_script_that_forgets_to_stop_leaves_a_clean_file(path: Path) -> None:
    subprocess.run([sys.executable, "-c", EXIT, str(path)], check=True, timeout=60)
    with Broker(path) as broker:
        assert broker.stats().events.get("unclean_start") is None
        desk = broker.desk
        assert isinstance(desk, Desk)
        assert desk.store.clean


KILLED = EXIT + "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"


def test_an_unclean_end_is_told(path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    told: list[str] = []
    broker = Broker(path)
    broker.on("unclean_start", lambda notice: told.append(notice.text))
    with broker:
        broker.desk.events.flush()
    assert len(told) == 1


def test_an_unclean_end_is_told_once_however_short_those_are_who_come_after_it(path: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False, timeout=60)
    told: list[str] = []
    for _ in range(3):  # none of them lives long enough to count what is stored
        broker = Broker(path)
        broker.on("unclean_start", lambda notice: told.append(notice.text))
        broker.queue("orders").put("x")
        broker.desk.events.flush()
        broker.stop()
    assert len(told) == 1


def test_a_broker_that_is_not_open_works_in_the_children_of_a_fork(path: Path) -> None:
    program = f"""
import os
from embedq import Broker
broker = Broker({str(path)!r})
orders = broker.queue("orders")
children = []
for number in range(3):
    child = os.fork()
    if not child:
        orders.put(number)
        broker.stop()
        raise SystemExit(7)
    children.append(child)
for child in children:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
orders.put(3)
broker.stop()
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, timeout=60)
    with Broker(path) as broker:
        assert sorted(d.body for d in broker.queue("orders").get_many(9)) == [0, 1, 2, 3]


def test_a_forked_child_is_told_and_does_no_harm(path: Path) -> None:
    broker = Broker(path)
    orders = broker.queue("orders")
    orders.put("x")
    program = f"""
import os
from embedq import Broker, ForkedBroker
broker = Broker({str(path)!r} + "2")
orders = broker.queue("orders")
orders.put("x")
child = os.fork()
if not child:
    try:
        orders.put("y")
    except ForkedBroker:
        raise SystemExit(7)
    raise SystemExit(1)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 7
assert orders.stats().stored == 1
orders.put("z")
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, timeout=60)
    broker.stop()


def test_a_relative_path_stays_the_same_file_when_the_process_goes_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    broker = Broker("q.db")
    with broker:
        broker.queue("q").put("x")
    monkeypatch.chdir(tmp_path / "there")
    with broker:
        assert broker.queue("q").get(timeout=SOON).body == "x"
    assert not list((tmp_path / "there").iterdir())


def test_who_waits_when_the_broker_stops_is_told_so(path: Path) -> None:
    broker = Broker(path)
    orders = broker.queue("orders")
    began, told = threading.Event(), list[BaseException]()

    def get() -> None:
        broker.queue("other").stats()
        began.set()
        try:
            orders.get()
        except (StoreClosed, NotRunning) as error:  # the second if it had not begun to wait
            told.append(error)

    thread = threading.Thread(target=get)
    thread.start()
    assert began.wait(SOON)
    broker.stop()
    thread.join(SOON)
    (error,) = told
    assert "stopped" in str(error)
