"""Dead letters for clients that take them one at a time and confirm each.

Knows: whose turn it is, which letters are held, in which order they come back.
Does not know: bytes, connections, why a message died.

What is held is known here only: a letter is removed when it is confirmed and stays a dead letter
until then, so after the end of the host, however it comes, everything is there again. Everything
happens on the thread of the loop; only the store is asked on another one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from embedq.broker.office import Which
from embedq.errors import EmbedqError, QueueNotFound, UnknownMessage
from embedq.storage.rows import DeadRow

if TYPE_CHECKING:
    from embedq.net.network import Network

#: Seconds after which an empty desk looks again, should it have heard of nothing.
_LOOK_S: Final = 1.0


class HeldLetter:
    """A dead letter that one client holds, until it is removed or given back."""

    def __init__(self, desk: DeadDesk, row: DeadRow) -> None:
        self._desk = desk
        self._is_held = True
        self.body = row.body
        self.seq = row.seq

    @property
    def id(self) -> str:
        """The message id."""
        return self._desk.id_of(self.seq)

    def remove(self, then: Callable[[EmbedqError | None], object] | None = None) -> None:
        """The client is done with it: it is a dead letter no more. `then`: it is durable."""
        if self._is_held:
            self._is_held = False
            self._desk.remove(self, then)

    def give_back(self) -> None:
        """Let others have it, behind all letters that are there now."""
        if self._is_held:
            self._is_held = False
            self._desk.give_back(self.seq)


class Asking:
    """A client that waits for a letter."""

    def __init__(self, desk: DeadDesk, then: Callable[[HeldLetter], object]) -> None:
        self._desk = desk
        self.then = then
        self.is_open = True

    def cancel(self) -> None:
        """It waits no more; no letter is spent on it."""
        self.is_open = False
        self._desk.rest()


class _Found(NamedTuple):
    """What the store has: the next letter that nobody has had, and the first one given back."""

    fresh: DeadRow | None = None
    looked_for: int | None = None
    back: DeadRow | None = None


class DeadDesk:
    """Hands out the dead letters of one group, the oldest first. Use `dead_desk` to get it.

    A letter that was given back comes after those that had died by then.
    """

    def __init__(self, network: Network, queue: str, group: str) -> None:
        self._network = network
        self._queue = queue
        self._group = group
        self._asking: deque[Asking] = deque()
        self._back: deque[tuple[int, int]] = deque()  # (given back at, seq)
        self._cursor = 0  # letters up to this number have been handed out
        self._is_looking = False
        self._has_heard = False  # of a letter, since the last look began
        self._stop_listening: Callable[[], None] | None = None

    def id_of(self, seq: int) -> str:
        """Return a message id."""
        return self._network.desk.ids.encode(seq)

    def ask(self, then: Callable[[HeldLetter], object]) -> Asking:
        """Wait for a letter: first come, first served. `then` gets it, held."""
        asking = Asking(self, then)
        self._asking.append(asking)
        self._look()
        return asking

    def remove(
        self, letter: HeldLetter, then: Callable[[EmbedqError | None], object] | None
    ) -> None:
        """Remove a letter; one that is gone already does not matter."""
        office = self._network.desk.office
        which = Which((letter.id,), group=self._group)

        def done(result: int | EmbedqError) -> None:
            error = result if isinstance(result, EmbedqError) else None
            if isinstance(error, UnknownMessage):
                error = None
            if error is not None:
                self.give_back(letter.seq)
            if then is not None:
                then(error)

        self._network.call(lambda: office.purge_dead(self._queue, which), done)

    def give_back(self, seq: int) -> None:
        """Put a letter behind the others."""
        self._back.append((self._network.desk.now_ms(), seq))
        self._look()

    # ------------------------------------------------------------------------- looking

    def _look(self) -> None:
        if self._is_looking:
            return
        if self._next() is None:
            self._listen_no_more()
            return
        self._listen()  # first, or what dies behind the look's back is heard by nobody
        self._is_looking, self._has_heard = True, False
        cursor, first = self._cursor, self._back[0][1] if self._back else None
        self._network.call(lambda: self._find(cursor, first), self._found)

    def _find(self, cursor: int, first: int | None) -> _Found:
        """Ask the store; on another thread."""
        office = self._network.desk.office
        try:
            info = office.info(self._queue)
        except QueueNotFound:
            return _Found()
        group = next((known.id for known in info.groups if known.name == self._group), None)
        if group is None:
            return _Found()
        back = None if first is None else office.dead_letter(first, group)
        while rows := office.dead_rows(info.id, cursor, 1):
            if rows[0].group == group:
                return _Found(rows[0], first, back)
            cursor = rows[0].id
        return _Found(None, first, back)

    def _found(self, found: _Found | EmbedqError) -> None:
        self._is_looking = False
        if isinstance(found, EmbedqError):
            self._look_again()
            return
        asking = self._next()
        if asking is None:
            return
        # What was given back before somebody looked is first in `_back`; more may have come since.
        row = found.fresh
        if found.looked_for is not None and (row is None or self._back[0][0] < row.died):
            self._back.popleft()
            row = found.back  # None: somebody else has removed it, or put it again
            if row is None:
                self._look()
                return
        elif row is None:
            self._look_again()
            return
        else:
            self._cursor = row.id
        self._asking.popleft()
        asking.is_open = False
        asking.then(HeldLetter(self, row))
        self._look()

    def _next(self) -> Asking | None:
        """Return who is to have the next letter."""
        while self._asking and not self._asking[0].is_open:
            self._asking.popleft()
        return self._asking[0] if self._asking else None

    def _look_again(self) -> None:
        """There was nothing: look again if a message has died meanwhile, or else when one does."""
        if self._has_heard:
            self._look()

    def _listen(self) -> None:
        """Look when a message dies, or after a while."""
        network = self._network
        if self._stop_listening is None:
            timer = network.timers.add(_LOOK_S, self._woken)
            heard = network.desk.events.on(
                "dead", lambda _: network.post(self._woken), queue=self._queue
            )

            def stop() -> None:
                timer.cancel()
                heard()

            self._stop_listening = stop

    def _woken(self) -> None:
        if self._stop_listening is not None:
            self._has_heard = True
            self._listen_no_more()
            self._look()

    def rest(self) -> None:
        """Hear of no letters while nobody waits for one: the loop may end before the next."""
        if self._next() is None:
            self._listen_no_more()

    def _listen_no_more(self) -> None:
        stop, self._stop_listening = self._stop_listening, None
        if stop is not None:
            stop()


def dead_desk(network: Network, queue: str, group: str = "default") -> DeadDesk:
    """Return who hands out the dead letters of a group: one for all listeners of a broker."""
    desks = network.shared.setdefault("dead letters", {})
    assert isinstance(desks, dict)  # noqa: S101  # the name is ours: no protocol can be called so
    found = desks.get((queue, group))
    if found is None:
        found = desks[queue, group] = DeadDesk(network, queue, group)
    return found
