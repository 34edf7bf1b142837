"""Kill -9 under everything a broker does: P1 to P10 hold, and each planted fault is seen."""

import os
import shutil

import pytest

from tests.reliability.killing import Worker, memory_folder, worker
from tests.reliability.mixed_host import journal_of
from tests.reliability.mixed_kills import mixed_chain

pytestmark = pytest.mark.reliability

#: Two parts of four seeds, so that they run beside each other: 8 files, 32 deaths. With
#: EMBEDQ_TEST_LONG=1 thirteen: 52 files, 208 deaths.
PARTS, SEEDS, DEATHS = 13 if os.environ.get("EMBEDQ_TEST_LONG") else 2, 4, 4

#: What is planted, and one of these promises must be seen to be broken.
FAULTS = {
    "early ack": {"P3"},
    "early put": {"P1"},
    "deaf": {"P3"},
    "uncounted": {"P5"},
    "keyless": {"P9"},
    "short leases": {"P9"},
    "twice": {"P10"},
    "changed": {"P4"},
    "halves": {"P7"},
    "blind": {"P3", "P6"},
}
#: So many seeds are tried before a fault counts as overlooked.
TRIES = 12


@pytest.mark.parametrize("part", range(PARTS))
def test_promises_hold_while_hosts_with_everything_are_killed(tmp_path, part):
    with worker() as program, memory_folder(tmp_path) as folder:
        started = 0
        for number in range(SEEDS):
            seed = f"mixed-{part}-{number}"
            path = folder / f"{seed}.db"
            durability = "normal" if number == SEEDS - 1 else "full"
            outcome = mixed_chain(program, path, deaths=DEATHS, seed=seed, durability=durability)
            if outcome.broken:
                shutil.copy(journal_of(path), tmp_path)
            assert not outcome.trouble + outcome.broken, f"seed {seed}\n{outcome.told()}"
            assert outcome.deaths == DEATHS
            started += outcome.started
    assert started > 100  # they did something


@pytest.mark.parametrize("planted", FAULTS)
def test_a_planted_fault_is_seen(tmp_path, planted):
    with worker() as program, memory_folder(tmp_path) as folder:
        for number in range(TRIES):
            if _is_seen(program, folder, planted, number):
                return
    raise AssertionError(f"{TRIES} chains with {planted!r}, and nothing was seen")


def _is_seen(program: Worker, folder, planted: str, number: int) -> bool:
    path = folder / f"{planted}-{number}.db"
    outcome = mixed_chain(program, path, deaths=3, seed=f"{planted}-{number}", planted=planted)
    return bool(outcome.promises & FAULTS[planted])
