"""HTTP/1.1 on a zbus connection: bytes in, requests out, whatever the cuts.

Knows: httptools, which reads HTTP; the limits it does not know; which requests are refused.
Does not know: what a request means (requests.py), answers to commands (answers.py).
"""

from __future__ import annotations

from itertools import chain
from typing import Any, Final, NamedTuple

import httptools

from embedq_transports.zbus.headers import read_headers
from embedq_transports.zbus.limits import ZbusLimits
from embedq_transports.zbus.message import Fault, Write

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
#: Bytes given to the parser at once: it keeps an unfinished header, however long, by itself.
_SLICE: Final = 16 * 1024
_VERSIONS: Final = ("1.0", "1.1")
#: What one line of a header has beside name and value.
_AROUND: Final = 4
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
    """A whole request. `keep`: another may follow. `upgrade`: it asks for another protocol.

    `raw`: its headers as they came. `headers` and `fields`: see read_headers.
    """

    method: str
    target: bytes
    raw: list[tuple[bytes, bytes]]
    headers: dict[str, Any]
    fields: dict[str, Any]
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
        self._raw: list[tuple[bytes, bytes]] = []
        self._headers: dict[str, Any] = {}
        self._fields: dict[str, Any] = {}
        #: What has come of a body: chunks may be tiny, each would take as much as fifty bytes.
        self._body: bytes | bytearray = b""
        self._in_head = self._in_body = False
        # Bytes of the head so far, and of how many headers they are.
        self._head = self._measured = self._unfinished = 0
        #: Nothing more is read.
        self.closed = False

    def forget(self) -> None:
        """Read no more: the parser and this know each other."""
        self.closed = True
        del self._parser

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
            head = len(self._raw) if self._in_head else -1
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
        """Refuse a head, or a header, that does not end.

        The parser keeps a header that is not complete where nobody can see it.
        """
        if not self._in_head:
            self._unfinished = 0
            return
        self._measure_head()
        self._unfinished = self._unfinished + size if head == len(self._raw) else 0
        if self._unfinished > self._limits.head_bytes:
            self._refuse_head()

    def _measure_head(self) -> bool:
        """Count the headers that are new. False: the head is too large, and refused."""
        new = self._raw[self._measured :]
        self._measured += len(new)
        self._head += sum(map(len, chain.from_iterable(new))) + _AROUND * len(new)
        if self._head > self._limits.head_bytes or self._measured > self._limits.headers:
            self._refuse_head()
            return False
        return True

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
        self._raw = []
        self._body = b""
        self._head = self._measured = self._unfinished = 0

    def on_url(self, part: bytes) -> None:
        """A part of its target."""
        self._target += part
        self._head += len(part)
        if self._head > self._limits.head_bytes:
            self._refuse_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        """A complete header. What stands behind a body in chunks is thrown away."""
        if self._in_head:
            self._raw.append((name, value))  # measured with the others
        elif self._in_body:
            self._head += len(name) + len(value) + _AROUND
            if self._head > self._limits.head_bytes:
                self._refuse_head()

    def _refuse_head(self) -> None:
        self._refuse(431, "too_large", "the head of a request is too large")

    def on_headers_complete(self) -> None:
        """The head is complete: refuse what would be too large before it comes."""
        if self.closed:
            return
        self._in_head, self._in_body = False, True
        version = self._parser.get_http_version()
        if not self._measure_head():
            return
        if version not in _VERSIONS:
            self._refuse(505, "malformed", "HTTP/1.1 is spoken here")
            return
        self._headers, self._fields = read_headers(self._raw)
        fields = self._fields
        coding = fields.get("transfer-encoding")
        if coding is not None and (type(coding) is not str or coding.lower() != "chunked"):
            self._refuse(501, "malformed", "transfer codings other than chunked")
        elif int(fields.get("content-length", 0)) > self._limits.body_bytes:
            self._refuse(413, "too_large", "the body is too large")
        elif version == "1.1" and str(fields.get("expect")).lower() == "100-continue":
            self._out.append(Write(CONTINUE))

    def _is_body_announced(self) -> bool:
        """Whether the head says that a body follows."""
        fields = self._fields
        return "transfer-encoding" in fields or int(fields.get("content-length", 0)) > 0

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
        if upgrade and self._is_body_announced():
            # The parser takes such a body for the other protocol's: it would be read as a request.
            self._refuse(501, "malformed", "an upgrade with a body")
            return
        keep = self._parser.should_keep_alive() or upgrade
        method = self._parser.get_method().decode("ascii")
        request = Request(
            method,
            self._target,
            self._raw,
            self._headers,
            self._fields,
            bytes(self._body),
            keep,
            upgrade,
        )
        self._body = b""
        self._out.append(request)
        self.closed = not keep
