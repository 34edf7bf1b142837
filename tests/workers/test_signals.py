"""Signals of a running broker, in real processes."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from embedq.workers.signals import Signals, drain_at_signal

PROGRAM = """
import os, signal, sys, threading
from embedq.broker.host import open_engine
from embedq.workers.crews import ConsumerRunner
from embedq.workers.signals import Signals, drain_at_signal
from embedq.workers.spec import make_spec

path, grace, kind, own = sys.argv[1], float(sys.argv[2]), sys.argv[3], sys.argv[4]
if own == "own":
    signal.signal(signal.SIGTERM, lambda *_: os.write(1, b"own handler\\n"))
if own == "exits":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
if own == "ignored":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
hold = threading.Event()

def handle(order: int):
    os.write(1, f"start {order}\\n".encode())
    hold.wait(600)
    os.write(1, f"end {order}\\n".encode())

with open_engine(path) as desk:
    if kind == "short":
        desk.events.on("drain_started", lambda notice: hold.set())
    runner = ConsumerRunner(desk, [make_spec(handle, queue="orders", concurrency=4)])
    with Signals() as signals:
        runner.start()
        report = drain_at_signal(runner, signals, grace)
    os.write(1, f"report {report.finished} {report.released} {report.stuck}\\n".encode())
"""


class Program:
    def __init__(self, path: Path, *, grace: float, kind: str, own: str = "-") -> None:
        script = path.parent / "program.py"
        script.write_text(textwrap.dedent(PROGRAM))
        self.lines: list[str] = []
        command = [sys.executable, str(script), str(path), str(grace), kind, own]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.strip())

    def until(self, condition: Callable[[list[str]], object]) -> None:
        end = time.monotonic() + 60
        while not condition(self.lines):
            assert time.monotonic() < end, self.lines
            assert self.process.poll() is None or condition(self.lines), self.lines
            threading.Event().wait(0.01)

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        code = self.process.wait(60)
        self._reader.join(60)
        return code

    def close(self) -> None:
        self.process.kill()
        self.process.wait(60)
        self._reader.join(60)
        if self.process.stdout is not None:
            self.process.stdout.close()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    from embedq.broker.host import open_engine

    path = tmp_path / "orders.db"
    with open_engine(path) as desk:
        queue = desk.queue("orders")
        desk.group(queue)
        desk.put_many(queue, [b"%d" % n for n in range(4)], 2)
    return path


@pytest.fixture
def start(store: Path) -> Iterator[Callable[..., Program]]:
    programs: list[Program] = []

    def begin(**options) -> Program:
        programs.append(Program(store, **options))
        program = programs[-1]
        program.until(lambda lines: sum(line.startswith("start") for line in lines) == 4)
        return program

    yield begin
    for program in programs:
        program.close()


def left_in(store: Path) -> list[int]:
    """Return the attempt that the next delivery of each waiting message would be."""
    from embedq.broker.host import open_engine

    with open_engine(store) as desk:
        group = desk.existing_group(desk.existing_queue("orders"), "default")
        return [lease.attempt for lease in desk.claim(group, 10)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_handlers_finish_and_the_program_end_by_itself(start, store, number):
    program = start(grace=600, kind="short")
    program.send(number)
    assert program.end() == 0
    assert "report 4 0 0" in program.lines
    assert sum(line.startswith("end") for line in program.lines) == 4
    assert left_in(store) == []


def test_what_does_not_finish_in_time_goes_back_and_costs_no_attempt(start, store):
    program = start(grace=0.1, kind="long")
    program.send(signal.SIGTERM)
    assert program.end() == 0
    assert "report 0 4 4" in program.lines
    assert left_in(store) == [1, 1, 1, 1]


def test_a_second_signal_ends_the_grace(start, store):
    program = start(grace=600, kind="long")
    program.send(signal.SIGTERM)
    program.send(signal.SIGINT)
    assert program.end() == 0
    assert "report 0 4 4" in program.lines
    assert left_in(store) == [1, 1, 1, 1]


def test_the_applications_own_handler_runs_too(start):
    program = start(grace=600, kind="short", own="own")
    program.send(signal.SIGTERM)
    assert program.end() == 0
    assert "own handler" in program.lines
    assert "report 4 0 0" in program.lines


def test_an_own_handler_that_exits_does_so_after_the_drain(start, store):
    program = start(grace=600, kind="short", own="exits")
    program.send(signal.SIGTERM)
    assert program.end() == 5
    assert left_in(store) == []


def test_a_signal_that_was_ignored_stays_ignored(start):
    program = start(grace=600, kind="long", own="ignored")
    program.send(signal.SIGINT)
    program.send(signal.SIGTERM)
    program.send(signal.SIGINT)
    threading.Event().wait(0.3)
    assert program.process.poll() is None
    program.send(signal.SIGTERM)
    assert program.end() == 0


class Recorder:
    def __init__(self) -> None:
        self.calls: list[object] = []
        self.hurried = threading.Event()

    def drain(self, grace_s: float, *, reason: str = "stop"):
        self.calls.append((grace_s, reason))
        return "the report"

    def hurry(self) -> None:
        self.calls.append("hurry")


def test_outside_the_main_thread_nothing_is_installed_and_stop_ends_the_wait():
    found: list[object] = []

    def run():
        with Signals() as signals:
            found.append(signals.installed)
            signals.stop()
            found.append(drain_at_signal(Recorder(), signals, 3.0))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    assert found == [(), "the report"]


def test_former_handlers_are_put_back():
    before = signal.getsignal(signal.SIGTERM)
    with Signals() as signals:
        assert signal.SIGTERM in signals.installed
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


def test_what_the_drain_raises_comes_out():
    class Broken(Recorder):
        def drain(self, grace_s: float, *, reason: str = "stop"):
            raise RuntimeError("broken")

    with Signals() as signals:
        signals.stop()
        with pytest.raises(RuntimeError, match="broken"):
            drain_at_signal(Broken(), signals, 1.0)
