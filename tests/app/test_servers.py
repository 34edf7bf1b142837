"""Real servers with several workers on one file: nothing is lost, also while they are replaced."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from embedq import Broker
from tests.ipc.peer import eventually

pytestmark = pytest.mark.reliability

ROOT = Path(__file__).parents[2]
APPS = "tests.app.server_apps"
GUNICORN = ["gunicorn", "--workers", "2", "--config", f"python:{APPS}", "--log-level", "error"]
UVICORN = ["uvicorn", "--workers", "2", "--log-level", "critical"]


@contextmanager
def server(path: Path, command: list[str]) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run a server on a free port until the block ends, and let it end in order."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    where = ["--bind", f"127.0.0.1:{port}"] if "gunicorn" in command else ["--port", str(port)]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EMBEDQ_")}
    process = subprocess.Popen(
        [sys.executable, "-m", *command, *where],
        env={**kept, "EMBEDQ_PATH": str(path), "PYTHONPATH": str(ROOT)},
        cwd=path.parent,
        start_new_session=True,
    )
    try:
        eventually(lambda: put(port, "first"), 60)
        yield process, port
        process.terminate()
        process.wait(40)
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            process.wait()
        process.wait()


def put(port: int, name: str) -> bool:
    """Whether a message was taken."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("PUT", f"/{name}")
        return connection.getresponse().status == 202
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def load(port: int, stop: threading.Event, taken: list[str], name: str) -> None:
    number = 0
    while not stop.is_set():
        number += 1
        order = f"{name}-{number}"
        if put(port, order):
            taken.append(order)
        else:
            stop.wait(0.05)  # a worker is being replaced


class Workers:
    """What was handled, and the processes that did it, as it is told in the queue "done"."""

    def __init__(self, broker: Broker) -> None:
        self.done = broker.queue("done")
        self.after = 0
        self.handled: set[str] = set()
        self.pids: set[int] = set()

    def look(self) -> int:
        """Return how many processes have handled something."""
        while messages := self.done.peek(1000, self.after):
            self.after = messages[-1].seq
            for message in messages:
                told = json.loads(message.body)
                self.handled.add(told["order"])
                self.pids.add(told["pid"])
        return len(self.pids)


@pytest.mark.parametrize(
    "command", [[*GUNICORN, f"{APPS}:wsgi"], [*UVICORN, f"{APPS}:asgi"]], ids=lambda c: c[0]
)
def test_workers_that_are_replaced_under_load_lose_nothing(
    tmp_path: Path, command: list[str]
) -> None:
    path = tmp_path / "shop.db"
    taken: list[str] = []
    with server(path, command) as (process, port):
        stop = threading.Event()
        clients = [
            threading.Thread(target=load, args=(port, stop, taken, name)) for name in "abcd"
        ]
        for client in clients:
            client.start()
        with Broker(path, role="client") as outside:
            workers = Workers(outside)
            try:
                eventually(lambda: len(taken) > 50, 60)
                before = workers.look()
                process.send_signal(signal.SIGHUP)  # both servers replace their workers
                eventually(lambda: workers.look() > before + 1, 90)
            finally:
                stop.set()
                for client in clients:
                    client.join(60)
            eventually(lambda: outside.queue("orders").stats().length == 0, 60)
            workers.look()
    with Broker(path, role="host") as left:
        assert left.queue("orders").stats().length == 0
    assert workers.handled >= set(taken)
