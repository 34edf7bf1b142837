"""A client of TLS that decides itself which bytes leave when: records can be cut anywhere.

Knows: sockets, TLS in memory. Does not know: protocols.
"""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress


class Encrypting:
    """One connection, whose handshake is over."""

    def __init__(self, address: tuple[str, int], context: ssl.SSLContext) -> None:
        self.socket = socket.create_connection(address, 60)
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_hostname="localhost")
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self.socket.sendall(self._out.read())
                self._in.write(self.socket.recv(65_536))
        self.socket.sendall(self._out.read())

    def record(self, data: bytes) -> bytes:
        """Return the bytes that say something; nothing is sent."""
        self._tls.write(data)
        return self._out.read()

    def read(self) -> bytes:
        """Wait for what comes next."""
        while True:
            try:
                return self._tls.read()
            except ssl.SSLWantReadError:
                self._in.write(self.socket.recv(65_536))

    def ends(self) -> bytes:
        """End in order, and return what comes until the listener has."""
        with suppress(ssl.SSLWantReadError):
            self._tls.unwrap()
        self.socket.sendall(self._out.read())
        while data := self.socket.recv(65_536):
            self._in.write(data)
        self.socket.close()
        with suppress(ssl.SSLZeroReturnError):
            return self._tls.read()
        return b""
