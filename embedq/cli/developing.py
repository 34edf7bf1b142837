"""`embedq dev`: the host stays in this process, the consumers run in a child that is replaced.

Knows: which child runs, which one is coming, what is told about both.
Does not know: how changes are found, how an application is imported.

New code is imported first: only when that has worked is the old child told to leave, and only
when it has gone does the new one begin. So there is never a moment with two versions at work.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final

import click

from embedq.app.broker import Broker
from embedq.catalogue import CATALOGUE
from embedq.cli import output
from embedq.cli.asked import Asked, asks, pass_asked
from embedq.cli.logs import leave_to_application
from embedq.cli.offspring import Child
from embedq.cli.stopping import signal_is_for_consumers
from embedq.clock import SystemClock
from embedq.errors import EmbedqError, InvalidOption
from embedq.events import Notice
from embedq.printable import plain
from embedq.workers.reload import Changes, Sources

#: Python looks at signals only when the main thread wakes.
_LOOK_S: Final = 0.2
#: Seconds before a child that ended by itself is started again.
_AGAIN_S: Final = 1.0
_SHOWN: Final = 5


@click.command()
@click.argument("application", metavar="MODULE:BROKER")
@click.option(
    "--reload-dir",
    "folders",
    multiple=True,
    type=click.Path(exists=True, file_okay=False),
    help="A folder with code. May be repeated. Default: the current folder.",
)
@click.option(
    "--reload-include",
    "patterns",
    multiple=True,
    metavar="PATTERN",
    help="Files that count as code beside *.py, as in '*.yaml'. May be repeated.",
)
@asks
@pass_asked
def dev(asked: Asked, application: str, folders: Sequence[str], patterns: Sequence[str]) -> None:
    """Run an application and reload its code when it changes.

    This process is the host of the file and never reloads. The consumers run in a child process,
    which is replaced when code has changed: handlers get two seconds to finish, what is left is
    given back without an attempt. Code that cannot be imported is shown with its traceback, and
    the old code goes on until the next change. Ctrl-C ends everything, a second one at once.
    """
    sources = Sources([Path(each) for each in folders or ["."]], ("*.py", *patterns))
    arguments = [application] if asked.db is None else [application, asked.db]
    signal_is_for_consumers()
    leave_to_application(always=True)
    Developing(arguments, sources, Log(as_json=asked.json)).run()


class Log:
    """What happens, a line for each event."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._clock = SystemClock()

    def __call__(self, event: str, text: str, below: str = "") -> None:
        """Print an event; `below`: more lines about it."""
        now = datetime.fromtimestamp(self._clock.time()).astimezone()
        if self._as_json:
            told = {"event": event, "at": now.isoformat(timespec="milliseconds"), "text": text}
            output.line(told | ({"detail": below} if below else {}))
        else:
            output.say(f"{now:%H:%M:%S}  {event:8}  {plain(text)}")
            if below:
                output.say(plain(below.rstrip(), keep="\n"))
        output.flush()


