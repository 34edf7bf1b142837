"""Damaged inputs for wires and sessions: only documented ends and answers, nothing held or lost.

With EMBEDQ_TEST_LONG=1 as many as `tools/fuzz_transports.py` takes: 100,000.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from itertools import islice
from pathlib import Path

import pytest

from embedq.broker.changes import Abandoned
from embedq_transports.mmqp.requests import Send, encode_request
from tests.fuzzing import arena
from tests.fuzzing.campaign import campaign
from tests.fuzzing.dialects import DIALECTS
from tests.fuzzing.line import Line
from tests.fuzzing.mutations import mutated
from tests.fuzzing.planted import FAULTS

ROOT = Path(__file__).resolve().parents[2]
COUNT = 100_000 // len(DIALECTS) if os.environ.get("EMBEDQ_TEST_LONG") else 4_000


@pytest.mark.parametrize("protocol", DIALECTS)
def test_damaged_inputs_have_documented_outcomes_only(protocol):
    report = campaign(protocol, COUNT, seed=20_261)
    assert report.problems == []
    assert report.inputs == COUNT
    seen = set(report.outcomes)
    assert {"end", "protocol", "reset"} <= seen
    # Inputs that all end in the same way would prove little.
    assert len(seen & DIALECTS[protocol]().faults) >= 3


def test_the_same_seed_gives_the_same_inputs():
    seeds = DIALECTS["phpmq"]().seeds()
    first, again, other = (list(islice(mutated(seeds, s, 50), 50)) for s in (1, 1, 2))
    assert first == again != other


def test_what_the_store_gives_back_a_little_later_is_not_taken_for_held(monkeypatch):
    prepare, pause, late = Abandoned.prepare, threading.Event(), []

    def slowly(task):
        late.append(task)
        pause.wait(0.2)
        return prepare(task)

    monkeypatch.setattr(Abandoned, "prepare", slowly)
    assert campaign("tmq", 2_000, seed=1).problems == []
    assert late


def test_what_comes_after_the_server_has_closed_is_as_good_as_not_sent(monkeypatch):
    request = encode_request(Send("q", b"hello"))
    # The second piece comes when the first is done, and its connection closed.
    monkeypatch.setattr(
        arena, "pieces", lambda _rng, data: [data[: len(request)], data[len(request) :]]
    )
    is_late = property(lambda line: bool(line.taken) and not line.ended_by_server)
    monkeypatch.setattr(Line, "is_paused", is_late)
    monkeypatch.setattr(random.Random, "random", lambda _rng: 0.0)  # it reads, and shuts its side
    one = arena.Round(DIALECTS["mmqp"](), [request * 2], seed=1)
    assert one.run() == []
    assert one.outcomes == {"end": 1}


def test_every_planted_fault_is_found():
    done = subprocess.run(
        [sys.executable, "tools/fuzz_transports.py", "--self-test"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.stdout.splitlines() == [f"{name}: found" for name in FAULTS], done.stderr
    assert done.returncode == 0
