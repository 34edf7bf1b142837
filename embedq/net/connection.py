"""One connection: bytes in, bytes out, and everything that may end it.

Knows: the socket of one client, its session, when it may be read, what it may still send.
Does not know: any protocol, how messages are stored or leased (access.py).

Everything happens on the thread of the loop. After its end a connection calls its session once
more (`lost`) and nobody else: answers that come later have nobody to go to.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from embedq.net.access import Access
from embedq.net.outbox import Left, Outbox
from embedq.net.port import ANYBODY, Credentials, Identity, Session
from embedq.net.timers import Timer

if TYPE_CHECKING:
    from embedq.net.site import Site

_log = logging.getLogger("embedq.net")


class Connection(asyncio.Protocol):
    """A client. `peer`: its address in words. `broker`: what it may do with queues."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.limits = site.limits
        self.peer = "?"
        #: The address alone, without its port; empty for a Unix socket.
        self.host = ""
        #: Who it is, once that is known; ANYBODY where nobody asks. None: not yet.
        self.identity: Identity | None = None
        #: Send what one turn of the loop writes together. False: each write by itself.
        self.gathers = True
        self.broker = Access(site.network, self)
        self.bytes_in = self.bytes_out = 0
        self.since = self.heard_at = site.now()
        self.cause: str | None = None
        self._session: Session | None = None
        self._transport: asyncio.Transport | None = None
        self._outbox: Outbox | None = None
        self._timers: set[Timer] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._held: set[str] = set()
        self._frame_at: float | None = None
        self._frames = 0
        self._moved_at = self.since
        self._flushing = False
        self._closing = False  # no more bytes go to the session
        self._eof = False
        self._finishing: tuple[str, float] | None = None
        self._gone = False

    # ---------------------------------------------------------------- what a session uses

    @property
    def protocol(self) -> str:
        """The name of the protocol."""
        return self.site.transport.name

    @property
    def is_open(self) -> bool:
        """Whether it can still be written to."""
        return self._outbox is not None and not self._gone

    @property
    def unsent(self) -> int:
        """Bytes that wait to be sent."""
        return 0 if self._outbox is None or self._gone else self._outbox.unsent

    @property
    def is_clogged(self) -> bool:
        """Whether the client reads so slowly that it gets nothing unasked."""
        return self.unsent > self.limits.unsent_pause_bytes

    def write(self, data: bytes, left: Left | None = None) -> None:
        """Send bytes, in the order of the calls, each call's in one piece.

        `left(True)` is called when they have left for the kernel, `left(False)` when they never
        will. A client that does not read is cut once more than unsent_most_bytes wait.
        """
        outbox = self._outbox
        if outbox is None or self._gone or self.cause is not None:
            if left is not None:
                self.site.soon(lambda: left(False))
            return
        before = outbox.unsent
        if before > self.limits.unsent_most_bytes:
            if left is not None:
                self.site.soon(lambda: left(False))
            self.abort("too_slow")
            return
        if not before:
            self._moved_at = self.site.now()
        outbox.add(data, left)
        if not self.gathers:
            self._flush()
        elif not self._flushing:
            self._flushing = True
            self.site.soon(self._flush)

    def later(self, seconds: float, call: Callable[[], object]) -> Timer:
        """Call something after a while, unless the connection ends before. `.cancel()` it."""

        def due() -> None:
            self._timers.discard(timer)
            self._guard(call)

        timer = self.site.later(seconds, due)
        self._timers.add(timer)
        return timer

    def hold(self, why: str = "session") -> None:
        """Read nothing more until `unhold` with the same reason."""
        if not self._held and self._transport is not None and not self._gone:
            self._transport.pause_reading()
        self._held.add(why)

    def unhold(self, why: str = "session") -> None:
        """Read on, if no other reason holds it."""
        self._held.discard(why)
        if not self._held and self._transport is not None and not (self._gone or self._eof):
            self._transport.resume_reading()

    def reset_if_killed(self, *, on: bool) -> None:
        """Let the kernel reset the connection, not end it in order, if this process dies.

        For protocols in which an orderly end means success. Turn it off before `finish`. A Unix
        socket knows no reset.
        """
        raw = None if self._transport is None else self._transport.get_extra_info("socket")
        if raw is not None and raw.family != socket.AF_UNIX:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", on, 0))

    def admit(self, identity: Identity = ANYBODY) -> None:
        """The client has shown who it is, or need not: the deadline of the login is over."""
        self.identity = identity

    def login(self, credentials: Credentials, then: Callable[[Identity | None], object]) -> None:
        """Ask who this is; `then` gets the identity, which is admitted, or None.

        Where the listener does not ask, anybody is ANYBODY.
        """
        self.site.identify(self, credentials, then)

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
        if self.broker.pending:
            self._finishing = (cause, self.limits.linger_s if linger else 0.0)
        else:
            self._finish(cause, self.limits.linger_s if linger else 0.0)

    def abort(self, cause: str) -> None:
        """Close at once; what is not sent is lost."""
        self.cause = self.cause or cause
        self._closing = True
        if self._transport is not None and not self._gone:
            self._transport.abort()

    # ---------------------------------------------------------------------------- closing

    def _finish(self, cause: str, linger_s: float) -> None:
        if self.cause is not None or self._gone:
            return
        self._closing = True
        self._finishing = None
        if self._outbox is not None and self._outbox.unsent:
            self._outbox.flush()
        if self._outbox is not None and self._outbox.unsent and not self._gone:
            self.write(b"", lambda left: self._shut(cause, linger_s) if left else None)
            return
        self._shut(cause, linger_s)

    def _shut(self, cause: str, linger_s: float) -> None:
        if self._gone or self.cause is not None:
            return
        self.cause = cause
        transport = cast("asyncio.Transport", self._transport)
        if linger_s and not self._eof and transport.can_write_eof():
            transport.write_eof()
            self._held.clear()
            transport.resume_reading()
            self._timers.add(self.site.later(linger_s, transport.close))
        else:
            transport.close()

    # ------------------------------------------------------------------ called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin: the site may refuse it."""
        self._transport = cast("asyncio.Transport", transport)
        self.host, self.peer = _peer_of(self._transport)
        refusal = self.site.arrived(self)
        if refusal is not None:
            self._gone = True
            self._transport.abort()
            return
        self._outbox = Outbox(self._transport)
        self._begin()

    def _begin(self) -> None:
        if not self.site.has_login:
            self.identity = ANYBODY

        def make() -> None:
            self._session = self.site.make_session(self)

        self._guard(make)

    def data_received(self, data: bytes) -> None:
        """Give bytes to the session."""
        self.bytes_in += len(data)
        self.heard_at = self.site.now()
        session = self._session
        if session is None or self._closing:
            return
        self._guard(lambda: session.received(data))
        self._look_at_frame(session)
        if self.is_clogged and not self._closing:
            self.hold("unsent")

    def _look_at_frame(self, session: Session) -> None:
        if not session.pending or self._closing:
            self._frame_at = None
        elif self._frame_at is None or session.frames != self._frames:
            self._frame_at = self.heard_at
        self._frames = session.frames

    def eof_received(self) -> bool:
        """The client sends no more; our side stays open for now."""
        session = self._session
        self._eof = True
        self._frame_at = None
        if session is None or self.cause is not None:
            return False
        stays: list[bool] = []
        if not self._closing:
            self._guard(lambda: stays.append(bool(session.ended())))
        if not (stays and stays[0]) and not self._closing:
            self.finish("end")
        return not self._gone

    def pause_writing(self) -> None:
        """Bytes wait: nothing to do, they are counted where it matters."""

    def resume_writing(self) -> None:
        """The kernel has taken everything."""
        self._moved_at = self.site.now()
        if self._outbox is not None:
            self._guard(self._outbox.look)
        self._unclogged()

    def _unclogged(self) -> None:
        if "unsent" in self._held and not self.is_clogged:
            self.unhold("unsent")
        if not self.is_clogged:
            self.broker.unclogged()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        if self._gone:
            return
        self._gone = self._closing = True
        if self.cause is None:
            self.cause = "reset" if exc is not None else "end"
        for timer in self._timers:
            timer.cancel()
        for task in self._tasks:
            task.cancel()
        session, cause = self._session, self.cause
        if self._outbox is not None:
            self._guard(self._outbox.lost)
        if session is not None:
            self._guard(lambda: session.lost(cause))
        self.broker.close()
        self.site.left(self, cause)
        self._session = self._transport = None

    # ----------------------------------------------------------------------- for the room

    def _flush(self) -> None:
        self._flushing = False
        if self._outbox is not None and not self._gone:
            unsent = self._outbox.written - self._outbox.unsent
            self._guard(self._outbox.flush)
            if self._outbox.written - self._outbox.unsent > unsent:
                self._moved_at = self.site.now()
            self.bytes_out = self._outbox.written

    def _guard(self, call: Callable[[], object]) -> None:
        """Call the session; what it raises ends this connection only."""
        try:
            call()
        except Exception:  # noqa: BLE001  # a defect must not reach its neighbours
            _log.exception("a session of %s failed; its connection is closed", self.site.url)
            self.site.faulty(self, "defect", "")
            self.abort("defect")

    def called_back(self, call: Callable[[], object]) -> None:
        """Give an answer to the session, if it is still there."""
        if self._session is not None and not self._gone:
            self._guard(call)

    def start(self, coroutine: Any) -> None:  # noqa: ANN401  # of any result
        """Run a coroutine for the session; it ends with the connection."""
        task = asyncio.get_running_loop().create_task(self._run(coroutine))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, coroutine: Any) -> None:  # noqa: ANN401
        try:
            await coroutine
        except Exception:  # noqa: BLE001  # as above
            _log.exception("a task of %s failed; its connection is closed", self.site.url)
            self.abort("defect")

    def ops_changed(self) -> None:
        """The puts under way became more or fewer."""
        broker, limits = self.broker, self.limits
        if self._gone:
            return
        full = (
            broker.pending_puts >= limits.pending_puts
            or broker.pending_bytes >= limits.pending_bytes
        )
        if full and "puts" not in self._held:
            self.hold("puts")
        elif not full and "puts" in self._held:
            self.unhold("puts")
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
        limits = self.limits
        if self._gone:
            return None
        if self.identity is None and limits.login_s and now - self.since >= limits.login_s:
            return "login_timeout"
        if (
            self._frame_at is not None
            and limits.frame_s
            and now - self._frame_at >= limits.frame_s
        ):
            return "frame_timeout"
        if self.unsent:
            if limits.stall_s and now - self._moved_at >= limits.stall_s:
                return "stalled"
        elif limits.idle_s and not self.broker.is_busy:
            quiet = now - max(self.heard_at, self._moved_at)
            return "idle" if quiet >= limits.idle_s else None
        return None


def _peer_of(transport: asyncio.Transport) -> tuple[str, str]:
    """Return the address of a client, and the same with its port in words."""
    raw = transport.get_extra_info("socket")
    if raw is not None and raw.family == socket.AF_UNIX:
        return "", "unix"
    name = transport.get_extra_info("peername")
    if not name:
        return "?", "?"
    host, port = name[0], name[1]
    return host, f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
