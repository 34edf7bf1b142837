"""Ways on which the machine meets mistakes that chance is long in finding: seconds to minutes.

Knows: the steps of each. Does not know: the mistakes, how the machine works.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.reliability.waiting_machine import Roomy

Step = Callable[[Roomy], object]


def put(count: int = 1) -> Step:
    return lambda machine: machine.put_plain("plain", count)


def drafts(*wanted: dict[str, object]) -> Step:
    return lambda machine: machine.put_drafts("plain", list(wanted))


def claim(most: int = 1) -> Step:
    return lambda machine: machine.claim_default("plain", most)


def wait_for(most: int = 1) -> Step:
    return lambda machine: machine.wait_by_default(most)


def fail(number: int = 0) -> Step:
    return lambda machine: machine.fail([number], held=True, delay=0)


def ack(number: int = 0) -> Step:
    return lambda machine: machine.ack_or_release([number], held=True, verb="ack")


def to_tail(number: int = 0) -> Step:
    return lambda machine: machine.to_tail([number], held=True, counts=False)


def pass_time(ticks: int) -> Step:
    return lambda machine: machine.wait(ticks)


def crash(machine: Roomy) -> None:
    machine.reopen_after_crash(copied=False)


def leave_next(machine: Roomy) -> None:
    machine.laps = 20  # who has the mistake would wait for good
    machine.be_impatient()


WAYS: Final[dict[str, tuple[Step, ...]]] = {
    "a retry has no priority": (
        *(drafts({"priority": 0}, {"priority": 9}, {"priority": 0}), claim(), fail(), claim()),
    ),
    "the next of a key never moves": (
        *(drafts({"key": "a"}, {"key": "a"}), claim(), ack(), claim()),
    ),
    "an attempt is forgotten": (put(), claim(), fail(), claim()),
    "the last of a batch comes first": (claim(), put(2), claim()),
    "the short way overlooks what is not plain": (
        *(claim(), put(), drafts({"priority": 9}), claim()),
    ),
    "a crash does not count": (put(), claim(), crash, claim(), crash, claim()),
    "a put overtakes what waits": (
        *(claim(), drafts({"delay": 1}), wait_for(), pass_time(5), put()),
    ),
    "what is handed over is offered, too": (claim(), wait_for(), put(2), claim(7)),
    "two of a key are handed over": (*(claim(), wait_for(7), drafts({"key": "a"}, {"key": "a"})),),
    "who leaves keeps what it was handed": (claim(), wait_for(), leave_next, put()),
    "the tail is the old place": (claim(), put(3), claim(), to_tail(), claim()),
    "the tail is turned round": (put(2), claim(2), to_tail(), to_tail(), claim(2)),
    "nobody hears of a put": (claim(), drafts({"delay": 1}), wait_for(), pass_time(5), put()),
}


def show(mistake: str) -> None:
    """Go the way to a mistake. Raises what the machine raises that meets it."""
    machine = Roomy()
    try:
        machine.begin({"priority", "delay", "key"}, 0)
        for step in WAYS[mistake]:
            step(machine)
            machine.both_agree()
            machine.the_store_agrees()
    finally:
        machine.teardown()
