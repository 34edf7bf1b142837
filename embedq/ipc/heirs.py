"""Sessions that an earlier host has left, and what they hold: kept until they have come back.

Knows: that they are found by their marks, that each delivery is met once, early or late.
Does not know: connections, how long anybody waits (sessions.py), how deliveries end (ends.py).
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from embedq.broker.desk import Desk
from embedq.broker.inherited import GiveAnew, Inheritance, Inherited, Shown
from embedq.broker.numbered import Numbers
from embedq.ipc import frames, place
from embedq.ipc.ends import Ends
from embedq.ipc.marks import owner_of
from embedq.ipc.session import Session

_log = logging.getLogger("embedq.ipc")


class Heirs:
    """Those who hold deliveries of earlier epochs. Belongs to the loop of the server."""

    def __init__(self, desk: Desk, ends: Ends) -> None:
        self._desk = desk
        self._ends = ends
        self._loop = asyncio.get_running_loop()
        self._by_id: dict[int, Session] = {}

    def expected(self, folder: Path) -> list[Session]:
        """Return a session for each that an earlier host has left; none of them is connected."""
        heirs = self._desk.inheritance
        if heirs is None:
            return []
        names = self._desk.store.session_names(heirs.sessions)
        for id_, token in heirs.sessions.items():
            marks = str(place.marks_path(folder, token))
            pid = owner_of(marks) or 0
            hello = frames.Hello([], token, names.get(id_, ""), pid, marks=marks)
            self._by_id[id_] = Session(hello, Numbers(id_), 0, expected=True)
        return list(self._by_id.values())

    def listen(self) -> None:
        """Take in what has been met of their deliveries, and what will be."""
        heirs = self._desk.inheritance
        if heirs is None:
            return
        with self._desk.writer.entry, self._desk.writer.lock:
            met = heirs.listen(self._met_soon)
        for each in met:
            self._met(each)

    def forget(self, session: Session) -> None:
        """A session has ended: only deliveries of earlier hosts can still be met for it."""
        heirs = self._desk.inheritance
        if heirs is None or session.id not in heirs.sessions:
            self._by_id.pop(session.id, None)

    def _met_soon(self, met: Inherited) -> None:
        """Hear of a delivery. Called under the broker's lock, from any thread."""
        try:
            self._loop.call_soon_threadsafe(self._met, met)
        except RuntimeError:
            _log.debug("the server has closed: the lease of message %s ends", met.lease.seq)

    def _met(self, met: Inherited) -> None:
        session = self._by_id.get(met.session)
        if session is None or not met.lease.is_held or met.lease.counter in session.leases:
            return
        session.inherit(met.lease, met.epoch, met.counter)
        if session.ended:
            self._ends.do(self._ends.late(session))
        elif not session.expected:
            # Its client is here, and has not got it.
            self._ends.do(self._ends.give_back(session, [met.lease.counter]))

    async def give_anew(self, session: Session, hello: frames.Hello) -> None:
        """Let a client that is here keep what it shows of an earlier host's deliveries."""
        desk = self._desk
        self._by_id[session.id] = session
        if hello.held and hello.epoch != desk.store.epoch:
            if desk.inheritance is None:
                desk.inheritance = Inheritance({})
                self.listen()
            shown = [Shown(each.group, each.seq, each.counter) for each in hello.held]
            task = GiveAnew(desk, desk.inheritance, session.id, hello.epoch, shown)
            await desk.arun(task)
            for position, lease in task.leases.items():
                told = hello.held[position]
                session.give_anew(lease, told)
                if told.keep:
                    desk.keep(lease, session.is_alive)
        session.expected = False
