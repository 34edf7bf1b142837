"""beanstalkd, a server of its own, and clients of it that put or take jobs.

Knows: how it is started so that it syncs every write, what its common client calls.
Does not know: what is compared (bench_listener_plan.py).

The client is greenstalk, of the dependency group `bench`; beanstalkd is a package of the system.

    bench_listener_peer.py VERB PORT CONNECTIONS    a process of clients, a thread for each

Each line of its input says for how many seconds; each answer is a line of JSON: how many jobs, how
many seconds.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parent.parent
# Runs from a checkout that is not installed, too.
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from bench_broker_cells import wait_until  # noqa: E402
from bench_broker_peers import PeersMissing  # noqa: E402
from bench_cells import Stopwatch, Team  # noqa: E402
from bench_listener_wires import TEXT  # noqa: E402

SERVER, CLIENT = "beanstalkd", "greenstalk"
COMMAND: Final = "python3 tools/dev.py bench listeners"
HINT: Final = f"{SERVER} is not installed (apt-get install {SERVER})"
_TRIES: Final = 10
_END_S: Final = 20.0


def has_server() -> bool:
    """Whether there is a beanstalkd to start."""
    return shutil.which(SERVER) is not None


def versions() -> str:
    """Say which releases of server and client there are. Raises PeersMissing without a client."""
    try:
        client = version(CLIENT)
    except PackageNotFoundError:
        raise PeersMissing(f"not installed: {CLIENT}; this installs it: {COMMAND}") from None
    told = subprocess.run([SERVER, "-v"], check=True, capture_output=True, text=True, timeout=30)
    return f"{told.stdout.strip()} -b -f 0, {CLIENT} {client}"


class Beanstalkd:
    """A server whose log is in a folder and synced at every write, unless it is being filled."""

    def __init__(self, folder: Path, *, filling: bool = False) -> None:
        syncs = ("-F",) if filling else ("-f", "0")
        for _ in range(_TRIES):
            self.port = _free_port()
            self._process = subprocess.Popen(
                [SERVER, "-b", folder, *syncs, "-l", "127.0.0.1", "-p", str(self.port)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            self.pid = self._process.pid
            try:
                wait_until(lambda: self._has_ended or _answers(self.port), f"{SERVER} listens")
            except BaseException:
                self.close()
                raise
            if not self._has_ended:
                return
        raise RuntimeError(f"{SERVER} does not start")

    @property
    def _has_ended(self) -> bool:
        return self._process.poll() is not None

    def counts(self) -> dict[str, int]:
        """Return its counters."""
        with socket.create_connection(("127.0.0.1", self.port), _END_S) as asking:
            asking.sendall(b"stats\r\nquit\r\n")
            with asking.makefile() as answer:
                pairs = [line.partition(": ") for line in answer]
        return {name: int(value) for name, _, value in pairs if value.strip().isdigit()}

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(_END_S)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as door:
        port: int = door.getsockname()[1]
    return port


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), _END_S).close()
    except ConnectionRefusedError:
        return False
    return True


# ------------------------------------------------------------------------------ the clients


class Clients:
    """Clients of one process, each used by the thread that takes it first."""

    def __init__(self, port: int, connections: int) -> None:
        greenstalk = import_module(CLIENT)  # only who measures it needs it
        self._timed_out = greenstalk.TimedOutError
        self._body = TEXT.decode()
        self._clients: list[Any] = [
            greenstalk.Client(("127.0.0.1", port)) for _ in range(connections)
        ]

    def put(self) -> object:
        """Put one job; it is durable when this returns."""
        client = self._clients.pop()
        client.put(self._body)
        self._clients.append(client)
        return client

    def take(self) -> object:
        """Reserve one job and delete it; None if there is none."""
        client = self._clients.pop()
        try:
            client.delete(client.reserve(timeout=0))
        except self._timed_out:
            return None
        finally:
            self._clients.append(client)
        return client


def main(verb: str, port: str, connections: str) -> int:
    """Work for as long as each line says, until there are no more."""
    clients = Clients(int(port), int(connections))
    team = Team(getattr(clients, verb), int(connections))
    print("null", flush=True)
    for line in sys.stdin:
        watch = Stopwatch()
        team.run(float(line), watch)
        print(json.dumps([len(watch.taken), watch.seconds]), flush=True)
    team.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
