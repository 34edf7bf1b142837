"""One connection: its session, what the session may do, and everything that may end it.

Knows: the session of one client, its deadlines, how much may wait in either direction.
Does not know: any protocol, sockets (channel.py), how messages are stored or leased (access.py).

Everything happens on the thread of the loop. After its end a connection calls its session once
more (`lost`) and nobody else: answers that come later have nobody to go to.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from embedq.net.access import Access
from embedq.net.channel import Channel
from embedq.net.outbox import Left
from embedq.net.port import ANYBODY, Credentials, Identity, Session
from embedq.net.timers import Timer, cancel_all

if TYPE_CHECKING:
    from embedq.net.site import Site

_log = logging.getLogger("embedq.net")


class Connection:
    """A client. `peer`: its address in words. `broker`: what it may do with queues."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.limits = site.limits
        self.making = site.making
        self.counts = site.counts
        #: Who it is, once that is known; ANYBODY where nobody asks. None: not yet.
        self.identity: Identity | None = None
        self.broker = Access(site.network, self)
        self.channel = Channel(
            self,
            now=site.network.monotonic,
            soon=site.network.soon,
            context=site.context,
            room=site.network.room,
        )
        self.since = site.now()
        #: Why it has ended, or is about to.
        self.cause: str | None = None
        self._session: Session | None = None
        self._timers: set[Timer] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._frame_at: float | None = None
        self._frames = 0
        self._closing = False  # no more bytes go to the session
        self._holds_puts = False  # too many are under way: nothing is read
        self._finishing: tuple[str, float] | None = None
        self._gone = False
        self._is_late = False

    # ---------------------------------------------------------------- what a session uses

    @property
    def protocol(self) -> str:
        """The name of the protocol."""
        return self.site.transport.name

    @property
    def peer(self) -> str:
        """The address of the client in words."""
        return self.channel.peer

    @property
    def host(self) -> str:
        """The address alone, without its port; empty for a Unix socket."""
        return self.channel.host

    @property
    def gathers(self) -> bool:
        """Whether what one turn of the loop writes is sent together. Else each write by itself."""
        return self.channel.gathers

    @gathers.setter
    def gathers(self, together: bool) -> None:
        self.channel.gathers = together

    @property
    def is_open(self) -> bool:
        """Whether it can still be written to."""
        return self.channel.is_open and self.cause is None

    @property
    def is_closing(self) -> bool:
        """Whether nothing more is taken in: what has come and is not done yet must not be."""
        return self._closing

    @property
    def unsent(self) -> int:
        """Bytes that wait to be sent."""
        return self.channel.unsent

    @property
    def has_unread(self) -> bool:
        """Whether the client has sent bytes that nobody has read: what is closed loses them."""
        return self.channel.has_unread

    @property
    def is_clogged(self) -> bool:
        """Whether the client reads so slowly that it gets nothing unasked."""
        return self.channel.unsent > self.limits.unsent_pause_bytes

    def write(self, data: bytes, left: Left | None = None, *, ends: bool = False) -> None:
        """Send bytes, in the order of the calls, each call's in one piece.

        `left(True)` is called when they have left for the kernel, `left(False)` when they never
        will. A client that does not read is cut once more than unsent_most_bytes wait, unless
        what is sent is a few bytes that end what has begun (`ends`).
        """
        channel, limits = self.channel, self.limits
        slow = channel.unsent > limits.unsent_most_bytes and not ends
        if self.cause is None and not slow:
            if channel.write(data, left) > limits.unsent_pause_bytes and not self._closing:
                self.hold("unsent")
            return
        if left is not None:
            self.site.soon(lambda: left(False))
        if slow and self.cause is None:
            self.site.cut(self, "too_slow")

    def later(self, seconds: float, call: Callable[[], object]) -> Timer:
        """Call something after a while, unless the connection ends before. `.cancel()` it."""

        def due() -> None:
            self._timers.discard(timer)
            self._guard(call)

        timer = self.site.later(seconds, due)
        self._timers.add(timer)
        return timer

    def hold(self, why: str = "session") -> None:
        """Read nothing more until `unhold` with the same reason.

        What `received` has brought already is the session's to keep back.
        """
        self.channel.hold(why)

    def unhold(self, why: str = "session") -> None:
        """Read on, if no other reason holds it."""
        self.channel.unhold(why)

    def reset_if_killed(self, *, on: bool) -> None:
        """Let the kernel reset the connection, not end it in order, if this process dies.

        For protocols in which an orderly end means success. Turn it off before `finish`. A Unix
        socket knows no reset.
        """
        self.channel.reset_if_killed(on=on)

    def admit(self, identity: Identity = ANYBODY) -> None:
        """The client has shown who it is, or need not: the deadline of the login is over.

        Who has shown a certificate is not made ANYBODY.
        """
        if self.identity is None or identity is not ANYBODY:
            self.identity = identity

    def login(self, credentials: Credentials, then: Callable[[Identity | None], object]) -> None:
        """Ask who this is; `then` gets the identity, which is admitted, or None.

        Where the listener does not ask, anybody is ANYBODY, or who its certificate names. While it
        is asked nothing is read; what has come already is the session's to keep back.
        """
        self.site.identify(self, credentials, then)

    def start(self, coroutine: Any) -> None:  # noqa: ANN401  # of any result
        """Run a coroutine for the session; it ends with the connection."""
        task = asyncio.get_running_loop().create_task(self._run(coroutine))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def fault(self, code: str, text: str = "") -> None:
        """The client broke the protocol: count and tell it, send what is written, close."""
        self.site.faulty(self, code, text)
        self.close("protocol")

    def close(self, cause: str = "server") -> None:
        """Take nothing more in, send what is written, close."""
        self._finish(cause, 0.0)

    def finish(self, cause: str = "end", *, linger: bool = False) -> None:
        """Take nothing more in; once what is being stored is answered and sent, close.

        `linger`: shut down our side first and read on, for linger_s at most, until the client
        closes: a client that is closed while it still sends sees a reset and not our answer.
        """
        self._closing = True
        self.broker.end_subscriptions()
        linger_s = self.limits.linger_s if linger else 0.0
        if self.broker.pending:
            self._finishing = (cause, linger_s)
        else:
            self._finish(cause, linger_s)

    def abort(self, cause: str) -> None:
        """Close at once; what is not sent is lost."""
        self.cause = self.cause or cause
        self._closing = True
        self.channel.abort()

    # ---------------------------------------------------------------------------- closing

    def _finish(self, cause: str, linger_s: float) -> None:
        if self.cause is not None or self._gone:
            return
        self._closing = True
        self._finishing = None
        self.channel.flush()
        if self.channel.unsent:
            self.channel.write(b"", lambda left: self._shut(cause, linger_s) if left else None)
        else:
            self._shut(cause, linger_s)

    def _shut(self, cause: str, linger_s: float) -> None:
        if self._gone or self.cause is not None:
            return
        self.cause = cause
        if linger_s and not self.channel.has_ended:
            self.channel.shut()
            self._timers.add(self.site.later(linger_s, self.channel.close))
        else:
            self.channel.close()

    # ---------------------------------------------------------------- called by the channel

    def arrived(self) -> bool:
        """Somebody has connected: the site may refuse it."""
        self._gone = self.site.arrived(self) is not None
        if self._gone:
            self.broker.close()
        return not self._gone

    def opened(self, name: str | None) -> None:
        """Make its session. Who a certificate names needs no login."""
        if name is not None:
            self.identity = Identity(name)
        elif not self.site.has_login:
            self.identity = ANYBODY
        self._guard(self._begin)

    def _begin(self) -> None:
        self._session = self.site.make_session(self)

    def came(self, data: bytes) -> bool:
        """Give bytes to the session."""
        session = self._session
        if session is None or self._closing:
            if data:
                self._came_late()
            return False
        try:
            if data:
                session.received(data)
        except Exception:  # noqa: BLE001  # see _failed
            self._failed()
        frames = session.frames
        if not (session.pending or self.channel.has_part) or self._closing:
            self._frame_at = None
        elif self._frame_at is None or frames != self._frames:
            self._frame_at = self.channel.heard_at
        self.channel.paced(frames - self._frames)
        self._frames = frames
        return session.answers

    def _came_late(self) -> None:
        """Count who is not told that it was too late: its connection ends as if all were well."""
        if self.cause == "end" and not self._is_late:
            self._is_late = True
            self.site.count("late")

    def ended(self) -> None:
        """The client sends no more; our side stays open for now."""
        self.site.ended(self)
        session = self._session
        self._frame_at = None
        if session is None:
            self.abort("end")
        elif self.cause is not None:
            self.channel.close()
        elif not self._closing:
            stays: list[bool] = []
            self._guard(lambda: stays.append(bool(session.ended())))
            if not any(stays) and not self._closing:
                self.finish("end")

    def broken(self, why: str) -> None:
        """It is no TLS, or no client that may come."""
        self.site.faulty(self, "tls", why)
        self.abort("tls")

    def moved(self) -> None:
        """Everything that waited has left: read on, and get messages again."""
        if not self.is_clogged:
            self.unhold("unsent")
            self.broker.unclogged()

    def gone(self, error: Exception | None) -> None:
        """It is over."""
        self._gone = self._closing = True
        if self.cause is None:
            self.cause = "end" if error is None else "reset"
        cancel_all(self._timers)
        for task in self._tasks:
            task.cancel()
        session, cause = self._session, self.cause
        if session is not None:
            self._guard(lambda: session.lost(cause))
        self.broker.close()
        self.site.left(self, cause)
        self._session = None

    # ----------------------------------------------------------------------- for the room

    def _guard(self, call: Callable[[], object]) -> None:
        """Call the session; what it raises ends this connection only."""
        try:
            call()
        except Exception:  # noqa: BLE001  # see _failed
            self._failed()

    def _failed(self) -> None:
        """A session has raised something: a defect, which must not reach its neighbours."""
        _log.exception("a session of %s failed; its connection is closed", self.site.url)
        self.site.faulty(self, "defect", "")
        self.abort("defect")

    def called_back(self, call: Callable[[], object]) -> None:
        """Make a call of the session's, if it is still there."""
        if self._session is not None and not self._gone:
            self._guard(call)

    def answered(self, then: Callable[[Any], object], result: object) -> None:
        """Give an answer to the session, if it is still there."""
        if self._session is not None and not self._gone:
            try:
                then(result)
            except Exception:  # noqa: BLE001  # see _failed
                self._failed()

    async def _run(self, coroutine: Any) -> None:  # noqa: ANN401
        try:
            await coroutine
        except Exception:  # noqa: BLE001  # as above
            _log.exception("a task of %s failed; its connection is closed", self.site.url)
            self.abort("defect")

    def ops_changed(self) -> None:
        """What is under way became more or less."""
        broker, limits = self.broker, self.limits
        if self._gone:
            return
        holds = (
            broker.pending_puts >= limits.pending_puts
            or broker.pending_bytes >= limits.pending_bytes
        )
        if holds is not self._holds_puts:
            self._holds_puts = holds
            (self.hold if holds else self.unhold)("puts")
        if self._finishing is not None and not broker.pending:
            self._finish(*self._finishing)

    def drain(self) -> None:
        """The listener stops."""
        session = self._session
        if session is None:
            self.abort("drain")
            return
        self._guard(session.draining)
        if not self._closing:
            self.finish("drain")

    def overdue(self, now: float) -> str | None:
        """Return the deadline that has passed, if any."""
        limits, channel = self.limits, self.channel
        if self._gone:
            return None
        if self.identity is None and limits.login_s and now - self.since >= limits.login_s:
            return "login_timeout"
        if channel.is_held and self._frame_at is not None:
            self._frame_at = now  # it is we who do not read
        since = self._frame_at
        if since is not None and limits.frame_s and now - since >= limits.frame_s:
            return "frame_timeout"
        if channel.unsent:
            stalled = limits.stall_s and now - channel.moved_at >= limits.stall_s
            return "stalled" if stalled else None
        quiet = now - max(channel.heard_at, channel.moved_at)
        if limits.idle_s and quiet >= limits.idle_s and not self.broker.is_busy:
            return "idle"
        return None
