"""HTTP/1.1 on a zbus connection: bytes in, requests out, whatever the cuts.

Knows: httptools, which reads HTTP; the limits it does not know; which requests are refused.
Does not know: what a request means (requests.py), answers to commands (answers.py).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import httptools

from embedq_transports.zbus.limits import ZbusLimits
from embedq_transports.zbus.message import Fault, Write

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
#: Bytes given to the parser at once: it keeps an unfinished header, however long, by itself.
_SLICE: Final = 16 * 1024
#: What one line of a header has beside name and value.
_AROUND: Final = 4
#: How long the names of headers are that matter here; most others are told apart by that.
_LENGTHS: Final = frozenset(map(len, (b"content-length", b"expect", b"transfer-encoding")))
_REASONS: Final = {
    400: "Bad Request",
    403: "Forbidden",
    413: "Payload Too Large",
    426: "Upgrade Required",
    431: "Request Header Fields Too Large",
    501: "Not Implemented",
    505: "HTTP Version Not Supported",
}


class Request(NamedTuple):
    """A whole request. `keep`: another may follow. `upgrade`: it asks for another protocol."""

    method: str
    target: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes
    keep: bool
    upgrade: bool


def refusal(status: int, text: str, *extra: str) -> bytes:
    """Return a response that is the last on its connection."""
    lines = (
        f"HTTP/1.1 {status} {_REASONS[status]}",
        "Connection: close",
        "Content-Type: text/plain; charset=utf8",
        *extra,
        f"Content-Length: {len(text.encode())}",
    )
    return ("\r\n".join(lines) + "\r\n\r\n" + text).encode()


class HttpReader:
    """Reads requests one after the other. After a Fault, an upgrade or a last one no more."""

    def __init__(self, limits: ZbusLimits) -> None:
        self._limits = limits
        self._parser = httptools.HttpRequestParser(self)
        self._out: list[Request | Write | Fault] = []
        self._target = b""
        self._headers: list[tuple[bytes, bytes]] = []
        #: What has come of a body: chunks may be tiny, each would take as much as fifty bytes.
        self._body: bytes | bytearray = b""
        self._in_head = self._in_body = self._announced = False
        self._head = self._unfinished = 0
        #: Nothing more is read.
        self.closed = False

    @property
    def pending(self) -> bool:
        """Whether a request has begun and is not complete."""
        return self._in_head or self._in_body

    def feed(self, data: bytes) -> tuple[list[Request | Write | Fault], bytes]:
        """Return what the bytes complete, and those that belong to another protocol."""
        self._out = []
        rest = b""
        at = 0
        while at < len(data) and not self.closed:
            piece = data[at : at + _SLICE]
            at += len(piece)
            head = len(self._headers) if self._in_head else -1
            try:
                self._parser.feed_data(piece)
            except httptools.HttpParserUpgrade as upgrade:
                self._parser = httptools.HttpRequestParser(self)
                rest = piece[upgrade.args[0] :] + data[at:]
                break
            except httptools.HttpParserError as error:
                self._refuse(400, "malformed", f"no HTTP: {error}")
            self._bound(head, len(piece))
        return self._out, rest

    def _bound(self, head: int, size: int) -> None:
        """Refuse a header that does not end: the parser keeps it where nobody can see it."""
        if self._in_head and head == len(self._headers):
            self._unfinished += size
            if self._unfinished > self._limits.head_bytes:
                self._refuse_head()
        else:
            self._unfinished = 0

    def _refuse(self, status: int, code: str, text: str) -> None:
        if not self.closed:
            self.closed = True
            self._in_head = self._in_body = False
            self._out.append(Fault(code, text, refusal(status, text)))

    # ------------------------------------------------------------------ called by the parser

    def on_message_begin(self) -> None:
        """A request begins."""
        if self.closed:
            return
        self._in_head = True
        self._target = b""
        self._headers = []
        self._body = b""
        self._head = self._unfinished = 0

    def on_url(self, part: bytes) -> None:
        """A part of its target."""
        self._target += part
        self._head += len(part)
        if self._head > self._limits.head_bytes:
            self._refuse_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        """A complete header. What stands behind a body in chunks is thrown away."""
        if self._in_head:
            self._headers.append((name, value))
        elif not self._in_body:
            return
        self._head += len(name) + len(value) + _AROUND
        if self._head > self._limits.head_bytes or len(self._headers) > self._limits.headers:
            self._refuse_head()

    def _refuse_head(self) -> None:
        self._refuse(431, "too_large", "the head of a request is too large")

    def on_headers_complete(self) -> None:
        """The head is complete: refuse what would be too large before it comes."""
        if self.closed:
            return
        self._in_head, self._in_body = False, True
        version = self._parser.get_http_version()
        if version not in ("1.0", "1.1"):
            self._refuse(505, "malformed", "HTTP/1.1 is spoken here")
            return
        length = continues = None
        self._announced = False
        for name, value in self._headers:
            match name.lower() if len(name) in _LENGTHS else b"":
                case b"content-length":
                    length = value
                    self._announced = int(value) > 0
                case b"expect":
                    continues = value.lower() == b"100-continue"
                case b"transfer-encoding":
                    self._announced = True
                    if value.lower() != b"chunked":
                        self._refuse(501, "malformed", "transfer codings other than chunked")
                        return
                case _:
                    pass
        if length is not None and int(length) > self._limits.body_bytes:
            self._refuse(413, "too_large", "the body is too large")
        elif continues and version == "1.1":
            self._out.append(Write(CONTINUE))

    def on_body(self, part: bytes) -> None:
        """A part of the body."""
        if self.closed:
            return
        body = self._body
        if len(body) + len(part) > self._limits.body_bytes:
            self._body = b""
            self._refuse(413, "too_large", "the body is too large")
        elif not body:
            self._body = part
        elif isinstance(body, bytearray):
            body += part
        else:
            self._body = bytearray(body) + part

    def on_message_complete(self) -> None:
        """The request is complete."""
        if self.closed:
            return
        self._in_body = False
        upgrade = self._parser.should_upgrade()
        if upgrade and self._announced:
            # The parser takes such a body for the other protocol's: it would be read as a request.
            self._refuse(501, "malformed", "an upgrade with a body")
            return
        keep = self._parser.should_keep_alive() or upgrade
        method = self._parser.get_method().decode("ascii")
        request = Request(method, self._target, self._headers, bytes(self._body), keep, upgrade)
        self._body = b""
        self._out.append(request)
        self.closed = not keep
