"""Quick handlers: the next messages are fetched while others are handled, and none is harmed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.workers.pooled import App

#: However slow the machine is, these handlers count as quick.
QUICK = """
from embedq.workers import solo

solo.AHEAD_MOST = 128  # several fetches for a few hundred messages
solo.SoloCrew._note_pace = lambda crew, _: setattr(crew, "_pace_s", 1e-5)
begin = solo.SoloCrew._begin

def noted(crew, pairs, most):
    note("fetch", len(pairs), most)
    return begin(crew, pairs, most)

solo.SoloCrew._begin = noted
"""

NUMBERS = """
numbers = broker.queue("numbers", int)

@numbers.consumer(pool="process")
def work(n: int, delivery: Delivery) -> None:
    note("work", n, delivery.attempt)
    if n == 300 and delivery.attempt == 1:
        time.sleep(0.3)  # what was fetched has come by now
        os.kill(os.getpid(), signal.{number})
"""


@pytest.mark.parametrize("number", ["SIGKILL", "SIGTERM"])
def test_a_worker_that_ends_costs_what_it_has_fetched_no_attempt(
    tmp_path: Path, number: str
) -> None:
    with App(tmp_path, NUMBERS.replace("{number}", number), QUICK) as app:
        app.put("numbers", *range(700))
        app.wait("numbers")
        said = app.said()
    handled = Counter((int(n), int(attempt)) for what, n, attempt in said if what == "work")
    expected = [(n, 1) for n in range(700)]
    assert handled == Counter(expected if number == "SIGTERM" else [*expected, (300, 2)])
    assert any(words[:2] == ["fetch", "128"] for words in said)  # settled with the next claim
    assert len(app.told("worker_died")) == (number == "SIGKILL")


def test_a_handler_that_is_slow_waits_alone(tmp_path: Path) -> None:
    slow = """
        numbers = broker.queue("numbers", int)

        @numbers.consumer(pool="process", concurrency=2)
        def work(n: int) -> None:
            time.sleep(0.012)
            note("work", n, os.getpid())
        """
    lines = "\n".join(line[8:] for line in slow.splitlines())
    fetches = QUICK.replace("solo.SoloCrew._note_pace =", "unused =")
    with App(tmp_path, lines, fetches) as app:
        app.put("numbers", *range(40))
        app.wait("numbers")
        said = app.said()
    assert not [words for words in said if words[0] == "fetch"]
    assert sorted(int(n) for what, n, _ in said if what == "work") == list(range(40))
