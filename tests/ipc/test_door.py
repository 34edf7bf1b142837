"""A door: nothing that has come in stays unread, whatever goes out meanwhile."""

from __future__ import annotations

import asyncio
import select
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import zmq

from embedq.ipc.door import Door
from embedq.ipc.router import local_door

LARGE = bytes(1 << 20)


@contextmanager
def opened(endpoint: str, read: Any) -> Iterator[Door]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    door = local_door(context, 64 << 20)
    door.open(endpoint, read, lambda door: list(door.arrivals()))
    try:
        yield door
    finally:
        door.close()
        context.term()


@contextmanager
def dealer(endpoint: str) -> Iterator[zmq.Socket[bytes]]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    with context.socket(zmq.DEALER) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVHWM, 1)
        socket.connect(endpoint)
        yield socket
    context.term()


async def filled(door: Door, address: bytes) -> None:
    """Send to somebody who does not read, until the door takes nothing more for a while."""
    refused = 0
    while refused < 10:
        refused = 0 if door.send(address, LARGE) else refused + 1
        await asyncio.sleep(0.01)


def is_signalled(door: Door) -> bool:
    """Wait until ZeroMQ signals that something has come, without a turn of the loop."""
    poll = select.poll()
    poll.register(door._socket.fileno(), select.POLLIN)
    return bool(poll.poll(20_000))


def test_what_comes_while_another_client_takes_nothing_is_read(tmp_path: Path) -> None:
    endpoint = f"ipc://{tmp_path / 's'}"

    async def scene() -> None:
        came: asyncio.Queue[tuple[bytes, bytes]] = asyncio.Queue()

        def read(door: Door) -> None:
            while (found := door.receive()) is not None:
                address, (body,) = found
                came.put_nowait((address, body.bytes))

        with opened(endpoint, read) as door, dealer(endpoint) as slow, dealer(endpoint) as other:
            slow.send(b"slow")
            address, _ = await asyncio.wait_for(came.get(), 20)
            other.send(b"first")
            await asyncio.wait_for(came.get(), 20)
            await filled(door, address)
            other.send(b"second")
            assert is_signalled(door)
            assert not door.send(address, LARGE)  # which takes the signal
            assert (await asyncio.wait_for(came.get(), 20))[1] == b"second"

    asyncio.run(scene())
