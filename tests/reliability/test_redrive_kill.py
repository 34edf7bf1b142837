"""A redrive that is killed in its middle: the next one goes on, nothing is lost or doubled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from embedq import Broker
from embedq.broker.deadletters import CHUNK, RedriveChunk
from embedq.broker.desk import Desk
from embedq.broker.host import open_engine
from embedq.storage.ops import Op, PutRows
from tests.conformance.scenario import row
from tests.processes import line_of, patience
from tests.reliability import redriving

pytestmark = pytest.mark.reliability

COUNT = 100_000 if os.environ.get("EMBEDQ_TEST_LONG") else 40_000
FITTING = COUNT * 9 // 10
ROOT = Path(__file__).resolve().parents[2]


def killed_at(path: Path, progress: int) -> int:
    """Let a process redrive, kill it once it has told of `progress`; return what it told last."""
    code = "import sys; from tests.reliability.redriving import redrive; redrive(sys.argv[1])"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            told = 0
            while told < progress:
                told = int(line_of(process))
            process.send_signal(signal.SIGKILL)
            assert process.stdout is not None
            with patience(process):
                told = max(told, *map(int, process.stdout.read().split()), 0)
        finally:
            process.kill()
    assert process.returncode == -signal.SIGKILL
    return told


def test_a_killed_redrive_of_many_letters_goes_on_and_none_is_lost_or_doubled(
    tmp_path: Path,
) -> None:
    path = tmp_path / "q.db"
    redriving.bury(path, COUNT)
    for progress in (COUNT // 5, COUNT // 7):
        told = killed_at(path, progress)
        with open_engine(path, upkeep=False) as desk:
            desk.upkeep.count()
            assert redriving.problems(desk, COUNT) == []
            moved = desk.queues["orders"].stored
            assert moved == COUNT - desk.queues["orders"].dead
            assert moved >= told
            assert moved % CHUNK == 0
    broker = Broker(path, durability="normal")
    orders = broker.queue("orders")
    left = orders.stats().dead
    assert 0 < COUNT - left < FITTING
    assert len(orders.dead.redrive(reason="rejected")) == FITTING - (COUNT - left)
    assert isinstance(broker.desk, Desk)
    assert redriving.problems(broker.desk, COUNT) == []
    assert (orders.stats().dead, orders.stats().stored) == (COUNT - FITTING, FITTING)
    broker.stop()


class Careless(RedriveChunk):
    """Puts the messages again, and forgets to take the letters away."""

    __slots__ = ()

    def prepare(self) -> list[Op]:
        (letter,) = self._rows
        return [PutRows(self._queue.id, 0, [row(letter.body)])]

    def apply(self) -> None:
        return


def test_the_check_notices_letters_that_are_doubled_lost_or_of_another_origin(
    tmp_path: Path,
) -> None:
    path = tmp_path / "q.db"
    redriving.bury(path, 10)
    with open_engine(path, upkeep=False) as desk:
        queue = desk.queue("orders")
        assert redriving.problems(desk, 10) == []
        letters = desk.store.dead(queue.id, 0, 10)
        desk.writer.run(Careless(desk, queue, letters[:1]))
        found = redriving.problems(desk, 10)
        assert found == ["0 does not say where it comes from", "0 is there 2 times"]
        desk.writer.run(RedriveChunk(desk, queue, letters[7:8]))
        assert "7 was moved, though it did not fit" in redriving.problems(desk, 10)
        assert "10 is lost" in redriving.problems(desk, 11)
