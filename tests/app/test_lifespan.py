"""The broker inside an ASGI application, served by a real server in a process of its own."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from embedq import Broker

#: An application without a framework: it reads the lifespan protocol itself.
BARE = """
import asyncio, os, sys, threading
from embedq import Broker

broker = Broker(os.environ["QUEUE"], grace=os.environ["GRACE"])
orders = broker.queue("orders", str)
say = lambda text: os.write(1, f"{text}\\n".encode())
drains, never = threading.Event(), threading.Event()

@orders.consumer(concurrency=2)
def handle(body):
    say(f"begun {body}")
    if body == "slow":
        drains.wait(600)
    if body == "endless":
        never.wait(600)
    say(f"done {body}")

@orders.consumer(group="loop")
async def on_loop(body):
    say(f"loop {asyncio.get_running_loop() is serving} {body}")

broker.on("drain_started", lambda notice: (say("drains"), drains.set()))
broker.on("stopped", lambda notice: say("stopped"))

async def lifespan(receive, send):
    global serving
    serving = asyncio.get_running_loop()
    await receive()
    try:
        async with broker.lifespan(app) as state:
            assert state == {"broker": broker}
            await send({"type": "lifespan.startup.complete"})
            await receive()
    except Exception as error:
        await send({"type": "lifespan.startup.failed", "message": str(error)})
        return
    await send({"type": "lifespan.shutdown.complete"})

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        return await lifespan(receive, send)
    receipt = await orders.aput(scope["path"].lstrip("/"))
    await send({"type": "http.response.start", "status": 202, "headers": []})
    await send({"type": "http.response.body", "body": receipt.id.encode()})
"""

#: The same with a framework.
FRAMED = (
    BARE
    + """
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

async def put(request):
    global serving
    assert request.state.broker is broker
    serving = asyncio.get_running_loop()
    receipt = await orders.aput(request.path_params["body"])
    return PlainTextResponse(receipt.id, status_code=202)

app = Starlette(routes=[Route("/{body}", put)], lifespan=broker.lifespan)
"""
)


class Server:
    """uvicorn in a process, on a free port of the loopback interface."""

    def __init__(self, folder: Path, source: str, grace: str) -> None:
        (folder / "web.py").write_text(source)
        with closing(socket.create_server(("127.0.0.1", 0))) as free:
            self.port = free.getsockname()[1]
        self.path = folder / "q.db"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "web:app", "--port", str(self.port)],
            cwd=folder,
            env={**os.environ, "QUEUE": str(self.path), "GRACE": grace},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(line.strip() for line in self.process.stdout)

    def until(self, said: str) -> None:
        pause = threading.Event()
        for _ in range(6_000):
            if any(said in line for line in list(self.lines)):
                return
            assert self.process.poll() is None or self._reader.is_alive(), self.lines
            pause.wait(0.01)
        raise AssertionError((said, self.lines))

    def request(self, body: str) -> tuple[int, str]:
        url = f"http://127.0.0.1:{self.port}/{body}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.status, answer.read().decode()

    def end(self, *numbers: signal.Signals) -> int:
        for number in numbers:
            self.process.send_signal(number)
        code = self.process.wait(60)
        self._reader.join(60)
        return code

    def close(self) -> None:
        self.process.kill()
        self.process.wait(60)
        self._reader.join(60)
        if self.process.stdout is not None:
            self.process.stdout.close()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def start(source: str = BARE, grace: str = "30s") -> Server:
        servers.append(Server(tmp_path, source, grace))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def left_in(path: Path) -> list[int]:
    """Return the next attempt of each message that is left."""
    with Broker(path) as broker:
        orders = broker.queue("orders")
        assert "unclean_start" not in broker.stats().events
        return [delivery.attempt for delivery in orders.get_many(10)]


@pytest.mark.parametrize("source", [BARE, FRAMED], ids=["bare", "starlette"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["TERM", "INT"])
def test_a_server_puts_handles_and_drains(
    serve: Callable[..., Server], source: str, number: signal.Signals
) -> None:
    server = serve(source)
    server.until("running on")
    assert server.request("first")[0] == 202
    server.until("done first")
    server.until("loop True first")
    status, receipt = server.request("slow")
    assert (status, len(receipt)) == (202, 32)
    server.until("begun slow")
    # The server itself ends as if by the signal, once it has cleaned up.
    assert server.end(number) in {0, -number}
    order = [server.lines.index(line) for line in ("drains", "done slow", "stopped")]
    assert order == sorted(order)
    assert any("shutdown complete" in line for line in server.lines)
    assert left_in(server.path) == []


def test_what_does_not_finish_within_the_grace_goes_back(serve: Callable[..., Server]) -> None:
    server = serve(grace="0.1s")
    server.until("running on")
    server.request("endless")
    server.until("begun endless")
    server.end(signal.SIGTERM)
    assert "stopped" in server.lines
    assert left_in(server.path) == [1]


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT], ids=["TERM", "INT"])
def test_a_second_signal_ends_the_grace(
    serve: Callable[..., Server], second: signal.Signals
) -> None:
    server = serve(grace="10m")
    server.until("running on")
    server.request("endless")
    server.until("begun endless")
    server.process.send_signal(signal.SIGTERM)
    server.until("drains")
    server.end(second)
    assert "stopped" in server.lines
    assert left_in(server.path) == [1]


def test_a_server_that_gives_up_its_application_does_not_wait_for_the_grace(
    serve: Callable[..., Server],
) -> None:
    hanging = BARE.replace(
        "    receipt = await", "    await asyncio.Event().wait()\n    receipt = await", 1
    )
    hanging = hanging.replace('scope["path"].lstrip("/")', '"never"')
    hanging += '\norders.put("endless")\n'
    server = serve(hanging, grace="10m")
    server.until("begun endless")
    server.until("running on")
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.sendall(b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n")
        server.process.send_signal(signal.SIGINT)
        server.until("Waiting for connections")  # and none of them ends
        server.end(signal.SIGINT)
    assert "drains" in server.lines
    assert left_in(server.path) == [1]


def test_a_file_that_cannot_be_opened_keeps_the_application_from_starting_and_says_why(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    (tmp_path / "q.db").write_text("This is a letter, and no database at all.\n" * 100)
    (tmp_path / "q.db").chmod(0o600)
    server = serve()
    server.until("q.db is not")
    assert server.process.wait(60) == 3
    assert not any("startup complete" in line for line in server.lines)


def test_a_lifespan_may_be_entered_again(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "q.db")
    orders = broker.queue("orders")
    seen: list[object] = []
    orders.consumer(seen.append)

    async def once(body: str) -> None:
        async with broker.lifespan(None):
            await orders.aput(body)
            for _ in range(2_000):
                if body in seen:
                    break
                await asyncio.sleep(0.005)

    asyncio.run(once("one"))
    asyncio.run(once("two"))
    assert seen == ["one", "two"]
    assert not broker.running
    assert signal.getsignal(signal.SIGTERM) in {signal.SIG_DFL, signal.SIG_IGN}