class Developing:
    """The parent: one thread decides, the others only put into its inbox."""

    def __init__(
        self, arguments: Sequence[str], sources: Sources, log: Callable[..., object]
    ) -> None:
        self._arguments = arguments
        self._sources = sources
        self._log = log
        self._inbox: SimpleQueue[tuple[Child | None, dict[str, Any]]] = SimpleQueue()
        self._monotonic = SystemClock().monotonic
        self._host: Broker | None = None
        self._watching = ExitStack()
        self._path = ""
        self._current: Child | None = None
        self._coming: Child | None = None
        self._children: set[Child] = set()
        self._signals = 0
        self._again_at: float | None = None
        self._changed_at: float | None = None

    def run(self) -> None:
        """Run until a signal."""
        changes = Changes(
            self._sources,
            lambda paths: self._inbox.put((None, {"what": "changed", "paths": paths})),
        )
        with self._signals_noted():
            try:
                blind = changes.open()
                if blind is not None:
                    self._log("note", f"changes are looked for every second: {blind}")
                self._bring()
                while not (self._signals and not self._children):
                    self._next()
            finally:
                changes.close()
                for child in self._children:
                    child.kill()
                    child.wait()
                self._close()
        self._log("ended", "nothing is left running")

    def _close(self) -> None:
        """Close the file. Raises why nothing could be stored any more, if that ended us."""
        if self._host is not None:
            try:
                self._watching.close()
            finally:
                self._host.stop()

    def _end(self) -> None:
        self._inbox.put((None, {"what": "signal", "number": signal.SIGTERM}))

    @contextmanager
    def _signals_noted(self) -> Iterator[None]:
        def note(number: int, _frame: object) -> None:
            self._inbox.put((None, {"what": "signal", "number": number}))

        before = {each: signal.signal(each, note) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _next(self) -> None:
        if self._again_at is not None and self._monotonic() >= self._again_at:
            self._bring()
        try:
            child, note = self._inbox.get(timeout=_LOOK_S)
        except Empty:
            return
        if child is not None and note["what"] in {"loaded", "refused"} and child.leaving:
            return
        getattr(self, f"_on_{note['what']}")(child, note)

    # ------------------------------------------------------------------- what has happened

    def _on_signal(self, _child: None, note: dict[str, Any]) -> None:
        self._signals += 1
        self._again_at = None
        if self._signals == 1:
            self._log("ending", f"{signal.Signals(note['number']).name}: handlers may finish")
        for child in self._children:
            if self._signals == 1 and child is self._current:
                child.leave()
            else:
                child.kill()

    def _on_changed(self, _child: None, note: dict[str, Any]) -> None:
        if self._signals:
            return
        here = Path.cwd()
        names = [
            str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
            for path in map(Path, note["paths"])
        ]
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        self._log("changed", ", ".join(names[:_SHOWN]) + more)
        self._changed_at = self._monotonic()
        self._bring()

    def _bring(self) -> None:
        """Start a child with the code as it is now, instead of one that has not begun."""
        self._again_at = None
        if self._coming is not None:
            self._coming.kill()
        self._coming = Child(self._arguments, lambda *told: self._inbox.put(told))
        self._children.add(self._coming)

    def _on_loaded(self, child: Child, note: dict[str, Any]) -> None:
        if self._signals or child is not self._coming:
            return
        try:
            self._open(note)
        except EmbedqError as error:
            if self._host is None:
                raise
            self._refuse(child, error.message, error.hint, "")
            return
        child.loaded = True
        if self._current is None:
            self._begin(child)
        else:
            self._current.leave()

    def _begin(self, child: Child) -> None:
        self._current, self._coming = child, None
        child.go()

    def _open(self, note: dict[str, Any]) -> None:
        path = note["path"]
        if path == ":memory:":
            raise InvalidOption(
                "a database in memory cannot be shared with another process",
                hint="name a file, or --db; `embedq run` runs it without reloading",
            )
        if self._host is None:
            self._host = Broker(path, durability=note["durability"])
            self._host.backing.wait_until_served()
            self._path = path
            self._sources.database = str(Path(path).resolve())
            self._host.on("*", self._tell_alone)
            self._watching.enter_context(self._host.backing.ending_on_failure(self._end))
            self._log("host", f"{path}; reloads on changes below {self._folders()}")
        elif path != self._path:
            raise InvalidOption(f"the database is {path} now", hint="start `embedq dev` again")

    def _tell_alone(self, notice: Notice) -> None:
        """Tell what happens at the host while there is no child that does."""
        level = CATALOGUE[notice.name]
        if self._current is None and level.level >= logging.WARNING:
            self._inbox.put(
                (None, {"what": "event", "text": notice.text, "level": level.level_name})
            )

    def _folders(self) -> str:
        return ", ".join(map(str, self._sources.folders))

    def _on_refused(self, child: Child, note: dict[str, Any]) -> None:
        if child is self._current:  # it was imported, but could not start
            self._current = None
        self._refuse(child, note["text"], note["hint"], note["traceback"])

    def _refuse(self, child: Child, text: str, hint: str | None, trace: str) -> None:
        if child is self._coming:
            self._coming = None
        child.kill()
        old = self._current is not None and not self._current.leaving
        now = "the old code goes on" if old else "waiting for a change"
        hint = None if trace else hint
        self._log("refused", f"{text}{f' ({hint})' if hint else ''}; {now}", trace)

    def _on_running(self, child: Child, note: dict[str, Any]) -> None:
        took = "" if self._changed_at is None else " with the new code"
        if self._changed_at is not None:
            took += f", {self._monotonic() - self._changed_at:.1f} s after the change was seen"
        self._changed_at = None
        self._log("running", f"process {child.pid}{took}", "\n".join(note["consumers"]))

    def _on_event(self, _child: Child | None, note: dict[str, Any]) -> None:
        self._log(note["level"], note["text"])

    def _on_left(self, _child: Child, note: dict[str, Any]) -> None:
        if note["released"] or note["stuck"]:
            self._log("left", f"{note['released']} given back, {note['stuck']} did not end")

    def _on_ended(self, child: Child, note: dict[str, Any]) -> None:
        self._children.discard(child)
        child.close()
        was_current = child is self._current
        if was_current:
            self._current = None
            if self._coming is not None and self._coming.loaded:
                self._begin(self._coming)
                return
        elif child is self._coming:
            self._coming = None
        if not child.leaving and not self._signals and self._coming is None:
            self._log("died", f"the application's process ended with {note['code']}")
            if was_current:
                self._again_at = self._monotonic() + _AGAIN_S
