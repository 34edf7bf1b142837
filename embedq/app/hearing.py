"""Who listens to the events of a broker, whether its file is open or not.

Knows: that listeners outlive the file: they are connected each time it is opened.
Does not know: which events there are, when they happen.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from embedq.events import Events, Listener, check_listener


class Hearing:
    """The listeners of a broker. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0
        self._wanted: dict[int, tuple[str, Listener, str | None]] = {}
        self._leave: dict[int, Callable[[], None]] = {}
        self._events: Events | None = None

    def add(self, event: str, listener: Listener, queue: str | None) -> Callable[[], None]:
        """Let `listener` hear an event from now on; returns what ends it. InvalidOption."""
        check_listener(event, listener, queue)
        with self._lock:
            self._last += 1
            number = self._last
            self._wanted[number] = (event, listener, queue)
            if self._events is not None:
                self._leave[number] = self._events.on(event, listener, queue=queue)

        def off() -> None:
            with self._lock:
                self._wanted.pop(number, None)
                leave = self._leave.pop(number, None)
            if leave is not None:
                leave()

        return off

    def decorator(self, event: str, queue: str | None) -> Callable[[Listener], Listener]:
        """Return what adds the function below it. InvalidOption, whatever the function."""
        check_listener(event, print, queue)

        def decorate(function: Listener) -> Listener:
            self.add(event, function, queue)
            return function

        return decorate

    def connect(self, events: Events) -> None:
        """Let all hear the events of a file that has been opened."""
        with self._lock:
            self._events = events
            for number, (event, listener, queue) in self._wanted.items():
                self._leave[number] = events.on(event, listener, queue=queue)

    def disconnect(self) -> None:
        """Forget the events of a file that is closed."""
        with self._lock:
            self._events = None
            self._leave = {}
