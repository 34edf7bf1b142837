"""Calls: messages for a service, and the replies that are routed back to their callers.

Knows: that a URL begins with the name of a queue, who waits for a reply, for how long.
Does not know: services; what is called is a message in a queue like any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from embedq.errors import EmbedqError
from embedq.message import Receipt
from embedq.names import from_wire
from embedq.net.timers import Timer
from embedq_transports.zbus.answers import OF_HTTP, Answer
from embedq_transports.zbus.envelope import draft_of
from embedq_transports.zbus.errors import failed
from embedq_transports.zbus.task import Task

if TYPE_CHECKING:
    from embedq_transports.zbus.session import ZbusSession

#: Segments of a URL that are tried as the name of a queue.
_SEGMENTS = 32
#: Headers of a routed reply that are for the server.
_FOR_US = OF_HTTP | {"cmd", "target", "source", "ack", "id", "apikey", "signature", "signfields"}


class Calls:
    """The calls of one connection that wait for their replies, by id, the oldest first."""

    def __init__(self, session: ZbusSession) -> None:
        self._session = session
        self._waiting: dict[str, list[tuple[Task, Timer]]] = {}

    def enter(self, task: Task) -> None:
        """Take a message without a command: its URL says which queue it is for."""
        session, message = self._session, task.message
        url = message.url
        if url is None:
            task.say(400, "cmd key required")
            return
        broker = session.connection.broker
        names = _names_in(url)
        removed = session.hub.removed
        task.later()

        def found(known: list[str] | EmbedqError) -> None:
            if isinstance(known, EmbedqError):
                task.done(failed(known, task))
                return
            there = set(known) - removed
            name = next((each for each in names if from_wire(each.encode()) in there), None)
            if name is None:
                path = url.partition("?")[0]
                task.say(404, f"{path} Not Found")
            elif not session.hub.is_served(from_wire(name.encode())):
                task.say(502, f"MQ({name}) has no subscriber")
            else:
                self._call(task, name)

        broker.call(broker.office.queues, found)

    def _call(self, task: Task, name: str) -> None:
        session, message = self._session, task.message
        try:
            draft = draft_of(message, task.wire_id, session.source, session.peer)
        except EmbedqError as error:
            task.done(failed(error, task))
            return

        def stored(result: Receipt | EmbedqError) -> None:
            if isinstance(result, EmbedqError):
                self._forget(task)
                task.done(failed(result, task))
            elif session.is_websocket:
                task.done(None)  # its reply comes as a message of its own
            else:
                task.detach()

        if not session.is_websocket:
            self._wait(task)
        queue = from_wire(name.encode())
        session.connection.broker.put(queue, draft, stored, create=False)
        task.puts(queue)

    def _wait(self, task: Task) -> None:
        seconds = self._session.terms.call_s

        def due() -> None:
            self._forget(task)
            task.say(504, "the service has not answered in time")
            self._session.settled()

        timer = self._session.connection.later(seconds, due)
        self._waiting.setdefault(task.wire_id, []).append((task, timer))

    def _forget(self, task: Task) -> None:
        waiting = self._waiting.get(task.wire_id, [])
        for entry in waiting:
            if entry[0] is task:
                waiting.remove(entry)
                entry[1].cancel()
                break
        if not waiting:
            self._waiting.pop(task.wire_id, None)

    # ------------------------------------------------------------------------------- replies

    def route(self, task: Task) -> None:
        """Hand a reply to the session it is for; only who wants an answer is told of it."""
        message = task.message
        ack = message.flag("ack", default=False)
        target = message.text("target")
        if target is None:
            task.say(400, "route command, missing target field")
            return
        headers = {
            name: value for name, value in message.headers.items() if name.lower() not in _FOR_US
        }
        headers["id"] = task.wire_id
        headers["remote-addr"] = self._session.peer
        answer = Answer(
            headers, message.kind, message.body, message.status, message.url, message.method
        )
        session = self._session.hub.sessions.get(target)
        if session is None or not session.calls.came(answer):
            task.say(404, f"Target={target} Not Found", ack=ack)
        else:
            task.say(200, "OK", ack=ack)

    def came(self, answer: Answer) -> bool:
        """Give a reply to the caller here, and tell whether there is one."""
        session = self._session
        waiting = self._waiting.get(answer.headers["id"])
        if not waiting:
            if session.is_websocket:
                session.push(answer)
            return session.is_websocket
        task = waiting[0][0]
        self._forget(task)
        task.done(answer)
        session.settled()
        return True


def _names_in(url: str) -> list[str]:
    """Return what in a URL may be the name of a queue, the longest first.

    Names end where a segment ends. The first slash may belong to the name or not.
    """
    path = url.partition("?")[0]
    parts = path.split("/")[: _SEGMENTS + 1]
    names = []
    for count in range(len(parts), 0, -1):
        name = "/".join(parts[:count])
        names += [name, name.removeprefix("/")] if name.startswith("/") else [name]
    return [name for name in dict.fromkeys(names) if name]
