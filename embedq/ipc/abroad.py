"""The door for clients on other machines: bound when its address is free, guarded by a gate.

Knows: which keys count, that the port may still be held by the host before, what is told about it.
Does not know: frames, sessions, what clients ask.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

import zmq

from embedq.ipc import router
from embedq.ipc.door import Door, events_of
from embedq.ipc.gate import Gate
from embedq.ipc.keys import HostKeys

if TYPE_CHECKING:
    from embedq.broker.desk import Desk

#: Seconds between two attempts to bind an address that somebody has.
_AGAIN_S: Final = 1.0


class Listening(NamedTuple):
    """Where a host serves other machines, and with which keys."""

    endpoint: str
    keys: HostKeys


class Abroad:
    """Serves other machines as soon as the address can be bound. Belongs to the server's loop."""

    def __init__(
        self, context: router.Context, most_bytes: int, listening: Listening, desk: Desk
    ) -> None:
        self._context = context
        self._most_bytes = most_bytes
        self._listening = listening
        self._desk = desk
        self._retry: asyncio.TimerHandle | None = None
        self._told = ""
        #: The true port, once it listens.
        self.port: int | None = None
        self.gate = Gate(listening.keys.clients, self._refused, desk.monotonic)
        self.door = self._made()
        self._asked = router.asked(context)

    def _made(self) -> Door:
        pair, endpoint = self._listening.keys.pair, self._listening.endpoint
        return router.remote_door(self._context, self._most_bytes, pair, endpoint)

    def open(self, read: Callable[[Door], object], read_monitor: Callable[[Door], object]) -> None:
        """Listen now, or again and again until it works."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._asked.fileno(), self._answer)
        loop.call_soon(self._answer)
        self._open(read, read_monitor)

    def _open(
        self, read: Callable[[Door], object], read_monitor: Callable[[Door], object]
    ) -> None:
        endpoint = self._listening.endpoint
        try:
            self.door.open(endpoint, read, read_monitor)
        except zmq.ZMQError as error:
            if self._told != str(error):
                self._told = str(error)
                detail = f"other machines cannot connect to {endpoint} yet: {error}"
                self._desk.events.emit("not_served", path=self._desk.path, detail=detail)
            loop = asyncio.get_running_loop()
            self._retry = loop.call_later(_AGAIN_S, self._open, read, read_monitor)
            return
        endpoint = self.door.endpoint
        self.port = int(endpoint.rpartition(":")[2])
        self._desk.events.emit("reachable", endpoint=endpoint)

    def failed(self, code: int) -> None:
        """A handshake has failed before anybody was asked about its key."""
        if code == zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH:
            why = "it does not encrypt"
        elif code == zmq.PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC:
            why = "it has the public key of another host"
        elif code < zmq.PROTOCOL_ERROR_ZMTP_UNSPECIFIED:  # an errno: its end was quicker than ours
            why = "it hung up before it had shown a key, as a client does that does not encrypt"
        else:
            why = f"it is no client of embedq ({code:#x})"
        self.gate.refuse("", why)

    def _answer(self) -> None:
        """Answer what ZeroMQ asks about those who come."""
        while events_of(self._asked) & zmq.POLLIN:
            parts = self._asked.recv_multipart(zmq.NOBLOCK)
            if b"" in parts:
                self._asked.send_multipart(self.gate.answer(parts), zmq.NOBLOCK)

    def _refused(self, address: str, why: str, count: int) -> None:
        self._desk.events.emit("client_refused", address=address, why=why, count=count)

    def close(self) -> None:
        """Let nobody in any more."""
        if self._retry is not None:
            self._retry.cancel()
        self.door.close()
        if not self._asked.closed:
            with suppress(ValueError):
                asyncio.get_running_loop().remove_reader(self._asked.fileno())
            self._asked.close()
