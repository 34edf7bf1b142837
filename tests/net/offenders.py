"""Clients that misbehave, as a process of their own: `offenders.py PLACES COUNT MOST`.

Knows: ways to misbehave that the host has to end by itself, and what each protocol begins with.
Does not know: embedq. Everything comes from 127.0.0.2, so that only their own place is taken.

Prints a line of JSON with how many of each kind the host has closed, once it has closed all that
it must; stays connected until its standard input ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import ssl
import struct
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, NamedTuple

SOURCE: Final = "127.0.0.2"
#: Connections beyond the limit of one address.
TOO_MANY: Final = 10
HTTP: Final = b"GET /index.html HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Place(NamedTuple):
    """A listener: where it is, the beginning of a frame, a request for more than anybody reads."""

    address: tuple[str, int]
    fragment: bytes
    greedy: bytes


def tls_hello() -> bytes:
    """What a client of TLS says first."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    wrapped = ssl.create_default_context().wrap_bio(
        incoming, outgoing, server_hostname="localhost"
    )
    try:
        wrapped.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("a handshake without an answer")


async def dial(place: Place, *, receives: int = 0) -> socket.socket:
    """Connect. `receives`: bytes that the kernel may keep for who does not read."""
    sock = socket.socket()
    sock.setblocking(False)
    if receives:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receives)
    sock.bind((SOURCE, 0))
    await asyncio.get_running_loop().sock_connect(sock, place.address)
    return sock


async def is_closed(sock: socket.socket) -> bool:
    """Wait for the host to end it."""
    loop = asyncio.get_running_loop()
    try:
        while await loop.sock_recv(sock, 65_536):
            pass
    except ConnectionError:
        pass
    finally:
        sock.close()
    return True


async def says(place: Place, data: bytes) -> bool:
    """Say something, and wait for the end."""
    sock = await dial(place)
    try:
        await asyncio.get_running_loop().sock_sendall(sock, data)
    except ConnectionError:
        sock.close()
        return True
    return await is_closed(sock)


async def slow_loris(place: Place) -> bool:
    """A frame that grows by a byte now and then."""
    sock = await dial(place)
    loop = asyncio.get_running_loop()
    ending = asyncio.ensure_future(is_closed(sock))
    try:
        for at in range(len(place.fragment)):
            await loop.sock_sendall(sock, place.fragment[at : at + 1])
            await asyncio.wait([ending], timeout=0.2)
            if ending.done():
                break
    except OSError:
        pass  # it has been closed meanwhile
    return await ending


async def half_close(place: Place) -> bool:
    """Half a frame, and no more from this side."""
    sock = await dial(place)
    with suppress(OSError):  # it has been closed meanwhile: on a busy machine its time is over
        await asyncio.get_running_loop().sock_sendall(sock, place.fragment)
        sock.shutdown(socket.SHUT_WR)
    return await is_closed(sock)


async def reset(place: Place) -> bool:
    """Half a frame, then gone without a word."""
    sock = await dial(place)
    with suppress(OSError):  # as above
        await asyncio.get_running_loop().sock_sendall(sock, place.fragment)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    os.close(sock.detach())
    return True


async def garbage(place: Place) -> bool:
    """Bytes that mean nothing."""
    return await says(place, random.Random(4).randbytes(4_096))


async def http(place: Place) -> bool:
    """A browser."""
    return await says(place, HTTP)


async def tls(place: Place) -> bool:
    """A client of TLS at a port without."""
    return await says(place, tls_hello())


#: Those that the host must have closed before a report is made.
KINDS: Final[dict[str, Callable[[Place], Awaitable[bool]]]] = {
    "slow-loris": slow_loris,
    "half-closed": half_close,
    "reset": reset,
    "garbage": garbage,
    "HTTP": http,
    "TLS": tls,
}


async def crowd(places: list[Place], count: int) -> Counter[str]:
    """Let all of them misbehave at once."""

    async def one(kind: str, place: Place) -> str:
        await KINDS[kind](place)
        return kind

    every = [one(kind, place) for kind in KINDS for place in places for _ in range(count)]
    return Counter(await asyncio.gather(*every))


async def flood(place: Place, most: int) -> None:
    """More connections than one address may have; until those that are too many are closed."""
    every = [await dial(place) for _ in range(most + TOO_MANY)]
    waiting = {asyncio.ensure_future(is_closed(sock)) for sock in every}
    while len(waiting) > most:
        _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)


async def never_read(place: Place) -> socket.socket:
    """Ask for everything, and read nothing of it."""
    sock = await dial(place, receives=4_096)
    await asyncio.get_running_loop().sock_sendall(sock, place.greedy)
    return sock


async def main(places: list[Place], count: int, most: int) -> None:
    """Misbehave, report, wait for the end of standard input."""
    greedy = [place for place in places if place.greedy]
    silent = [await never_read(place) for place in greedy]
    closed = await crowd(places, count)
    for place in places:
        await flood(place, most)
    sys.stdout.write(json.dumps(closed) + "\n")
    sys.stdout.flush()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    for sock in silent:
        sock.close()


if __name__ == "__main__":
    told = json.loads(sys.argv[1])
    found = [
        Place(tuple(at), bytes.fromhex(fragment), bytes.fromhex(greedy))
        for at, fragment, greedy in told
    ]
    asyncio.run(main(found, int(sys.argv[2]), int(sys.argv[3])))
