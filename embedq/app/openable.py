"""The file of a broker: its settings, who opens it and when, who hears of it, how it is closed.

Knows: that a file is opened by its first use, once in a process, and again after it was closed.
Does not know: consumers (broker.py), what stands behind an open file (hosting.py).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from embedq.app import settings as setting
from embedq.app.hearing import Hearing
from embedq.app.hosting import Backing, open_backing
from embedq.app.opening import Origin, close_at_exit, need_not_close
from embedq.clock import Clock
from embedq.errors import NotRunning, UsageError
from embedq.limits import Limits

if TYPE_CHECKING:
    from embedq.broker.port import DeskPort, QueuePort


class Openable:
    """What a broker is without its consumers. `given`: the settings that were given to it."""

    def __init__(self, given: Mapping[str, object], clock: Clock | None, limits: Limits) -> None:
        self._given = setting.check(given)
        setting.check_parts(clock, limits)
        self._clock = clock
        self._limits = limits
        self._lock = threading.RLock()
        self._settings: setting.Settings | None = None
        self._place: str | None = None
        self._declared: dict[str, dict[str, object]] = {}
        self._states: dict[str, QueuePort] = {}
        self._hearing = Hearing()
        self._backing: Backing | None = None
        self._stopped = False
        self._origin = Origin(repr(self))

    @property
    def settings(self) -> setting.Settings:
        """What the broker runs with, and where each value comes from."""
        if self._settings is None:
            self._settings = setting.resolve(self._given)
        return self._settings

    @property
    def place(self) -> str:
        """The path as it was meant when the file was first opened, wherever this process is."""
        return self.settings.path if self._place is None else self._place

    def _placed(self) -> setting.Settings:
        """Return the settings with a path that stays the same file from now on."""
        if self._place is None:
            path = self.settings.path
            self._place = path if setting.is_elsewhere(path) else os.path.abspath(path)  # noqa: PTH100
        return replace(self.settings, path=self._place)

    def override(self, **given: object) -> None:
        """Replace settings while the file is not open: what a command line says wins."""
        with self._lock:
            if self._backing is not None:
                raise UsageError(f"{self!r} is open already", hint="do not use it at import")
            self._given.update(setting.check(given))
            self._settings = self._place = None

    @property
    def desk(self) -> DeskPort:
        """The open broker room; opens the file if need be. Raises NotRunning once stopped."""
        return self.backing.desk

    @property
    def backing(self) -> Backing:
        """The host or the connection behind the broker; opens it as `desk` does."""
        backing = self._backing
        return self._open() if backing is None else backing

    def state_of(self, name: str) -> tuple[DeskPort, QueuePort]:
        """Return the desk and a queue in it. Raises NotRunning, and why the file cannot open."""
        desk = self.desk
        state = self._states.get(name)
        if state is None:
            with self._lock:
                state = self._states[name] = desk.declare(name, self._declared.get(name, {}))
        return desk, state

    def opened(self, name: str) -> tuple[DeskPort, QueuePort] | None:
        """Return the same if the file is open and the queue is known: never waits."""
        backing, state = self._backing, self._states.get(name)
        return None if backing is None or state is None else (backing.desk, state)

    async def astate_of(self, name: str) -> tuple[DeskPort, QueuePort]:
        """Do the same as `state_of`, from a coroutine."""
        found = self.opened(name)
        if found is not None:
            return found
        import asyncio  # noqa: PLC0415  # loaded already, by those who use coroutines

        return await asyncio.to_thread(self.state_of, name)

    def _open(self, *, again: bool = False) -> Backing:
        with self._lock:
            self._origin.check(self._backing)
            if self._backing is not None:
                return self._backing
            if self._stopped and not again:
                raise NotRunning(f"{self!r} was stopped")
            backing = open_backing(self._placed(), self._clock, self._limits)
            desk = backing.desk
            try:
                desk.redact = self.settings.redact
                self._hearing.connect(desk.events)
                desk.announce()
                for name, changes in self._declared.items():
                    self._states[name] = desk.declare(name, changes)
                backing.serve()
            except BaseException:
                backing.close()
                raise
            self._backing = backing
            self._stopped = False
            close_at_exit(self)
            return backing

    def _close(self) -> None:
        with self._lock:
            backing, self._backing = self._backing, None
            self._states = {}
            self._hearing.disconnect()
            self._stopped = True
            need_not_close(self)
        if backing is not None:
            backing.close()

    def close_at_exit(self) -> None:
        """Close a file that was opened by its first use and never closed."""
        if not self._origin.is_foreign:
            self._close()
