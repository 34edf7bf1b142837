"""One socket from a client to one host, and whether the host is still there.

Knows: ZeroMQ's options, its heartbeat and its monitor, keys for a host on another machine.
Does not know: frames, sessions, what comes after the end of a host.
"""

from __future__ import annotations

import secrets
import socket
import struct
from typing import Final, Self

import zmq

from embedq.errors import KeyRefused
from embedq.ipc.keys import ClientKeys

#: Messages up to this size are copied into the socket, larger ones are lent to it.
_COPIED_BYTES: Final = 64 << 10
#: Only clients ask whether the other end is there. Their question says, too, how long the host is
#: to wait for the next one: half the messages find out as much.
HEARTBEAT_MS: Final = 1_000
DEAD_MS: Final = 3_000
_LINGER_MS: Final = 500
#: ZAP's code for a key that is not allowed.
_NOT_ALLOWED: Final = 400
_EVENT: Final = struct.Struct("=HI")
#: Whatever happens to the one connection there is, it is over: a new one is a new Line.
_GONE: Final = (
    zmq.EVENT_DISCONNECTED
    | zmq.EVENT_CLOSED
    | zmq.EVENT_CONNECT_RETRIED
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)
_NOT_UNDERSTOOD: Final = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL


class Line:
    """One socket to one host, and whether the host is still there."""

    def __init__(
        self,
        address: str,
        max_bytes: int,
        wake: socket.socket,
        keys: ClientKeys | None = None,
    ) -> None:
        self.is_gone = False
        #: Somebody is there, but there was no handshake.
        self.is_strange = False
        #: The host has said that this key is not allowed.
        self.refusal: KeyRefused | None = None
        self._address = address
        self._keys = keys
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        line: zmq.Socket[bytes] = self._socket
        line.setsockopt(zmq.LINGER, _LINGER_MS)
        line.setsockopt(zmq.IDENTITY, secrets.token_bytes(16))
        line.setsockopt(zmq.MAXMSGSIZE, max_bytes)
        line.setsockopt(zmq.RECONNECT_IVL, -1)
        line.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
        line.setsockopt(zmq.HEARTBEAT_TIMEOUT, DEAD_MS)
        line.setsockopt(zmq.HEARTBEAT_TTL, DEAD_MS)
        if keys is not None:
            line.setsockopt(zmq.CURVE_SERVERKEY, keys.host)
            line.setsockopt(zmq.CURVE_PUBLICKEY, keys.pair.public)
            line.setsockopt(zmq.CURVE_SECRETKEY, keys.pair.secret)
            line.setsockopt(zmq.IPV6, int("[" in address))
        self._monitor = line.get_monitor_socket(_GONE)
        self._wake = wake.fileno()  # how the poller names it
        self._poller = zmq.Poller()
        for each in (line, self._monitor, wake):
            self._poller.register(each, zmq.POLLIN)
        line.connect(address)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.disable_monitor()
        self._monitor.close(0)
        self._socket.close()

    @property
    def can_send(self) -> bool:
        """Whether the socket takes more."""
        return bool(_events(self._socket) & zmq.POLLOUT)

    def send(self, data: bytes) -> None:
        """Send one message, and never wait: ask `can_send` first.

        A host that dies between the two takes its connection along, and there will not be
        another one on this line: what is sent then is lost with the host.
        """
        try:
            self._socket.send(data, zmq.NOBLOCK, len(data) < _COPIED_BYTES)
        except zmq.Again:
            self.is_gone = True
            self._listen()  # it hung up before anybody looked: why is known all the same

    def poll(self, seconds: float | None, *, to_send: bool = False) -> bool:
        """Wait for a message, for the end of the host, or to be woken; or until it can send.

        Returns whether it was woken.
        """
        self._poller.modify(self._socket, zmq.POLLIN | zmq.POLLOUT if to_send else zmq.POLLIN)
        found = self._poller.poll(None if seconds is None else max(1, round(seconds * 1000)))
        self._listen()
        return any(each == self._wake for each, _ in found)

    @property
    def trouble(self) -> str:
        """Why a host on another machine does not serve this process, once that is over."""
        if self._keys is None:
            return ""
        if not self.is_strange:
            return f"nobody answers at {self._address}"
        file = self._keys.file.with_name("host.public")
        return f"what listens at {self._address} has not the key of {file}, or is no host"

    def _listen(self) -> None:
        """Take what the monitor tells."""
        while _events(self._monitor) & zmq.POLLIN:
            self._hear(*_EVENT.unpack(self._monitor.recv_multipart(zmq.NOBLOCK)[0]))

    def _hear(self, event: int, value: int) -> None:
        self.is_gone = True
        if event & _NOT_UNDERSTOOD:
            self.is_strange = True
        elif event == zmq.EVENT_HANDSHAKE_FAILED_AUTH and value == _NOT_ALLOWED:
            assert self._keys is not None  # noqa: S101 - nobody else is asked for a key
            self.refusal = KeyRefused(
                f"{self._address}: the host does not allow the key {self._keys.pair.public.hex()} "
                f"of {self._keys.file}"
            )

    def received(self) -> list[bytes]:
        """Return the messages that have come."""
        found: list[bytes] = []
        while _events(self._socket) & zmq.POLLIN:
            found.append(self._socket.recv(zmq.NOBLOCK))
        return found


def _events(of: zmq.Socket[bytes]) -> int:
    events = of.getsockopt(zmq.EVENTS)
    assert isinstance(events, int)  # noqa: S101 - it is, for this option
    return events
