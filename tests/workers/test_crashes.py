"""Promise P5 for handlers that end their process: how often they start, and their neighbours."""

import os
import sys
from collections import Counter
from pathlib import Path

import pytest

from embedq.broker.host import open_engine
from embedq.lifecycle import Reason
from embedq.storage.rows import DeadRow
from tests import processes

PROGRAM = Path(__file__).with_name("crash_program.py")
pytestmark = pytest.mark.reliability


class World:
    """A store, the program that is started until it ends by itself, and what it logged."""

    def __init__(
        self, folder: Path, bodies: list[str], *, most: int = 9, crashes: int = 3
    ) -> None:
        self.path = folder / "orders.db"
        self.log = folder / "log"
        self.policy = {"MOST": str(most), "CRASHES": str(crashes)}
        self.codes: list[int] = []
        with open_engine(self.path) as desk:
            queue = desk.queue("orders")
            desk.group(queue)
            desk.put_many(queue, [body.encode() for body in bodies], 1)

    def run(self, kind: str, how: str = "SIGKILL", slots: int = 4) -> None:
        """Start the program until it ends by itself."""
        command = [sys.executable, str(PROGRAM), str(self.path), str(self.log), kind, how]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            **self.policy,
        }
        while len(self.codes) < 30:
            ended = processes.run(
                [*command, str(slots)],
                env=environment,
                timeout=60,
                check=False,
                capture_output=True,
                text=True,
            )
            self.codes.append(ended.returncode)
            assert "Traceback" not in ended.stderr, ended.stderr
            if ended.returncode == 0:
                return
        pytest.fail(f"it never ended by itself: {self.codes}")

    def count(self, what: str) -> Counter[str]:
        lines = [line.split() for line in self.log.read_text().splitlines()]
        return Counter(body for word, body in lines if word == what)

    def dead(self) -> dict[str, DeadRow]:
        with open_engine(self.path) as desk:
            queue = desk.existing_queue("orders")
            return {row.body.decode(): row for row in desk.store.dead(queue.id, 0, 100)}


NEIGHBOURS = [f"n{n}" for n in range(12)]


@pytest.mark.parametrize("kind", ["thread", "async", "batch"])
def test_a_killer_starts_three_times_and_takes_nobody_with_it(tmp_path, kind):
    world = World(tmp_path, [*NEIGHBOURS[:2], "k", *NEIGHBOURS[2:]])
    world.run(kind)
    assert world.codes == [-9, -9, -9, 0]
    assert world.count("start")["k"] == 3
    assert not world.count("done")["k"]
    dead = world.dead()
    assert list(dead) == ["k"]
    assert dead["k"].reason == Reason.CRASHED
    assert "3 crashes" in dead["k"].detail
    assert set(world.count("done")) == set(NEIGHBOURS)
    # Each neighbour was taken along at most once: afterwards the suspects run one at a time.
    assert max(world.count("start")[name] for name in NEIGHBOURS) <= 2


@pytest.mark.parametrize(("how", "code"), [("segfault", -11), ("exit", 7), ("SIGABRT", -6)])
def test_however_it_ends_the_process(tmp_path, how, code):
    world = World(tmp_path, ["n0", "k", "n1"], crashes=1)
    world.run("thread", how, slots=1)
    assert world.codes == [code, 0]
    assert world.count("start")["k"] == 1
    assert list(world.dead()) == ["k"]
    assert set(world.count("done")) == {"n0", "n1"}


def test_deaths_count_as_attempts(tmp_path):
    world = World(tmp_path, ["k", "n0"], most=2)
    world.run("thread", slots=1)
    assert world.codes == [-9, -9, 0]
    assert world.count("start")["k"] == 2
    assert world.dead()["k"].reason == Reason.CRASHED
    assert set(world.count("done")) == {"n0"}


@pytest.mark.parametrize("kind", ["thread", "async", "batch"])
def test_several_killers_die_and_no_neighbour_does(tmp_path, kind):
    world = World(tmp_path, ["n0", "k0", "n1", "n2", "k1", "n3", "k2", "n4"], crashes=2)
    world.run(kind)
    starts = world.count("start")
    assert set(world.dead()) == {"k0", "k1", "k2"}
    assert [starts[killer] for killer in sorted(world.dead())] == [2, 2, 2]
    assert set(world.count("done")) == {"n0", "n1", "n2", "n3", "n4"}
