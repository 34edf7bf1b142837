"""A place for a worker: when a handler that is late gets which signal, and what is reported."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from embedq.ipc.calls import WorkerDeath
from embedq.policy import RetryPolicy
from embedq.workers.board import CELLS, Board, Order
from embedq.workers.memory import resident
from embedq.workers.seat import STEP_S, Seat
from embedq.workers.spec import make_spec


def handler(body: int) -> None:
    """Do nothing."""


class Desk:
    path = "x.db"
    token = b"boss"

    def report_death(self, death: WorkerDeath) -> None:
        """Tell nobody."""


class Process:
    """A process that only remembers its signals."""

    pid = 4711
    exitcode: int | None = None
    sentinel = 0

    def join(self, timeout: float) -> None:
        """It has ended."""

    def close(self) -> None:
        """Nothing is held."""


class Occupied:
    """A seat with a process that is none."""

    def __init__(self, timeout: float | None = 2.0) -> None:
        spec = make_spec(
            handler, queue="q", pool="process", timeout=timeout, retry=RetryPolicy(base=7, cap=7)
        )
        self.now = 100.0
        self.seat = Seat(1, spec, Desk(), lambda: self.now)
        self.process = Process()
        self.seat._process = self.process
        self.sent: list[signal.Signals] = []

    def look_at(self, now: float) -> list[signal.Signals]:
        self.now = now
        self.seat.look(now)
        return self.sent


@pytest.fixture
def occupied(monkeypatch: pytest.MonkeyPatch) -> Occupied:
    made = Occupied()
    monkeypatch.setattr(
        "embedq.workers.seat.os.kill", lambda _, number: made.sent.append(signal.Signals(number))
    )
    return made


def test_a_late_handler_gets_an_exception_then_term_then_kill(occupied: Occupied) -> None:
    board = occupied.seat.board
    assert occupied.look_at(99.0) == []
    board.until = 102.0
    assert occupied.seat.next_step_at == 102.0
    assert occupied.look_at(101.9) == []
    assert occupied.look_at(102.0) == [signal.SIGUSR2]
    assert board.order is Order.EXPIRE
    assert occupied.look_at(102.0 + STEP_S - 0.01) == [signal.SIGUSR2]
    assert occupied.seat.next_step_at == 102.0 + STEP_S
    assert occupied.look_at(102.0 + STEP_S)[1:] == [signal.SIGTERM]
    assert occupied.look_at(102.0 + 2 * STEP_S)[2:] == [signal.SIGKILL]
    assert 2 * STEP_S < 2, "a late handler is ended within three seconds"


def test_the_next_message_starts_with_the_exception_again(occupied: Occupied) -> None:
    occupied.seat.board.until = 102.0
    occupied.look_at(102.0)
    occupied.seat.board.until = 0.0
    assert occupied.seat.next_step_at == 0.0
    assert occupied.look_at(110.0) == [signal.SIGUSR2]
    occupied.seat.board.until = 112.0
    assert occupied.look_at(111.0) == [signal.SIGUSR2]
    assert occupied.look_at(112.0) == [signal.SIGUSR2] * 2


def test_nothing_is_sent_to_a_process_that_has_ended(occupied: Occupied) -> None:
    occupied.process.exitcode = 1
    occupied.seat.board.until = 102.0
    assert occupied.look_at(200.0) == []
    occupied.seat.leave()
    occupied.seat.kill()
    assert occupied.sent == []


def test_to_leave_is_said_once_and_to_go_now_as_often_as_need_be(occupied: Occupied) -> None:
    occupied.seat.leave()
    occupied.seat.leave()
    assert occupied.sent == [signal.SIGTERM]
    occupied.seat.interrupt()
    assert occupied.seat.board.order is Order.INTERRUPT
    assert occupied.sent == [signal.SIGTERM, signal.SIGUSR2]


def late(occupied: Occupied) -> None:
    occupied.seat.board.until = 102.0
    for step in range(3):
        occupied.look_at(102.0 + step * STEP_S)


@pytest.mark.parametrize(
    ("act", "code", "killed_for"),
    [
        (late, -signal.SIGKILL, "timeout"),
        (lambda occupied: occupied.seat.kill(), -signal.SIGKILL, "drain"),
        (lambda occupied: None, -signal.SIGKILL, ""),
        (late, -signal.SIGSEGV, ""),
    ],
    ids=["late", "drain", "by somebody else", "crashed just before"],
)
def test_a_report_says_whether_the_message_is_to_blame(
    occupied: Occupied, act: Callable[[Occupied], Any], code: int, killed_for: str
) -> None:
    act(occupied)
    occupied.process.exitcode = code
    death = occupied.seat.bury().death
    assert (death.code, death.killed_for) == (code, killed_for)
    if killed_for == "timeout":
        assert death.timeout_s == 2.0
        assert 0 <= max(death.delays_s) <= 7
        assert len(death.delays_s) > 4
    assert not occupied.seat.is_alive


def test_the_memory_of_a_process() -> None:
    assert resident(None) == 0
    own = resident(os.getpid())
    assert 5 << 20 < own < 4 << 30


@pytest.mark.skipif(sys.platform != "linux", reason="only on Linux can others be looked at")
def test_the_memory_of_a_process_is_its_own_and_not_that_of_its_parent() -> None:
    ballast = bytearray(200 << 20)
    ask = "import os; from embedq.workers.memory import resident; print(resident(os.getpid()))"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, check=True, timeout=60)
    assert int(done.stdout) < 100 << 20 < len(ballast)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert resident(child.pid) > 0
    finally:
        child.kill()
        child.communicate()
    assert resident(child.pid) == 0


def test_what_a_worker_shows_is_seen_by_whoever_shares_the_memory() -> None:
    cells = [0.0] * CELLS
    mine, theirs = Board(cells), Board(cells)
    mine.until, mine.busy, mine.finished, mine.released = 1.5, 2, 3, 4
    theirs.order = Order.INTERRUPT
    assert (theirs.until, theirs.busy, theirs.finished, theirs.released) == (1.5, 2, 3, 4)
    assert mine.order is Order.INTERRUPT
