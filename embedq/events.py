"""Events: one catalogue of what a broker tells, and the hub that counts, logs and passes it on.

Knows: every event with its level, fields and text; who listens; how often each has happened.
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

from embedq.clock import Clock, SystemClock
from embedq.errors import InvalidOption, shown
from embedq.names import check_queue_name

#: Level of events that happen for every message: they are counted and never passed on.
COUNTED: Final = 0
DEBUG, INFO, WARNING, ERROR = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR

#: Events that may wait for slow listeners before new ones are dropped (and counted).
BACKLOG: Final = 10_000

_log = logging.getLogger("embedq")
_LEVEL_NAMES: Final = {COUNTED: "counted", DEBUG: "debug", INFO: "info"} | {
    WARNING: "warning",
    ERROR: "error",
}


class EventSpec(NamedTuple):
    """One row of the catalogue. `text` is filled in with the fields; `note` is for the docs."""

    level: int
    fields: tuple[str, ...]
    text: str
    note: str

    @property
    def level_name(self) -> str:
        """The level as it is written: counted, debug, info, warning, error."""
        return _LEVEL_NAMES[self.level]


def _spec(level: int, fields: str, text: str, note: str) -> EventSpec:
    return EventSpec(level, tuple(fields.split()), text, note)


_MESSAGE: Final = "queue {queue!r}, group {group!r}: message {id}"

#: Names, levels and fields are an API: nothing is renamed, fields are only added.
CATALOGUE: Final[Mapping[str, EventSpec]] = {
    # --- every message
    "put": _spec(COUNTED, "queue", "", "messages were stored"),
    "delivered": _spec(COUNTED, "queue group", "", "deliveries were handed to consumers"),
    "acked": _spec(COUNTED, "queue group", "", "deliveries were settled as done"),
    # --- what becomes of a delivery
    "retried": _spec(
        *(DEBUG, "queue group id seq attempt delay_s error"),
        _MESSAGE + " failed attempt {attempt} ({error}); again in {delay_s} s",
        "an attempt failed and another will follow",
    ),
    "lease_expired": _spec(
        *(WARNING, "queue group id seq attempt"),
        _MESSAGE + " had no answer to attempt {attempt} before its lease ended",
        "nobody answered in time; the message is delivered again, or dead",
    ),
    "released": _spec(
        *(DEBUG, "queue group count"),
        "queue {queue!r}, group {group!r}: {count} deliveries were given back",
        "deliveries were given back without costing an attempt",
    ),
    "crashed_delivery": _spec(
        *(WARNING, "queue group id seq attempt crashes cause"),
        _MESSAGE + " was being delivered (attempt {attempt}) when its host ended: {cause}",
        "found after a restart: its attempt counts",
    ),
    "suspect": _spec(
        *(WARNING, "queue group id seq crashes"),
        _MESSAGE + " may have ended its host {crashes} times and runs alone",
        "messages that were running at a crash are retried one at a time",
    ),
    "dead": _spec(
        *(WARNING, "queue group id seq reason detail"),
        _MESSAGE + " is dead: {reason} ({detail})",
        "a message became a dead letter",
    ),
    "expired": _spec(
        *(DEBUG, "queue group id seq"),
        _MESSAGE + " has expired",
        "its time to live ended first; `dead` tells about it, too",
    ),
    "corrupt": _spec(
        *(ERROR, "queue group id seq"),
        _MESSAGE + " does not match its checksum",
        "a stored body is damaged; `dead` tells about it, too",
    ),
    "redriven": _spec(
        *(INFO, "queue count by"),
        "queue {queue!r}: {count} dead letters were put again by {by}",
        "dead letters became new messages",
    ),
    "dropped": _spec(
        *(INFO, "queue count"),
        "queue {queue!r} is full: its {count} oldest messages were dropped",
        "puts into a full queue pushed messages out (when_full is drop_oldest)",
    ),
    "purged": _spec(
        *(INFO, "queue group what count"),
        "queue {queue!r}: {count} {what} were purged",
        "an operator removed messages or dead letters; `group` is None for all groups",
    ),
    # --- consumers
    "consumer_registered": _spec(
        *(INFO, "queue group consumer concurrency kind"),
        "queue {queue!r}, group {group!r}: {consumer} consumes ({kind}, {concurrency} slots)",
        "a consumer has started",
    ),
    "consumer_error": _spec(
        *(ERROR, "queue group consumer error"),
        "queue {queue!r}, group {group!r}: {consumer} cannot go on: {error}",
        "something beside the handler failed: the slot tries again",
    ),
    "handler_failed": _spec(
        *(INFO, "queue group consumer id seq attempt error"),
        _MESSAGE + ": {consumer} failed attempt {attempt}: {error}",
        "a handler raised; `retried` or `dead` says what follows",
    ),
    "handler_timeout": _spec(
        *(WARNING, "queue group consumer id seq attempt timeout_s"),
        _MESSAGE + ": {consumer} exceeded its timeout of {timeout_s} s",
        "a handler ran longer than its timeout",
    ),
    "stuck_slot": _spec(
        *(ERROR, "queue group consumer id seq thread"),
        _MESSAGE + ": {consumer} does not return; its thread {thread} is lost",
        "a thread ignores its cancellation; it cannot be ended from outside",
    ),
    "slot_replaced": _spec(
        *(WARNING, "queue group consumer stuck"),
        "queue {queue!r}, group {group!r}: {consumer} has a new slot, {stuck} are stuck",
        "a new thread took the place of a stuck one",
    ),
    "loop_blocked": _spec(
        *(WARNING, "queue group consumer seconds stack"),
        "queue {queue!r}, group {group!r}: {consumer} has held its loop for {seconds} s\n{stack}",
        "a coroutine does not give way: others on its loop wait",
    ),
    # --- queues
    "queue_declared": _spec(
        *(INFO, "queue"), "queue {queue!r} was created", "a queue was named for the first time"
    ),
    "settings_changed": _spec(
        *(WARNING, "queue changes"),
        "queue {queue!r}: an explicit declaration changed {changes}",
        "the last declaration wins over what was stored",
    ),
    "paused": _spec(INFO, "queue", "queue {queue!r} was paused", "nothing is delivered from it"),
    "resumed": _spec(INFO, "queue", "queue {queue!r} was resumed", "deliveries go on"),
    # --- the host
    "started": _spec(INFO, "path epoch", "host of {path} (epoch {epoch})", "a host has opened"),
    "stopped": _spec(INFO, "path", "host of {path} has stopped", "the file is free again"),
    "unclean_start": _spec(
        *(WARNING, "path epoch cause"),
        "{path} was not closed by its last host; what it had started counts as attempts ({cause})",
        "the last host ended without closing",
    ),
    "drain_started": _spec(
        *(INFO, "running grace_s reason"),
        "draining ({reason}): {running} handlers have {grace_s} s to finish",
        "nothing new is claimed any more",
    ),
    "drain_finished": _spec(
        *(INFO, "finished released stuck seconds"),
        "drained in {seconds} s: {finished} finished, {released} given back, {stuck} stuck",
        "consumers have stopped",
    ),
    "store_full": _spec(
        *(ERROR, "path detail"),
        "{path}: puts are refused: {detail}",
        "the disk is nearly full; acks still succeed",
    ),
    "store_recovered": _spec(
        *(INFO, "path"), "{path}: puts are accepted again", "the disk has room again"
    ),
    "store_failed": _spec(
        *(ERROR, "path detail"),
        "{path}: the store has stopped: {detail}",
        "nothing is stored any more; open the file again",
    ),
}


class Notice(NamedTuple):
    """One event as listeners get it. `at` is the wall clock in seconds."""

    name: str
    at: float
    fields: Mapping[str, object]

    @property
    def text(self) -> str:
        """The event in one sentence."""
        known = dict.fromkeys(CATALOGUE[self.name].fields) | dict(self.fields)
        return CATALOGUE[self.name].text.format_map(known)

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

    def _tell(self, notice: Notice) -> None:
        try:
            level = CATALOGUE[notice.name].level
            if _log.isEnabledFor(level):
                extra = {"event": notice.name, "embedq": dict(notice.fields)}
                _log.log(level, "%s", notice.text, extra=extra)
        except Exception:  # noqa: BLE001  # a field whose repr fails must not end the others
            _log.exception("the event %r could not be logged", notice.name)
        for listener, queue in self._listeners.get(notice.name, ()):
            if queue is not None and queue != notice.queue:
                continue
            try:
                listener(notice)
            except BaseException:  # noqa: BLE001  # it must not end the others
                _log.exception("a listener of %r failed: %r", notice.name, listener)

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
            hint=f"events are {', '.join(n for n, s in CATALOGUE.items() if s.level)}",
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
