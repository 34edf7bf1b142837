"""With `sidecar=True` the host is a process of its own: its begin, whom it serves, its end."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import msgspec
import pytest

from embedq import Broker, EmbedqError, InvalidOption, Limits, StoreFailed, StoreFull
from embedq.app.beside import Beside, _orders
from embedq.app.settings import check, resolve
from embedq.app.sidecar import Orders, Sidecar, Word
from embedq.clock import SystemClock, VirtualClock
from embedq.ipc.liveness import has_ended, watch_process
from embedq.storage.owners import owner_of
from tests import processes
from tests.ipc.peer import eventually
from tests.processes import line_of

ROOT = Path(__file__).parents[2]

# Says who hosts the file, then waits: for the end, or for handlers.
APPLICATION = """
import sys, threading
from embedq import Broker

broker = Broker(sys.argv[1], sidecar=True, grace="20s")
orders = broker.queue("orders", int)

@orders.consumer
def handle(number):
    print("handling", number, flush=True)
    go_on.wait(0.5)
    done.append(number)

go_on, done = threading.Event(), []
orders.put(1)
print(broker.desk.host_pid, flush=True)
broker.run()
print("done", done, flush=True)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "app.db"


@pytest.fixture
def application(path: Path) -> Iterator[subprocess.Popen[str]]:
    """An application in a process group of its own, as in the foreground of a terminal."""
    process = subprocess.Popen(
        [sys.executable, "-c", APPLICATION, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,
    )
    with process:
        yield process
        process.kill()


def host_of(broker: Broker) -> int:
    pid = broker.desk.host_pid  # type: ignore[attr-defined]
    assert isinstance(pid, int)
    return pid


def is_closed(path: Path) -> bool:
    """Whether the file was closed in order, by now."""
    owner = owner_of(path)
    return owner is not None and not owner.alive and owner.clean


def test_the_host_is_a_child_that_can_be_seen_and_the_last_one_leaves_a_closed_file(
    path: Path,
) -> None:
    broker = Broker(path, sidecar=True)
    broker.queue("orders").put("x")
    pid = host_of(broker)
    assert pid != os.getpid()
    command = processes.run(
        ["ps", "-ww", "-o", "args=", "-p", str(pid)], capture_output=True, text=True, check=True
    )
    assert f"-m embedq.app.sidecar {path}" in command.stdout
    broker.stop()
    assert is_closed(path)
    with Broker(path, role="host") as alone:  # at once, and it finds everything
        assert alone.queue("orders").get(0).body == "x"


def test_another_application_keeps_it_and_a_signal_does_not_end_it(path: Path) -> None:
    first, second, plain = (
        Broker(path, sidecar=True),
        Broker(path, sidecar=True),
        Broker(path),
    )
    first.queue("orders").put("x")
    pid = host_of(first)
    assert host_of(second) == host_of(plain) == pid
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(pid, number)
    first.stop()
    assert second.queue("orders").get(60).body == "x"
    second.stop()
    assert not is_closed(path)
    assert plain.queue("orders").stats().stored == 1
    assert host_of(plain) == pid
    plain.stop()
    eventually(lambda: is_closed(path))


def test_a_ctrl_c_in_the_terminal_is_for_the_application_which_drains(
    application: subprocess.Popen[str], path: Path
) -> None:
    host = int(line_of(application))
    watch = watch_process(host)
    assert line_of(application) == "handling 1\n"
    os.killpg(application.pid, signal.SIGINT)
    out, told = application.communicate(timeout=60)
    assert (out, told, application.returncode) == ("done [1]\n", "", 0)
    assert watch is not None
    eventually(lambda: has_ended(watch))
    os.close(watch)
    with Broker(path) as broker:
        assert broker.queue("orders").stats().length == 0


def test_it_closes_the_file_when_its_application_was_killed(
    application: subprocess.Popen[str], path: Path
) -> None:
    assert int(line_of(application)) != application.pid
    application.kill()
    application.wait()
    eventually(lambda: is_closed(path), 30)


def test_one_whose_starter_is_gone_before_it_connects_does_not_stay(path: Path) -> None:
    starter = """
import os, sys
from embedq.app.beside import start_sidecar, _orders
from embedq.app.settings import resolve
from embedq import LIMITS
start_sidecar(_orders(resolve({"path": sys.argv[1]}), LIMITS))
os._exit(0)
"""
    processes.run([sys.executable, "-c", starter, str(path)], check=True, cwd=ROOT)
    eventually(lambda: is_closed(path), 30)


def test_a_sidecar_that_is_killed_is_followed_by_another_and_deliveries_stay(path: Path) -> None:
    with Broker(path, sidecar=True) as broker:
        orders = broker.queue("orders", int)
        orders.put_many(range(3))
        held = orders.get(60)
        pid = host_of(broker)
        os.kill(pid, signal.SIGKILL)
        orders.put(3)
        held.ack()
        assert host_of(broker) not in {pid, os.getpid()}
        assert [orders.get(60).body for _ in range(3)] == [1, 2, 3]


def test_a_process_without_a_sidecar_may_become_the_host_and_the_others_are_its_clients(
    path: Path,
) -> None:
    with Broker(path) as plain, Broker(path, sidecar=True) as other:
        other.queue("orders").put("x")
        assert host_of(other) == os.getpid()
        assert plain.queue("orders").get(60).body == "x"


@pytest.mark.parametrize("made", ["foreign", "folder", "open to others"])
def test_why_a_file_cannot_be_opened_is_said_as_without_a_sidecar(path: Path, made: str) -> None:
    if made == "folder":
        path.mkdir()
    else:
        path.write_bytes(b"not a database, and longer than the header of one" * 100)
        path.chmod(0o666 if made == "open to others" else 0o600)
    errors = []
    for sidecar in (False, True):
        with pytest.raises(EmbedqError) as caught:
            Broker(path, sidecar=sidecar).queue("orders").put("x")
        errors.append((type(caught.value), str(caught.value), caught.value.retryable))
    assert errors[0] == errors[1]


def test_a_sidecar_that_cannot_run_is_an_error_that_says_so(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "python"
    monkeypatch.setattr("embedq.app.beside._interpreter", lambda: str(broken))
    with pytest.raises(StoreFailed, match="no sidecar can be started: No such file"):
        Broker(path, sidecar=True).queue("orders").put("x")
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o700)
    with pytest.raises(StoreFailed, match="ended at its start, with exit code 3"):
        Broker(path, sidecar=True).queue("orders").put("x")


def test_the_limits_of_whoever_starts_it_count_at_the_host(path: Path) -> None:
    limits = Limits(disk_watermark_bytes=1 << 60)
    with (
        Broker(path, sidecar=True, limits=limits) as broker,
        pytest.raises(StoreFull),
    ):
        broker.queue("orders").put("x")


def test_what_a_sidecar_is_told_arrives_whole_and_counts(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    given = check({"path": "app.db", "durability": "normal", "redact": ["secret"]})
    orders = _orders(resolve(given), Limits(body_bytes=9))
    assert msgspec.json.decode(msgspec.json.encode(orders), type=Orders) == orders
    assert orders.path == str(path)
    words: SimpleQueue[Word] = SimpleQueue()
    words.put("asked")
    sidecar = Sidecar(orders, words)
    desk = sidecar._desk
    synchronous = desk.store.connection.execute("PRAGMA synchronous")  # type: ignore[attr-defined]
    assert (desk.limits.body_bytes, synchronous.fetchone()[0]) == (9, 1)  # normal; full is 2
    assert desk.redact is not None
    assert desk.redact("a secret") == "a [hidden]"
    assert sidecar.serve() == 0
    assert is_closed(path)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"role": "client"}, "role='client' .* contradict"),
        ({"role": "host"}, "role='host' .* contradict"),
        ({"path": ":memory:"}, ":memory: is no file"),
        ({"redact": str}, "is a function"),
        ({"clock": VirtualClock()}, "cannot have this clock"),
    ],
)
def test_what_a_process_of_its_own_cannot_do_is_refused(
    path: Path, given: dict[str, object], said: str
) -> None:
    broker = Broker(**{"path": path, "sidecar": True, **given})  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match=said):
        broker.queue("orders").put("x")
    assert not path.exists()


