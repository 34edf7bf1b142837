"""The program of a child of `embedq dev`: an application's consumers, as a client of its parent.

Knows: what is said to the parent and heard from it, one JSON document on each line.
Does not know: when code is reloaded, the host.

SIGINT is ignored: a Ctrl-C reaches every process of the terminal, and the parent decides. The end
of the parent is the end of the line, and of this process.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any, Final, TextIO

from embedq.app.broker import Broker
from embedq.catalogue import CATALOGUE
from embedq.cli.application import NoApplication, load
from embedq.cli.running import consumer_lines
from embedq.errors import EmbedqError
from embedq.events import Notice

#: Seconds that handlers have to finish when other code takes over.
GRACE_S: Final = 2.0
#: Seconds after which a process without a parent ends whatever it does.
_ORPHAN_S: Final = 4.0
ORPHANED: Final = 71
#: Events that the parent tells in its own words, or that happen with each reload.
_UNTOLD: Final = frozenset(
    "started stopped connected consumer_registered drain_started drain_finished".split()
)


class Line:
    """The line to the parent, and from it."""

    def __init__(self, orders: TextIO, words: TextIO) -> None:
        self._orders = orders
        self._words = words
        self._lock = threading.Lock()

    def tell(self, what: str, **more: object) -> None:
        """Say something. Nobody there to hear it is no reason to fail: the end comes anyway."""
        try:
            with self._lock:
                self._words.write(json.dumps({"what": what, **more}) + "\n")
                self._words.flush()
        except (BrokenPipeError, ValueError):
            return

    def wait(self) -> str:
        """Wait for an order; "" is the end of the parent."""
        return self._orders.readline().strip()


def main() -> None:
    """Run a child to its end: `reloaded ORDERS WORDS APPLICATION [DB]`, two open files first."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # blocked by the parent until here
    orders, words, application, *db = sys.argv[1:]
    with open(int(orders)) as reads, open(int(words), "w") as writes:  # noqa: PTH123 - descriptors
        _serve(Line(reads, writes), application, db)


def _serve(line: Line, application: str, db: list[str]) -> None:
    try:
        broker = load(application)
        broker.override(role="client", sidecar=False, **({"path": db[0]} if db else {}))
        settings = broker.settings
    except EmbedqError as error:
        trace = error.traceback if isinstance(error, NoApplication) else ""
        line.tell("refused", text=error.message, hint=error.hint, traceback=trace)
        return
    logging.getLogger("embedq").addHandler(logging.NullHandler())  # the parent tells the events
    path = settings.path if settings.path == ":memory:" else str(Path(settings.path).absolute())
    line.tell("loaded", path=path, durability=settings.durability)
    if line.wait() == "go":
        _run(line, broker)


def _run(line: Line, broker: Broker) -> None:
    broker.on("*", lambda notice: _pass_on(line, notice))
    signal.signal(signal.SIGTERM, _leave)
    try:
        broker.start()
    except EmbedqError as error:
        line.tell("refused", text=error.message, hint=error.hint, traceback="")
        return
    line.tell("running", consumers=consumer_lines(list(broker.consumers)))
    if not line.wait():
        end = threading.Timer(_ORPHAN_S, os._exit, [ORPHANED])
        end.daemon = True
        end.start()
    report = broker.stop(GRACE_S)
    if report is not None:
        line.tell("left", released=report.released, stuck=report.stuck)
        if report.stuck:
            os._exit(0)  # threads that do not end would hold the process


def _leave(_number: int, _frame: Any) -> None:  # noqa: ANN401 - signal's signature
    raise SystemExit(0)


def _pass_on(line: Line, notice: Notice) -> None:
    if notice.name not in _UNTOLD and CATALOGUE[notice.name].level >= logging.INFO:
        line.tell("event", text=notice.text, level=CATALOGUE[notice.name].level_name)


if __name__ == "__main__":
    main()
