"""What a busy application costs others, with its host inside it and with a sidecar.

Knows: both sides and their rows: drains by two workers, puts of another process, its own puts.
Does not know: rounds, tables, what else is measured (bench_process_plan.py), goals of other rows.

Everything is measured from outside: this process is a client, as other programs are.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from time import perf_counter, sleep
from typing import Final

from bench_broker_cells import wait_until
from bench_cells import Stopwatch
from bench_figures import Figure, Row
from bench_process_names import MODE, PATH
from bench_process_sides import Program
from bench_run import Group, Opener
from bench_sides import BODY, LOT
from embedq import Broker

KEY: Final = "sidecar"
#: A busy application may cost others half of what they had, no more.
GOAL: Final = 0.5
_WARM_S: Final = 0.1
_LOOK_S: Final = 0.01

DRAIN, PUTS, OWN = "drain by 2 workers", "put of another process", "put of the application"
#: The two sides, and whether the application is busy.
SIDES: Final = ("plain", "sidecar")
STATES: Final = ("undisturbed", "busy")


def _name(what: str, side: str, state: str) -> str:
    return f"{what}, {side}, {state}"


class SidecarSide:
    """An application with two workers, and a client beside it: busy or not, each for a slot.

    Each slot has three parts of its length: a drain, puts of the client, puts of the application.
    """

    def __init__(self, folder: Path, side: str, backlog: int) -> None:
        self._side = side
        self._backlog, self._left = backlog, 0
        self._messages = dict.fromkeys(STATES, 0)
        self._watches = {
            (what, state): Stopwatch() for what in (DRAIN, PUTS, OWN) for state in STATES
        }
        path = folder / "queue.db"
        with ExitStack() as stack:
            program = Program("bench_sidecar_app.py", **{PATH: str(path), MODE: side})
            stack.callback(program.close)
            self._app = program.met()
            broker = Broker(path, role="client")
            stack.callback(broker.stop)
            self._orders, self._own = broker.queue("orders"), broker.queue("own")
            self._orders.pause()
            self._fill()
            self._stack = stack.pop_all()
        self.close = self._stack.close

    def begin(self) -> None:
        """Let the workers start and work for a moment, and put a few."""
        self._drain(_WARM_S, Stopwatch())
        self._own.put(BODY)
        self._app.ask("put", _WARM_S)

    def run_for(self, seconds: float) -> None:
        """Measure everything for so long each."""
        for number, state in enumerate(STATES):
            self._app.ask("busy", number)
            try:
                self._measure(state, seconds)
            finally:
                self._app.ask("busy", 0)

    def _measure(self, state: str, seconds: float) -> None:
        # A busy machine hears late that it is enough: by then nothing may be left.
        if not self._left:
            self._fill()
        self._messages[state] += self._drain(seconds, self._watches[DRAIN, state])
        self._watches[PUTS, state].run(self._put, seconds)
        own, begun = self._watches[OWN, state], perf_counter()
        own.taken.extend(self._app.ask("put", seconds))
        own.add(perf_counter() - begun, 0.0)

    def _drain(self, seconds: float, watch: Stopwatch) -> int:
        acked = now = self._acked
        begun = perf_counter()
        self._orders.resume()
        while perf_counter() < begun + seconds and now - acked < self._left:
            sleep(_LOOK_S)
            now = self._acked
        wait_until(lambda: self._acked > acked, "a message is handled")
        self._orders.pause()
        done = self._acked - acked
        watch.add(perf_counter() - begun, 0.0)
        self._left -= done
        return done

    def _fill(self) -> None:
        for _ in range(self._backlog // LOT):
            self._orders.put_many([BODY] * LOT)
        self._left = self._backlog

    @property
    def _acked(self) -> int:
        """How many messages the workers have done, durably."""
        return self._orders.stats().events["acked"]

    def _put(self) -> int:
        self._own.put(BODY)
        return 1

    def end(self) -> dict[str, Figure]:
        """Return all figures. Whose CPU it was cannot be told from outside."""
        return {
            _name(what, self._side, state): (
                watch.figure_of(self._messages[state]) if what == DRAIN else watch.figure(1)
            )
            for (what, state), watch in self._watches.items()
        }


def group(backlog: int) -> Group:
    """Return both sides. `backlog`: messages for all drains of a round."""

    def opener(side: str) -> Opener:
        return lambda folder: SidecarSide(folder, side, backlog)

    return {side: opener(side) for side in SIDES}


def _row(what: str, side: str, goal: float | None, by: str = "rate") -> Row:
    title = f"{what}{', p99' if by == 'p99_ms' else ''}, {side}: busy / undisturbed"
    cells = (_name(what, side, "busy"), _name(what, side, "undisturbed"))
    return Row(KEY, title, *cells, goal, by=by)


#: With a goal: what a sidecar is for. Without one: what it is measured against, and what it costs.
ROWS: Final = (
    _row(DRAIN, "sidecar", GOAL),
    _row(DRAIN, "plain", None),
    Row(
        *(KEY, f"{OWN}, busy: sidecar / plain"),
        *(_name(OWN, "sidecar", "busy"), _name(OWN, "plain", "busy")),
    ),
    Row(
        *(KEY, f"{OWN}, undisturbed: sidecar / plain"),
        *(_name(OWN, "sidecar", "undisturbed"), _name(OWN, "plain", "undisturbed")),
    ),
)
LATENCIES: Final = (
    _row(PUTS, "sidecar", GOAL, by="p99_ms"),
    _row(PUTS, "plain", None, by="p99_ms"),
)
