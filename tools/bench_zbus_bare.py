"""The libraries of zbus alone: a WebSocket that echoes, an HTTP server that answers.

Knows: websockets, httptools. Does not know: queues, embedq. Started by bench_zbus.py.

    bench_zbus_bare.py echo|http

Each line of its input is ignored; each answer has one message that is there, how many were
answered, and the seconds of CPU.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from time import process_time
from typing import Final, cast

import httptools
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

_BODY: Final = b"OK, PUB (mq=orders)"
_ANSWER: Final = (
    b"HTTP/1.1 200 OK\r\nid: 1\r\nConnection: Keep-Alive\r\n"
    b"Content-Type: text/plain; charset=utf8\r\nContent-Length: %d\r\n\r\n%b"
) % (len(_BODY), _BODY)


class Counter:
    """How many messages were answered."""

    answered = 0


class Handler(asyncio.Protocol):
    """One connection of HTTP: each request has the same answer."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._parser = httptools.HttpRequestParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody has connected."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Read requests."""
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        """Answer one."""
        self._counter.answered += 1
        self._transport.write(_ANSWER)


async def listen(what: str, counter: Counter) -> int:
    """Begin to serve; return the port."""
    if what == "http":
        make = asyncio.get_running_loop().create_server
        bare = await make(lambda: Handler(counter), "127.0.0.1", 0)
        port: int = bare.sockets[0].getsockname()[1]
        return port

    async def echo(connection: ServerConnection) -> None:
        with suppress(ConnectionClosed):  # clients go without a word
            async for message in connection:
                counter.answered += 1
                await connection.send(message)

    server = await serve(echo, "127.0.0.1", 0, compression=None)
    found: int = next(iter(server.sockets)).getsockname()[1]
    return found


async def main(what: str) -> None:
    """Serve, and answer what the standard input asks for, until that ends."""
    counter = Counter()
    print(json.dumps(await listen(what, counter)), flush=True)
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps([1, counter.answered, process_time()]), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
