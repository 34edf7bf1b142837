"""Messages that kill their host, in every way and in every kind of consumer (P5).

tests/workers/test_crashes.py has the first of these; here are the ways a broker is used, too.
"""

import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from embedq import Broker
from embedq.lifecycle import Outcome
from embedq.message import DeadLetter
from tests import processes
from tests.reliability.deadly_host import HOWS, MAX_CRASHES, MOST
from tests.reliability.killing import ROOT

pytestmark = pytest.mark.reliability

NEIGHBOURS = [f"n{number}" for number in range(8)]
#: A host that has been started so often will never end by itself.
_PATIENCE = 8


class World:
    """A file, the program that is started on it until it ends by itself, and what it noted."""

    def __init__(self, folder: Path, *bodies: str, groups: tuple[str, ...] = ("default",)) -> None:
        self.path = folder / "q.db"
        self.log = folder / "log"
        self.codes: list[int] = []
        broker = Broker(self.path)
        queue = broker.queue("orders", str)
        for group in groups:
            queue.group(group, start="beginning")
        for body in bodies:
            options: dict[str, Any] = {"ordering_key": body[-1]} if ":" in body else {}
            queue.put(body, **options)
        broker.stop()

    def run(self, kind: str, how: str = "SIGKILL", *more: str) -> "World":
        """Start the program until it ends by itself."""
        command = [sys.executable, "-m", "tests.reliability.deadly_host"]
        while not self.codes or self.codes[-1] != 0:
            assert len(self.codes) < _PATIENCE, f"it never ended by itself: {self.codes}"
            ended = processes.run(
                [*command, str(self.path), str(self.log), kind, how, *more],
                env={**os.environ, "PYTHONPATH": ROOT},
                cwd=ROOT,
                timeout=60,
                check=False,
                capture_output=True,
                text=True,
            )
            assert "Traceback" not in ended.stderr, ended.stderr
            self.codes.append(ended.returncode)
        return self

    def count(self, what: str, group: str = "default") -> Counter[str]:
        lines = [line.split() for line in self.log.read_text().splitlines()]
        return Counter(body for word, of, body in lines if (word, of) == (what, group))

    def order(self, what: str) -> list[str]:
        lines = [line.split() for line in self.log.read_text().splitlines()]
        return [body for word, _, body in lines if word == what]

    def dead(self) -> dict[str, DeadLetter]:
        broker = Broker(self.path)
        letters = broker.queue("orders", str).dead.list()
        broker.stop()
        return {letter.body.decode(): letter for letter in letters}


def check_one_killer(world: World, how: str) -> None:
    """As many starts as there may be crashes, then a letter; neighbours are done."""
    assert world.codes == [*[HOWS[how][1]] * MAX_CRASHES, 0]
    assert world.count("start")["k"] == MAX_CRASHES
    letter = world.dead()["k"]
    assert letter.reason == "crashed"
    assert [attempt.attempt for attempt in letter.attempts] == [1, 2, 3]
    assert list(world.dead()) == ["k"]
    starts, done = world.count("start"), world.count("done")
    assert set(done) == set(NEIGHBOURS)
    # Each was taken along once at most: afterwards suspects run one at a time.
    assert max(starts[name] for name in NEIGHBOURS) <= 2


#: What test_crashes has not: each way with another kind of consumer.
WAYS = [
    *[("pull", "SIGKILL"), ("pull", "exit"), ("async", "SIGSEGV"), ("async", "exit")],
    *[("batch", "SIGSEGV"), ("batch", "abort"), ("thread", "SIGSEGV")],
]


@pytest.mark.parametrize(("kind", "how"), WAYS)
def test_a_killer_starts_as_often_as_it_may_and_no_neighbour_dies(tmp_path, kind, how):
    world = World(tmp_path, *NEIGHBOURS[:3], "k", *NEIGHBOURS[3:])
    check_one_killer(world.run(kind, how), how)


def test_a_start_that_is_not_counted_is_noticed(tmp_path):
    world = World(tmp_path, "k", *NEIGHBOURS)
    with pytest.raises(AssertionError, match="never ended"):
        check_one_killer(world.run("thread", "SIGKILL", "uncounted"), "SIGKILL")


def test_the_followers_of_a_killer_come_after_it_is_dead(tmp_path):
    world = World(tmp_path, "k:a", "n0:b", "n1:a", "n2:a", "n3:b")
    world.run("thread")
    assert list(world.dead()) == ["k:a"]
    started = world.order("start")
    assert started.count("k:a") == MAX_CRASHES
    last = len(started) - 1 - started[::-1].index("k:a")
    assert [body for body in started[:last] if body in {"n1:a", "n2:a"}] == []
    assert [body for body in world.order("done") if body.endswith("a")] == ["n1:a", "n2:a"]
    assert set(world.count("done")) == {"n0:b", "n1:a", "n2:a", "n3:b"}


def test_a_message_that_kills_one_group_is_done_in_the_other(tmp_path):
    world = World(tmp_path, "n0", "k", "n1", groups=("deadly", "tame"))
    world.run("groups")
    assert world.count("start", "deadly")["k"] == MAX_CRASHES
    assert {body: letter.group for body, letter in world.dead().items()} == {"k": "deadly"}
    assert set(world.count("done", "tame")) == {"n0", "k", "n1"}
    assert set(world.count("done", "deadly")) == {"n0", "n1"}


@pytest.mark.parametrize("kind", ["thread", "pull"])
def test_who_dies_after_its_ack_was_confirmed_has_started_once(tmp_path, kind):
    world = World(tmp_path, "ack", "n0").run(kind)
    assert world.codes == [-9, 0]
    assert world.count("start")["ack"] == 1
    assert world.dead() == {}


def test_a_death_after_a_confirmed_nack_is_a_failure_and_no_crash(tmp_path):
    world = World(tmp_path, "nack", "n0").run("pull")
    assert world.codes == [*[-9] * MOST, 0]
    assert world.count("start")["nack"] == MOST
    assert {body: letter.reason for body, letter in world.dead().items()} == {
        "nack": "max_attempts"
    }


def test_an_attempt_that_another_thread_began_before_the_death_is_a_crash(tmp_path):
    world = World(tmp_path, "nack", "n0").run("thread")
    assert set(world.codes[:-1]) == {-9}
    assert MOST // 2 <= len(world.codes) - 1 <= MOST
    # It may be counted and die before its handler is there to note its start.
    assert MOST // 2 <= world.count("start")["nack"] <= MOST
    assert list(world.dead()) == ["nack"]
    letter = world.dead()["nack"]
    # Whether another thread is quick enough is chance; on one core it may be, every time.
    begun = sum(attempt.outcome is not Outcome.FAILED for attempt in letter.attempts)
    assert letter.reason == ("crashed" if begun == MAX_CRASHES else "max_attempts")


@pytest.mark.parametrize("kind", ["thread", "async", "batch", "pull"])
def test_what_kills_only_once_is_done_at_its_second_attempt(tmp_path, kind):
    world = World(tmp_path, "n0", "once", "n1").run(kind)
    assert world.codes == [-9, 0]
    assert world.count("start")["once"] == 2
    assert set(world.count("done")) == {"n0", "once", "n1"}
    assert world.dead() == {}
