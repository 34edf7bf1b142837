"""One zbus connection: HTTP/1.1, or a WebSocket once somebody asks for it. Bytes in, events out.

Knows: which of the two it is now, what a message is in each, when nothing more is read.
Does not know: commands, sockets, time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from embedq_transports.zbus.frames import FrameReader, handshake, is_websocket
from embedq_transports.zbus.http import HttpReader, Request, refusal
from embedq_transports.zbus.limits import ZBUS_LIMITS, ZbusLimits
from embedq_transports.zbus.message import (
    Came,
    Event,
    Fault,
    Malformed,
    Opened,
    text_of,
)
from embedq_transports.zbus.requests import NoMessage, message_of_json, message_of_request
from embedq_transports.zbus.visitors import Visitors

#: Headers that the answer to a handshake gets beside its own, for an origin.
Extra = Callable[[str], Mapping[str, str]]
#: What a request says of host, origin and site.
Visitor = tuple[object, object, object]


class ServerWire:
    """Reads what a client sends. After Fault or Ended comes nothing more.

    `visitors`: whose pages may send anything, None is everybody's. `keep_raw`: signatures are
    checked.
    """

    def __init__(
        self,
        limits: ZbusLimits = ZBUS_LIMITS,
        *,
        visitors: Visitors | None = None,
        keep_raw: bool = False,
        extra: Extra = lambda _origin: {},
    ) -> None:
        self._limits = limits
        self._visitors = visitors
        self._keep_raw = keep_raw
        self._extra = extra
        self._http: HttpReader | None = HttpReader(limits)
        self._frames: FrameReader | None = None
        #: Who has sent over HTTP, and may: nearly always the same for a whole connection.
        self._welcome: Visitor | None = None
        #: Nothing more is read: the last event was Fault or Ended, or a Came with `last`.
        self.closed = False

    @property
    def is_websocket(self) -> bool:
        """Whether it is a WebSocket by now."""
        return self._frames is not None

    @property
    def pending(self) -> bool:
        """Whether something has begun and is not complete."""
        reader = self._frames or self._http
        return not self.closed and reader is not None and reader.pending

    def feed(self, data: bytes) -> list[Event]:
        """Return what the bytes complete, in order."""
        events: list[Event] = []
        while data and not self.closed:
            if self._frames is not None:
                self._feed_frames(data, events)
                data = b""
            else:
                data = self._feed_http(data, events)
        return events

    def end(self) -> list[Event]:
        """No more comes: what is incomplete is cut off."""
        cut = self.pending
        self.closed = True
        return [Fault("truncated", "the connection ended inside a message")] if cut else []

    def forget(self) -> None:
        """Nothing is read any more, nor kept of what is incomplete."""
        self.closed = True
        if self._http is not None:
            self._http.forget()
        self._http = self._frames = None

    # ------------------------------------------------------------------------------- HTTP

    def _feed_http(self, data: bytes, events: list[Event]) -> bytes:
        reader = self._http
        assert reader is not None  # noqa: S101  # until there is a WebSocket
        found, rest = reader.feed(data)
        for each in found:
            if isinstance(each, Request):
                self._request(each, events)
            else:
                events.append(each)
            if self.closed:
                return b""
        self.closed = reader.closed
        return rest

    def _request(self, request: Request, events: list[Event]) -> None:
        if request.upgrade and is_websocket(request.raw):
            answer = self._handshake(request)
            events.append(answer)
            if isinstance(answer, Opened):
                self._http, self._frames = None, FrameReader(self._limits)
            else:
                self.closed = True
            return
        try:
            message = message_of_request(
                request.method,
                request.target,
                request.headers,
                request.fields,
                request.body,
                self._limits,
            )
        except NoMessage as error:
            fields = request.fields
            wire_id, origin = (
                None if (value := fields.get(name)) is None else text_of(value)
                for name in ("id", "origin")
            )
            last, bare = not request.keep, request.method == "HEAD"
            events.append(
                Malformed(str(error), wire_id, last=last, bare=bare, origin=origin or "")
            )
            return
        fields, last, bare = message.fields, not request.keep, request.method == "HEAD"
        visitor = (fields.get("host"), fields.get("origin"), fields.get("sec-fetch-site"))
        if visitor != self._welcome:
            refused = self._refuses(visitor, websocket=False)
            if refused is not None:
                wire_id = message.text("id")
                events.append(Malformed(refused, wire_id, last=last, status=403, bare=bare))
                return
            self._welcome = visitor
        events.append(Came(message, last=last, bare=bare))

    def _handshake(self, request: Request) -> Opened | Fault:
        """Answer the wish for a WebSocket."""
        said = {name.lower(): value.decode("latin-1") for name, value in request.raw}
        origin = said.get(b"origin")
        named = said.get(b"sec-websocket-origin") if origin is None else origin
        visitor = (said.get(b"host"), named, said.get(b"sec-fetch-site"))
        refused = self._refuses(visitor, websocket=True)
        if refused is not None:
            return Fault("origin", refused, refusal(403, refused))
        return handshake(request.method, request.raw, self._extra(origin or ""))

    def _refuses(self, visitor: Visitor, *, websocket: bool) -> str | None:
        """Say why a request may not come."""
        visitors = self._visitors
        return None if visitors is None else visitors.refuses(*visitor, websocket=websocket)

    # -------------------------------------------------------------------------- WebSocket

    def _feed_frames(self, data: bytes, events: list[Event]) -> None:
        reader = self._frames
        assert reader is not None  # noqa: S101  # checked by feed
        for each in reader.feed(data):
            if not isinstance(each, bytes):
                events.append(each)
                continue
            try:
                events.append(Came(message_of_json(each, keep_raw=self._keep_raw)))
            except NoMessage as error:
                events.append(Malformed(str(error)))
        self.closed = reader.closed
