"""TLS of a connection: plain bytes on one side, encrypted ones on the other, no socket.

Knows: certificates, who must show one, that a new certificate holds for new connections.
Does not know: sockets, sessions.

Done with memory buffers instead of the loop's own TLS: that one keeps 256 KiB for each connection,
and does not tell when bytes have left for the kernel, on which auto-ack rests.
"""

from __future__ import annotations

import os
import ssl
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from embedq.errors import InvalidOption

_READ: Final = 64 * 1024
#: Bytes before each record; the last two say how many follow.
_HEADER: Final = 5


@dataclass(frozen=True, slots=True)
class TLS:
    """The certificate of a listener, and what its clients must show.

    `cert`, `key`: PEM files; a key may stand in the file of its certificate. `ca`: PEM file of
    those who sign the certificates of clients; without one clients need none. TLS 1.2 or newer.
    """

    cert: str | os.PathLike[str]
    key: str | os.PathLike[str] | None = None
    ca: str | os.PathLike[str] | None = None

    @property
    def asks(self) -> bool:
        """Whether clients must show a certificate."""
        return self.ca is not None

    def context(self) -> ssl.SSLContext:
        """Read the files. Raises InvalidOption, which names the one at fault."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
        for name in ("cert", "key", "ca"):
            path = getattr(self, name)
            if path is not None and not os.path.isfile(path):  # noqa: PTH113  # False if hidden
                raise InvalidOption(f"tls: {name}={str(path)!r} is no file", argument=name)
        try:
            context.load_cert_chain(self.cert, self.key, _no_password)
        except (OSError, ssl.SSLError, _Locked) as error:
            raise _unusable("certificate", self.cert, error) from error
        if self.ca is not None:
            try:
                context.load_verify_locations(self.ca)
            except (OSError, ssl.SSLError) as error:
                raise _unusable("authority", self.ca, error) from error
            context.verify_mode = ssl.CERT_REQUIRED
        return context


def _unusable(what: str, path: str | os.PathLike[str], error: Exception) -> InvalidOption:
    return InvalidOption(
        f"tls: the {what} {str(path)!r} cannot be used: {error}",
        hint="give PEM files, and a key that belongs to the certificate",
        argument="tls",
    )


class _Locked(Exception):
    """The key asks for a password."""


def _no_password() -> str:
    # OpenSSL itself would ask at the terminal, and wait.
    raise _Locked("its key has a password; a server needs one without")


class BrokenTLS(Exception):
    """What came is no TLS, or the client is not who it has to be."""


class Tunnel:
    """The TLS of one connection. `feed` what comes; send what `take` returns."""

    __slots__ = ("_header", "_in", "_missing", "_object", "_out", "is_ready", "is_shut")

    def __init__(self, context: ssl.SSLContext) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._in, self._out, server_side=True)
        # Where the client's records end: OpenSSL keeps the beginning of one for itself.
        self._missing = 0
        self._header = b""
        #: The handshake is over.
        self.is_ready = False
        #: The client sends no more.
        self.is_shut = False

    def feed(self, data: bytes) -> bytes:
        """Take in what came; return the plain bytes in it. Raises BrokenTLS."""
        self._in.write(data)
        self._follow(data)
        parts: list[bytes] = []
        try:
            if not self.is_ready:
                self._object.do_handshake()
                self.is_ready = True
            while not self.is_shut:
                part = self._object.read(_READ)
                if part:
                    parts.append(part)
                else:
                    self.is_shut = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.is_shut = True
        except ssl.SSLError as error:
            raise BrokenTLS(error.reason or str(error)) from error
        return b"".join(parts)

    def encrypt(self, data: bytes) -> bytes:
        """Return what plain bytes are on the wire."""
        if data:
            self._object.write(data)
        return self.take()

    @property
    def has_part(self) -> bool:
        """Whether the beginning of a record has come: its rest follows."""
        return self._missing > 0 or bool(self._header)

    def _follow(self, data: bytes) -> None:
        """Note how much of the last record is missing."""
        at, end = self._missing, len(data)
        if self._header:
            data = self._header + data
            end = len(data)
        while at + _HEADER <= end:
            at += _HEADER + int.from_bytes(data[at + _HEADER - 2 : at + _HEADER])
        self._missing = max(0, at - end)
        self._header = data[at:]

    def take(self) -> bytes:
        """Return what has to be sent by itself: handshakes, alerts."""
        return self._out.read()

    def farewell(self) -> bytes:
        """Return what says that no more follows."""
        with suppress(ssl.SSLError):  # the client's own farewell is not waited for
            self._object.unwrap()
        return self.take()

    @property
    def name(self) -> str | None:
        """Who the client's certificate says it is: its common name, else its first name."""
        found: Any = self._object.getpeercert()
        if not found:
            return None
        for part in found.get("subject", ()):
            for key, value in part:
                if key == "commonName":
                    return str(value)
        names = found.get("subjectAltName", ())
        return str(names[0][1]) if names else ""
