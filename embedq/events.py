"""Events: the hub that counts, logs and passes on what a broker tells.

Knows: the catalogue (catalogue.py), who listens, how often each event has happened.
Does not know: why something happens, queues beyond their names, bodies of messages.

Listeners and the logger are served by a thread of the hub, in order: whoever emits may hold the
broker's lock, and a slow listener delays nobody. Emitting what nobody wants only counts.
"""

from __future__ import annotations

import inspect
import logging
import threading
from _thread import allocate_lock
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Final, NamedTuple

from embedq.catalogue import CATALOGUE, COUNTED, WORDS_OF_OTHERS
from embedq.clock import Clock, SystemClock
from embedq.errors import InvalidOption, shown
from embedq.names import check_queue_name
from embedq.printable import plain

#: Events that may wait for slow listeners before new ones are dropped (and counted).
BACKLOG: Final = 10_000

_log = logging.getLogger("embedq")


class Notice(NamedTuple):
    """One event as listeners get it. `at` is the wall clock in seconds."""

    name: str
    at: float
    fields: Mapping[str, object]

    @property
    def text(self) -> str:
        """The event in one sentence; only a traceback has further lines.

        Errors carry what messages and clients say: no terminal that shows a log obeys it.
        """
        known = dict.fromkeys(CATALOGUE[self.name].fields) | dict(self.fields)
        return plain(CATALOGUE[self.name].text.format_map(known), keep="\n\t")

    @property
    def queue(self) -> str | None:
        """The queue it is about, if any."""
        queue = self.fields.get("queue")
        return queue if isinstance(queue, str) else None


Listener = Callable[[Notice], object]
Counts = dict[tuple[str, str | None], int]
_Row = tuple[Listener, str | None]