def test_the_clock_of_the_system_is_everybodys(path: Path) -> None:
    with Broker(path, sidecar=True, clock=SystemClock()) as broker:
        assert isinstance(broker.backing, Beside)


def test_events_of_the_host_are_heard_in_the_application(path: Path) -> None:
    broker = Broker(path, sidecar=True)
    heard = threading.Event()
    broker.on("paused", lambda _: heard.set())
    with broker:
        broker.queue("orders").pause()
        assert heard.wait(20)


def test_run_ends_with_the_reason_when_the_store_of_the_sidecar_has_stopped(path: Path) -> None:
    broker = Broker(path, sidecar=True)
    orders = broker.queue("orders")

    @orders.consumer
    def handle(_order: object) -> None:
        """Do nothing."""

    def break_down() -> None:
        eventually(lambda: broker.running)
        orders.put("x")
        path.rename(path.with_name("moved"))

    breaker = threading.Thread(target=break_down)
    breaker.start()
    with pytest.raises(StoreFailed, match=r"app\.db"):
        broker.run()
    breaker.join()
    assert not broker.running


def test_processes_that_start_at_the_same_instant_have_one_host(tmp_path: Path) -> None:
    program = """
import sys
from embedq import Broker
for line in sys.stdin:
    with Broker(line.strip(), sidecar=True) as broker:
        broker.queue("orders").put("x")
        print(broker.desk.host_pid, flush=True)
        sys.stdin.readline()
    print("left", flush=True)
"""
    rivals = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            cwd=ROOT,
        )
        for _ in range(2)
    ]
    try:
        for number in range(10 if os.environ.get("EMBEDQ_TEST_LONG") else 3):
            path = tmp_path / f"{number}.db"
            tell(rivals, str(path))
            hosts = {hear(process) for process in rivals}
            assert len(hosts) == 1
            tell(rivals, "go on")
            assert {hear(process) for process in rivals} == {"left"}
            assert is_closed(path)
            with Broker(path) as broker:
                assert broker.queue("orders").stats().stored == 2
            shutil.rmtree(path.with_name(f"{path.name}.ipc"), ignore_errors=True)
    finally:
        for process in rivals:
            process.kill()
            with process:
                pass


def tell(rivals: list[subprocess.Popen[str]], line: str) -> None:
    for process in rivals:
        assert process.stdin is not None
        process.stdin.write(f"{line}\n")
        process.stdin.flush()


def hear(process: subprocess.Popen[str]) -> str:
    return line_of(process).strip()
