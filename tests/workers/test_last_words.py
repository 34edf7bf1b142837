"""A message that killed its host says with which signal: real processes that end in every way."""

import os
import sys
from pathlib import Path

import pytest

from embedq.broker.host import open_engine
from embedq.message import ErrorInfo
from tests import processes

PROGRAM = Path(__file__).with_name("last_words_program.py")
pytestmark = pytest.mark.reliability

SILENT = "ended without a word: SIGKILL (for example by the out-of-memory killer) or os._exit"


class World:
    """A database with messages, and the program that dies under them."""

    def __init__(self, folder: Path, *bodies: str) -> None:
        self.path = folder / "orders.db"
        self.words = folder / "orders.db.fatal"
        with open_engine(self.path, upkeep=False) as desk:
            queue = desk.queue("orders")
            desk.group(queue)
            desk.put_many(queue, [body.encode() for body in bodies], 1)

    def run(self, how: str, kind: str = "thread", peculiarity: str = "") -> tuple[int, str]:
        """Run the program to its end; return its exit code and what it said of its errors."""
        ended = processes.run(
            [sys.executable, str(PROGRAM), str(self.path), kind, how, peculiarity],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            timeout=60,
            check=False,
            capture_output=True,
            text=True,
        )
        return ended.returncode, ended.stderr

    def causes(self) -> dict[str, ErrorInfo | None]:
        """Return what is said of the first attempt of every message that was in work."""
        with open_engine(self.path, upkeep=False) as desk:
            queue = desk.existing_queue("orders")
            (group,) = queue.groups
            found: dict[str, ErrorInfo | None] = {}
            for _ in desk.peek(queue, 100):
                lease = next((le for le in desk.claim(group) if le.attempt > 1), None)
                if lease is not None:
                    (row, *_) = desk.store.deliveries(lease.seq)
                    error = None if row.error is None else ErrorInfo.decode(row.error)
                    found[lease.message.body.decode()] = error
                    desk.ack(lease)
            return found

    def cause(self) -> ErrorInfo:
        (error,) = self.causes().values()
        assert error is not None
        return error


CRASHES = [
    ("thread", "null pointer", -11, "SIGSEGV", "crashed: Segmentation fault"),
    ("thread", "abort", -6, "SIGABRT", "crashed: Aborted"),
    ("thread", "terminate", -6, "SIGABRT", "crashed: Aborted"),
    ("thread", "SIGFPE", -8, "SIGFPE", "crashed: Floating"),
    ("thread", "SIGBUS", -7, "SIGBUS", "crashed: Bus error"),
    ("thread", "SIGILL", -4, "SIGILL", "crashed: Illegal instruction"),
    ("async", "null pointer", -11, "SIGSEGV", "crashed: Segmentation fault"),
    ("async", "stack overflow", -11, "SIGSEGV", "crashed: Segmentation fault"),
]


@pytest.mark.parametrize(("kind", "how", "code", "name", "text"), CRASHES)
def test_a_crash_is_named_with_its_signal_and_where_it_was(tmp_path, kind, how, code, name, text):
    world = World(tmp_path, "k")
    assert world.run(how, kind)[0] == code
    cause = world.cause()
    assert cause.type == name
    assert text in cause.message
    assert "cut_short" in cause.traceback or "deeper" in cause.traceback
    assert not world.words.exists()


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ("SIGKILL", -9),
        ("exit", 7),
        ("SIGTERM", -15),
        ("unhandled", -10),
        ("stack overflow", -11),
        ("fatal error", -6),
    ],
)
def test_what_leaves_no_word_is_not_guessed(tmp_path, how, code):
    world = World(tmp_path, "k")
    assert world.run(how)[0] == code
    cause = world.cause()
    assert cause.type == "HostDied"
    assert SILENT in cause.message
    assert "a stack overflow outside the main thread" in cause.message
    assert cause.traceback == ""


def test_without_the_record_the_signal_is_not_known(tmp_path):
    """Planted: the test of a null pointer would notice that nothing was recorded."""
    world = World(tmp_path, "k")
    assert world.run("null pointer", peculiarity="planted")[0] == -11
    assert world.cause().type != "SIGSEGV"


def test_neighbours_have_the_same_cause_and_are_told_that_it_may_be_anothers(tmp_path):
    world = World(tmp_path, "n0", "k", "n1")
    assert world.run("null pointer")[0] == -11
    causes = world.causes()
    assert set(causes) == {"n0", "k", "n1"}
    for cause in causes.values():
        assert cause is not None
        assert cause.type == "SIGSEGV"
        assert "nobody can tell whose fault it was" in cause.message
        assert "cut_short" in cause.traceback


def test_a_faulthandler_of_the_application_goes_on_and_is_pointed_to(tmp_path):
    world = World(tmp_path, "k")
    code, errors = world.run("null pointer", peculiarity="faulthandler")
    assert code == -11
    assert "Fatal Python error: Segmentation fault" in errors
    assert not world.words.exists()
    cause = world.cause()
    assert cause.type == "HostDied"
    assert "the application had faulthandler in use itself" in cause.message


def test_of_two_brokers_in_a_process_the_second_says_that_the_record_is_elsewhere(tmp_path):
    world = World(tmp_path, "k")
    assert world.run("null pointer", peculiarity="two")[0] == -11
    assert "Segmentation fault" in (tmp_path / "orders.db.first.db.fatal").read_text()
    cause = world.cause()
    assert cause.type == "HostDied"
    assert "beside another database of that process" in cause.message


def test_the_crash_of_a_forked_child_is_not_taken_for_the_hosts(tmp_path):
    world = World(tmp_path, "k")
    assert world.run("", peculiarity="forks")[0] == -9
    assert world.words.read_text().count("\n") == 1
    assert SILENT in world.cause().message


def test_a_program_without_consumers_keeps_no_record(tmp_path):
    world = World(tmp_path, "k")
    assert world.run("null pointer", peculiarity="no consumers")[0] == -11
    assert not world.words.exists()
    assert "it ran no consumers" in world.cause().message


@pytest.mark.parametrize("kind", ["thread", "async"])
def test_a_program_that_ends_well_leaves_no_record(tmp_path, kind):
    world = World(tmp_path, "well")
    assert world.run("SIGKILL", kind) == (0, "")
    assert not world.words.exists()
    assert world.causes() == {}
