"""The commands of zbus: what each asks of the broker, and the sentence that answers it.

Knows: the names, the required fields and the answers of docs/protocols/zbus.md.
Does not know: the order of answers (session.py), subscriptions (channels.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, ClassVar, Final

from embedq.errors import EmbedqError, GroupNotFound, QueueNotFound
from embedq.limits import LIMITS
from embedq.message import Receipt
from embedq.names import from_wire
from embedq.net import Access
from embedq_transports.zbus.answers import shown, told
from embedq_transports.zbus.book import BOOK, Then
from embedq_transports.zbus.channels import tell_removed
from embedq_transports.zbus.envelope import draft_of
from embedq_transports.zbus.errors import failed, no_channel, no_mq
from embedq_transports.zbus.making import Making
from embedq_transports.zbus.query import describe
from embedq_transports.zbus.taking import Taking
from embedq_transports.zbus.task import Task

if TYPE_CHECKING:
    from embedq.broker.stats import QueueStats
    from embedq_transports.zbus.hub import Watch
    from embedq_transports.zbus.session import ZbusSession

#: How commands that need them say that they are missing.
_MISSING: Final = {
    "create": "create command, missing mq field",
    "pub": "pub command, missing mq field",
    "remove": "remove command, missing mq field",
}


class Commands:
    """What one connection may ask for."""

    def __init__(self, session: ZbusSession) -> None:
        self._session = session

    @property
    def _broker(self) -> Access:
        return self._session.connection.broker

    def run(self, task: Task) -> None:
        """Do what a message says. Raises BadInteger, BadFilter, EmbedqError."""
        command = task.message.text("cmd")
        if command is None:
            if self._session.terms.monitor and not self._session.is_websocket:
                self._show(task)
            else:
                self._session.calls.enter(task)
            return
        do = self._KNOWN.get(command.lower())
        if do is None:
            task.say(404, f"Command({command}) Not Found")
        else:
            do(self, task)

    def _mq(self, task: Task, command: str = "") -> str | None:
        """Return the queue that a message names; if it names none, or one that is gone, say so."""
        mq = task.message.text("mq")
        if mq is None:
            task.say(400, _MISSING.get(command, "Missing mq field"))
        elif command in ("create", "remove") and _queue(mq) == BOOK:
            task.say(403, f"MQ({mq}) is kept by the server for itself")
            return None
        elif command not in ("create", "remove") and _queue(mq) in self._session.hub.removed:
            task.done(failed(QueueNotFound(mq), task))
            return None
        return mq

    def _route(self, task: Task) -> None:
        self._session.calls.route(task)

    def _settle(self, task: Task) -> None:
        self._session.held.settle(task)

    # -------------------------------------------------------------------------------- ping, pub

    def _ping(self, task: Task) -> None:
        """The original answers none. One with an id, or over HTTP, is answered here."""
        silent = self._session.is_websocket and task.message.text("id") is None
        task.done(None if silent else shown(None, task.wire_id))

    def _pub(self, task: Task) -> None:
        mq = self._mq(task, "pub")
        if mq is None:
            return
        session, queue = self._session, _queue(mq)
        ack = task.message.flag("ack", default=True)
        draft = draft_of(task.message, task.wire_id, session.source, session.peer)
        put = _Put(session, task, queue, mq, ack=ack)
        task.puts(queue)
        # A client of HTTP that waits for its answer sends nothing meanwhile.
        session.answers = ack and not session.is_websocket
        self._broker.put(queue, draft, put, create=False)

    # ------------------------------------------------------------------------- create, remove

    def _create(self, task: Task) -> None:
        mq = self._mq(task, "create")
        if mq is not None:
            Making(self._session, task, mq).start()

    def _remove(self, task: Task) -> None:
        mq = self._mq(task, "remove")
        if mq is None:
            return
        channel = task.message.text("channel")
        queue = _queue(mq)
        task.later()
        where = f"mq={mq}" if channel is None else f"mq={mq},channel={channel}"

        def gone(error: EmbedqError | None) -> None:
            if error is None or isinstance(error, QueueNotFound | GroupNotFound):
                task.say(200, f"OK, REMOVE ({where})")  # also if it was not there
            else:
                task.done(failed(error, task))

        if channel is None:
            self.remove_all(self._broker, queue, gone)
        else:
            self.remove_channel(self._broker, queue, _queue(channel), gone)

    def remove_channel(
        self, broker: Access, queue: str, group: str, then: Then = lambda _error: None
    ) -> None:
        """Remove a channel. What has begun goes on without its client."""
        session = self._session
        if not broker.may("manage", queue):
            broker.remove_group(queue, group, then)  # which tells it
            return
        watches = session.hub.forget(queue, group)

        def removed(error: EmbedqError | None) -> None:
            if error is None or isinstance(error, QueueNotFound | GroupNotFound):
                tell_removed(watches)
                session.hub.keep(session.connection, queue, group, then)
            else:
                session.connection.called_back(lambda: then(error))

        session.connection.site.broker.remove_group(queue, group, removed)

    def remove_all(self, broker: Access, queue: str, then: Then = lambda _error: None) -> None:
        """Remove a queue with its channels and messages; the broker keeps its name.

        `broker` is asked whether this may be; what has begun goes on without its client.
        """
        session, office = self._session, broker.office
        hub, listener = session.hub, session.connection.site.broker
        watches: list[Watch] = []

        def found(groups: list[str] | EmbedqError) -> None:
            if isinstance(groups, EmbedqError):
                then(groups)
                return
            watches.extend(hub.forget(queue))
            remove_next(groups)

        def remove_next(groups: list[str], _error: EmbedqError | None = None) -> None:
            if groups:
                listener.remove_group(queue, groups[0], partial(remove_next, groups[1:]))
            else:
                tell_removed(watches)
                listener.call(lambda: office.purge(queue), purged)

        def purged(count: int | EmbedqError) -> None:
            if isinstance(count, EmbedqError):
                session.connection.called_back(lambda: then(count))
            else:
                hub.keep(session.connection, queue, None, then)

        def names() -> list[str]:
            return [each.name for each in office.queue_stats(queue).groups]

        broker.call(names, found, right="manage", queue=queue)

    # ------------------------------------------------------------------------------- sub, take

    def _channel(self, task: Task) -> tuple[str, str] | None:
        """Return the queue and the channel that a message names; if one is missing, say so."""
        mq = self._mq(task)
        if mq is None:
            return None
        channel = task.message.text("channel")
        if channel is None:
            task.say(400, "Missing channel field")
            return None
        return mq, channel

    def _sub(self, task: Task) -> None:
        named = self._channel(task)
        if named is not None:
            self._session.channels.subscribe(task, *named)

    def _take(self, task: Task) -> None:
        named = self._channel(task)
        if named is None:
            return
        window = task.message.number("window")
        if window is not None and window <= 0:
            task.say(400, "window is not positive")
            return
        Taking(self._session, task, *named, 1 if window is None else window).start()

    # ---------------------------------------------------------------------------------- query

    def _show(self, task: Task) -> None:
        """Answer a path as the monitor of the original does."""
        path, _, asked = (task.message.url or "").partition("?")
        mq = dict(each.partition("=")[::2] for each in asked.split("&")).get("mq")
        if path == "/":
            self._look(task, None)
        elif path == "/info" and mq is not None:
            self._look(task, mq)
        else:
            task.say(400, "cmd key required")

    def _query(self, task: Task) -> None:
        mq = task.message.text("mq")
        if mq is None or self._mq(task, "query") is not None:
            self._look(task, mq, task.message.text("channel"))

    def _look(self, task: Task, mq: str | None, channel: str | None = None) -> None:
        """Describe all queues, one of them, or one of its channels."""
        hub, broker, office = self._session.hub, self._broker, self._broker.office
        task.later()

        def found(stats: list[QueueStats] | EmbedqError) -> None:
            if isinstance(stats, QueueNotFound) and mq is not None:
                stats = []
            if isinstance(stats, EmbedqError):
                task.done(failed(stats, task))
                return
            seen = [
                describe(each, hub)
                for each in stats
                if each.name not in hub.removed and _may_look(broker, each.name)
            ]
            if mq is None:
                task.done(shown(seen, task.wire_id))
            elif not seen:
                task.say(404, no_mq(mq))
            elif channel is None:
                task.done(shown(seen[0], task.wire_id))
            else:
                channels = [each for each in seen[0]["channels"] if each["name"] == channel]
                answer = told(404, no_channel(channel), task.wire_id)
                task.done(shown(channels[0], task.wire_id) if channels else answer)

        def look() -> list[QueueStats]:
            names = office.queues() if mq is None else [_queue(mq)]
            return [office.queue_stats(name) for name in names]

        broker.call(look, found)

    #: What each command does. A table of bound methods would know its own connection.
    _KNOWN: ClassVar[dict[str, Callable[[Commands, Task], None]]] = {
        "create": _create,
        "pub": _pub,
        "sub": _sub,
        "take": _take,
        "query": _query,
        "remove": _remove,
        "route": _route,
        "ping": _ping,
        "ack": _settle,
        "nack": _settle,
        "reject": _settle,
    }


class _Put:
    """What waits for a message to be stored: one object, because many wait at once."""

    __slots__ = ("_ack", "_comes_back", "_mq", "_queue", "_session", "_task")

    def __init__(
        self, session: ZbusSession, task: Task, queue: str, mq: str, *, ack: bool
    ) -> None:
        self._session = session
        self._task = task
        self._queue = queue
        self._mq = mq
        self._ack = ack
        # While puts are under way nothing else begins: who subscribes to nothing now does not
        # before the answer.
        self._comes_back = ack and bool(session.channels)
        if self._comes_back:
            session.channels.unanswered[task.wire_id] += 1

    def __call__(self, result: Receipt | EmbedqError) -> None:
        session, task = self._session, self._task
        if isinstance(result, EmbedqError):
            task.done(failed(result, task))
        else:
            session.hub.mq(self._queue).last_pub_ms = session.connection.broker.now_ms()
            task.say(200, f"OK, PUB (mq={self._mq})", ack=self._ack)
        if self._comes_back:
            session.channels.answered(task.wire_id)


def _may_look(broker: Access, queue: str) -> bool:
    return any(broker.may(right, queue) for right in ("put", "consume", "manage"))


def _queue(name: str) -> str:
    """Return the broker's name for what a client says."""
    return _remembered(name) if len(name) <= LIMITS.name_bytes else _name_of(name)


def _name_of(name: str) -> str:
    return from_wire(name.encode("utf-8", "surrogatepass"))


#: Messages name the same queues again and again.
_remembered: Final = lru_cache(512)(_name_of)
