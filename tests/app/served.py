"""A project in a folder, served by a real server with several workers, and what it did.

Knows: how a server is started on a free port, who belongs to it, how its end is looked at.
Does not know: what is tested.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from embedq import Broker
from embedq.storage.owners import owner_of

ROOT = Path(__file__).parents[2]
HOOKS = ROOT / "examples" / "wsgi" / "gunicorn.conf.py"
PATIENCE_S = 150.0

#: PUT /orders/<text> goes to a thread, PUT /heavy/<text> to a worker process.
SOURCE = """
import os, time, traceback
from embedq import Broker

broker = Broker(grace="10s")
queues = {{name: broker.queue(name, str) for name in ("orders", "heavy")}}
done = broker.queue("done")

def tell(order):
    if order.endswith("slow"):
        with open(os.environ["EMBEDQ_PATH"] + ".began", "a") as began:
            began.write(f"{{order}}\\n")
        time.sleep(1)
    done.put({{"order": order, "pid": os.getpid(), "version": {version!r}}})

@queues["orders"].consumer(concurrency=2)
def move(order: str) -> None:
    tell(order)

@queues["heavy"].consumer(pool="process")
def crunch(order: str) -> None:
    tell(order)

def wsgi(environ, start_response):
    name, body = environ["PATH_INFO"].strip("/").split("/")
    queues[name].put(body)
    answer = str(os.getpid()).encode()
    start_response("202 Accepted", [("Content-Length", str(len(answer)))])
    return [answer]

async def asgi(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        try:
            async with broker.lifespan(None):
                await send({{"type": "lifespan.startup.complete"}})
                await receive()
        except Exception as error:  # as frameworks do; a server would go on without a lifespan
            traceback.print_exc()
            await send({{"type": "lifespan.startup.failed", "message": repr(error)}})
            raise
        await send({{"type": "lifespan.shutdown.complete"}})
        return
    name, body = scope["path"].strip("/").split("/")
    await queues[name].aput(body)
    await send({{"type": "http.response.start", "status": 202, "headers": []}})
    await send({{"type": "http.response.body", "body": str(os.getpid()).encode()}})

if __name__ == "__main__":
    broker.run()
"""


def eventually(check: Callable[[], object]) -> None:
    """Wait until `check()` is true. It may be costly: this looks now and then."""
    gate = threading.Event()
    until = time.monotonic() + PATIENCE_S
    while not check():
        assert time.monotonic() < until, "it did not happen in time"
        gate.wait(0.2)


def write(folder: Path, version: str = "v1") -> None:
    """Write the project: a package in the folder `src`, the hooks for gunicorn beside it."""
    package = folder / "src" / "shop"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").touch()
    (package / "web.py").write_text(SOURCE.format(version=version))
    hooks = HOOKS.read_text().replace("from shop import", "from shop.web import")
    (folder / "hooks.py").write_text(hooks)  # not the name that gunicorn takes unasked


class Served:
    """A server on a project. It is asked through its port, and its messages from outside."""

    def __init__(self, folder: Path, port: int, process: subprocess.Popen[bytes]) -> None:
        self.path = folder / "shop.db"
        self.log = folder / "log.txt"
        self.process = process
        self.taken: list[str] = []
        self.by: set[int] = set()
        self._port = port
        self._after = 0
        self._told: list[dict[str, Any]] = []
        self._outside = Broker(self.path, role="client")

    def put(self, queue: str, body: str) -> bool:
        """Whether a message was taken; by which process is noted."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=20)
        try:
            connection.request("PUT", f"/{queue}/{body}")
            answer = connection.getresponse()
            if answer.status != 202:
                return False
            self.by.add(int(answer.read()))
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
        self.taken.append(body)
        return True

    def puts(self, *bodies: str) -> None:
        """Put each into both queues."""
        for body in bodies:
            for queue in ("orders", "heavy"):
                eventually(partial(self.put, queue, f"{queue}-{body}"))

    def told(self) -> list[dict[str, Any]]:
        """Return what handlers have told so far."""
        done = self._outside.queue("done")
        while messages := done.peek(1000, self._after):
            self._after = messages[-1].seq
            self._told += [json.loads(message.body) for message in messages]
        return self._told

    def handled(self) -> set[str]:
        """Return what has been handled."""
        return {told["order"] for told in self.told()}

    def versions(self, *orders: str) -> set[str]:
        """Return which versions of the code have handled these."""
        return {told["version"] for told in self.told() if told["order"] in orders}

    @property
    def host(self) -> int | None:
        """The process that is the host, if there is one."""
        owner = owner_of(self.path)
        return owner.pid if owner is not None and owner.alive else None

    @property
    def text(self) -> str:
        """What it has printed."""
        return self.log.read_text("utf-8", "replace")

    def let_go(self) -> None:
        """Look at the messages no more."""
        self._outside.stop()

    def ends(self) -> int:
        """Return the exit code; nobody of the session may live on."""
        code = self.process.wait(PATIENCE_S)
        eventually(lambda: not members(self.process.pid))
        return code

    def lost(self) -> set[str]:
        """Return what was taken and is neither done nor waiting, once the server has ended."""
        with Broker(self.path) as broker:
            done = {json.loads(each.body)["order"] for each in broker.queue("done").peek(1000)}
            waiting = {
                each.body.decode()
                for name in ("orders", "heavy")
                for each in broker.queue(name).peek(1000)
            }
        return set(self.taken) - done - waiting


def began(path: Path) -> int:
    """Return how many slow handlers have begun."""
    told = path.with_name(f"{path.name}.began")
    return len(told.read_text().splitlines()) if told.exists() else 0


def members(session: int) -> list[int]:
    """Return the living processes of a session."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            stat = (entry / "stat").read_text("ascii", "replace").rpartition(")")[2].split()
            if int(stat[3]) == session and stat[0] != "Z":
                found.append(int(entry.name))
    return found


def environment(folder: Path) -> dict[str, str]:
    """Return what a server inherits. The control socket of gunicorn lives in the home folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EMBEDQ_")}
    own = {"EMBEDQ_PATH": str(folder / "shop.db"), "HOME": str(folder), "PYTHONPATH": str(ROOT)}
    # Two versions of a source that are written in one second have one name in the cache.
    return kept | own | {"PYTHONDONTWRITEBYTECODE": "1"}


@contextmanager
def served_as_it_is(
    folder: Path, command: Sequence[str]
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Serve what is in a folder until the block ends; `PORT` becomes a free port.

    A failure shows what the server has printed.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    given = [argument.replace("PORT", str(port)) for argument in command]
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", *given],
            env=environment(folder),
            cwd=folder,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        eventually(lambda: is_listening(port) or process.poll() is not None)
        yield process, port
    except AssertionError as failure:
        failure.add_note((folder / "log.txt").read_text("utf-8", "replace"))
        raise
    finally:
        for pid in members(process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def is_listening(port: int) -> bool:
    """Whether somebody takes connections."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=20).close()
    except OSError:
        return False
    return True


@contextmanager
def served(folder: Path, command: Sequence[str]) -> Iterator[Served]:
    """Serve the project that was written into a folder, once it takes messages."""
    with served_as_it_is(folder, command) as (process, port):
        server = Served(folder, port, process)
        try:
            eventually(partial(server.put, "orders", "first"))
            yield server
        finally:
            server.let_go()
