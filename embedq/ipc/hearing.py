"""The events of a client: its own, and those of the host that somebody here listens to.

Knows: which names the host must be asked for, that the host has logged and counted its own.
Does not know: sockets, why events happen.
"""

from __future__ import annotations

from collections.abc import Callable

from embedq.catalogue import CATALOGUE
from embedq.clock import Clock
from embedq.events import Events, Listener, Notice


class RemoteEvents(Events):
    """The hub of a client. `ask(names)` asks the host for the events of these names only."""

    def __init__(self, clock: Clock, ask: Callable[[list[str]], object]) -> None:
        super().__init__(clock)
        self._ask = ask

    @property
    def names(self) -> list[str]:
        """The events that somebody listens to."""
        return sorted(self._listeners)

    def on(self, name: str, listener: Listener, *, queue: str | None = None) -> Callable[[], None]:
        """Call `listener(notice)` for events here and at the host; see Events.on."""
        leave = super().on(name, listener, queue=queue)
        self._ask(self.names)

        def off() -> None:
            leave()
            self._ask(self.names)

        return off

    def hear(self, notice: Notice) -> None:
        """Pass on an event of the host. One that is not known here comes from a newer version."""
        if notice.name in CATALOGUE and notice.name in self._listeners:
            self._pass_on(_Heard(*notice))

    def _write(self, notice: Notice) -> None:
        if not isinstance(notice, _Heard):
            super()._write(notice)


class _Heard(Notice):
    """An event of the host: it was logged there."""