class Events:
    """The hub: `emit` tells, `on` listens, `counts` sums up. Safe to use from any thread."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock: Clock = clock or SystemClock()
        self._lock = allocate_lock()
        self._counts: Counts = {}
        self._sources: list[Callable[[], Counts]] = []
        self._listeners: dict[str, tuple[_Row, ...]] = {}
        self._waiting: SimpleQueue[Notice | threading.Event | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False
        #: Events that listeners and the log missed: too many waited.
        self.dropped = 0
        #: Hides secrets in texts that come from handlers: see WORDS_OF_OTHERS.
        self.hide: Callable[[str], str] | None = None

    # --------------------------------------------------------------------------- telling

    def emit(self, name: str, /, *, times: int = 1, **fields: object) -> None:
        """Count an event, and pass it on to those who listen or log. Never waits, never fails."""
        queue = fields.get("queue")
        self.add(name, queue if isinstance(queue, str) else None, times)
        if self.wanted(name):
            self._pass_on(Notice(name, self.clock.time(), fields))

    def add(self, name: str, queue: str | None, times: int = 1) -> None:
        """Only count an event: for those who have asked `wanted`."""
        key = (name, queue)
        with self._lock:
            self._counts[key] = self._counts.get(key, 0) + times

    def wanted(self, name: str) -> bool:
        """Whether anybody listens to an event or logs it: else its fields need not be made."""
        return name in self._listeners or _log.isEnabledFor(CATALOGUE[name].level or -1)

    def _pass_on(self, notice: Notice) -> None:
        if self._closed or self._waiting.qsize() >= BACKLOG:
            self.dropped += 1
            return
        self._waiting.put(notice)
        if self._thread is None:
            self._start()

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self._closed:
                thread = threading.Thread(target=self._serve, name="embedq-events", daemon=True)
                thread.start()
                self._thread = thread

    def _serve(self) -> None:
        while True:
            item = self._waiting.get()
            if item is None:
                return
            if isinstance(item, threading.Event):
                item.set()
            else:
                self._tell(item)

    def _hidden(self, notice: Notice) -> Notice:
        """Hide secrets: here, on the hub's thread, where that delays nobody."""
        hide = self.hide
        if hide is None or WORDS_OF_OTHERS.isdisjoint(notice.fields):
            return notice
        fields = {
            name: hide(str(value)) if name in WORDS_OF_OTHERS else value
            for name, value in notice.fields.items()
        }
        return notice._replace(fields=fields)

    def _tell(self, notice: Notice) -> None:
        try:
            notice = self._hidden(notice)
        except Exception:  # noqa: BLE001  # then nobody may see what was to be hidden
            _log.exception("the texts of the event %r could not be hidden", notice.name)
            return
        self._write(notice)
        for listener, queue in self._listeners.get(notice.name, ()):
            if queue is not None and queue != notice.queue:
                continue
            try:
                listener(notice)
            except BaseException:  # noqa: BLE001  # it must not end the others
                _log.exception("a listener of %r failed: %r", notice.name, listener)

    def _write(self, notice: Notice) -> None:
        """Write an event to the log."""
        try:
            level = CATALOGUE[notice.name].level
            if _log.isEnabledFor(level):
                extra = {"event": notice.name, "embedq": dict(notice.fields)}
                _log.log(level, "%s", notice.text, extra=extra)
        except Exception:  # noqa: BLE001  # a field whose repr fails must not end the others
            _log.exception("the event %r could not be logged", notice.name)

    # ------------------------------------------------------------------------- listening

    def on(self, name: str, listener: Listener, *, queue: str | None = None) -> Callable[[], None]:
        """Call `listener(notice)` for each event of that name ("*": all), of one queue if given.

        It runs on the hub's thread, after the fact, one event at a time; what it raises is
        logged. Returns what ends it. Raises InvalidOption for an unknown or merely counted event.
        """
        check_listener(name, listener, queue)
        row: _Row = (listener, queue)
        names = [name] if name != "*" else [known for known in CATALOGUE if CATALOGUE[known].level]
        with self._lock:
            for each in names:
                self._listeners[each] = (*self._listeners.get(each, ()), row)

        def off() -> None:
            with self._lock:
                for each in names:
                    left = tuple(r for r in self._listeners.get(each, ()) if r is not row)
                    if left:
                        self._listeners[each] = left
                    else:
                        self._listeners.pop(each, None)

        return off

    # -------------------------------------------------------------------------- counting

    def add_source(self, source: Callable[[], Counts]) -> None:
        """Let `counts` also ask `source`: for what is counted where it happens."""
        self._sources.append(source)

    def counts(self) -> Counts:
        """Return {(event, queue or None): how often} since the hub was made."""
        with self._lock:
            found = dict(self._counts)
        for source in self._sources:
            for key, count in source().items():
                found[key] = found.get(key, 0) + count
        return found

    def count(self, name: str, queue: str | None = None) -> int:
        """Return how often an event happened, in one queue or everywhere."""
        return sum(
            count
            for (known, of), count in self.counts().items()
            if known == name and queue in {None, of}
        )

    # ------------------------------------------------------------------------------- end

    def flush(self, timeout: float | None = 5.0) -> bool:
        """Wait until everything emitted so far has been passed on; False: not within `timeout`."""
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return True
        mark = threading.Event()
        self._waiting.put(mark)
        return mark.wait(timeout)

    def close(self, timeout: float = 5.0) -> None:
        """Pass on what waits and end the thread. Later events are only counted."""
        with self._lock:
            self._closed = True
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            self._waiting.put(None)
            thread.join(timeout)


def check_listener(name: object, listener: object, queue: str | None = None) -> None:
    """Raise InvalidOption for an event nobody can listen to, or what is no listener.

    Raises InvalidName for a queue that cannot be.
    """
    if queue is not None:
        check_queue_name(queue)
    if not isinstance(name, str) or (name != "*" and name not in CATALOGUE):
        raise InvalidOption(
            f"there is no event {shown(name)}",
            hint='docs/events.md lists all of them; "*" is every one',
            argument="name",
        )
    if name != "*" and CATALOGUE[name].level == COUNTED:
        raise InvalidOption(
            f"the event {name!r} happens for every message and is only counted",
            hint="stats() tells how often it happened",
            argument="name",
        )
    if not callable(listener) or inspect.iscoroutinefunction(listener):
        raise InvalidOption(
            f"a listener is a plain function of one argument, not {shown(listener)}",
            hint="in an async program let it call loop.call_soon_threadsafe",
            argument="listener",
        )
