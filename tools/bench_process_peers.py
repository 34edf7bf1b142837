"""Other libraries with two worker processes of their own, as they are started on a command line.

Knows: their commands, how workers are held and let go, a Redis of our own that syncs every write.
Does not know: tasks (bench_process_tasks.py), what is compared (bench_process_plan.py).

The libraries are in the dependency group `bench`, redis-server is a package of the system.
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter, sleep
from typing import NamedTuple

from bench_broker_cells import wait_until
from bench_broker_peers import PeersMissing
from bench_cells import Stopwatch
from bench_figures import Figure
from bench_process_cpu import cpu_of, cpu_of_group
from bench_process_names import COUNTED, FOLDER, PEER, REDIS

TOOLS = Path(__file__).resolve().parent
COMMAND = "python3 tools/dev.py bench processes"
REDIS_HINT = "redis-server is not installed (apt-get install redis-server)"
_WORKERS = 2
_WARM = 30
_END_S = 5.0
_TASKS = "bench_process_tasks"


class ProcessPeer(NamedTuple):
    """A library, the command of its workers, how many processes of it, how much to enqueue.

    `backlog`: tasks for each second that is measured: more than it can do.
    """

    name: str
    packages: tuple[str, ...]
    licence: str
    durable: str
    command: tuple[str, ...]
    needs_redis: bool = True
    times: int = 1
    backlog: int = 6_000


_HUEY = ("huey.bin.huey_consumer", f"{_TASKS}.app", "-k", "process", "-w", "2", "-q")
_RQ = ("rq.cli", "worker", "-w", "rq.worker.SimpleWorker", "-q", "orders")
PEERS = (
    ProcessPeer(
        *("huey-sqlite", ("huey",), "MIT", "SqliteHuey(fsync=True); at most once"),
        _HUEY,
        needs_redis=False,
    ),
    ProcessPeer("huey-redis", ("huey", "redis"), "MIT", "Redis; at most once", _HUEY),
    ProcessPeer(
        *("dramatiq", ("dramatiq", "redis"), "LGPL", "Redis"),
        ("dramatiq", f"{_TASKS}:app", "-p", "2", "--skip-logging"),
    ),
    ProcessPeer(
        *("rq", ("rq", "redis"), "BSD", "Redis; SimpleWorker, which does not fork"),
        (*_RQ, "-u", "unix://{redis}"),
        times=_WORKERS,
        backlog=1_500,
    ),
    ProcessPeer(
        *("celery", ("celery", "redis"), "BSD", "Redis; acks_late"),
        (
            *("celery", "-A", f"{_TASKS}:app", "worker", "-c", "2", "-l", "CRITICAL"),
            *("--without-gossip", "--without-mingle", "--without-heartbeat"),
        ),
        backlog=2_000,
    ),
)


def has_redis() -> bool:
    """Whether there is a redis-server to start."""
    return shutil.which("redis-server") is not None


def versions() -> dict[str, str]:
    """Return which release of each library is installed. Raises PeersMissing."""
    found: dict[str, str] = {}
    names = dict.fromkeys(name for peer in PEERS for name in peer.packages)
    missing = []
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            missing.append(name)
    if missing:
        raise PeersMissing(f"not installed: {', '.join(missing)}; this installs them: {COMMAND}")
    return found


class Redis:
    """A Redis server of our own, on a socket in a folder, which syncs every write."""

    def __init__(self, folder: Path) -> None:
        # The path of a socket is short; the file that is appended to is on the measured disk.
        self._place = Path(tempfile.mkdtemp(prefix="bench-"))
        self.socket = self._place / "redis"
        self._process = subprocess.Popen(
            [
                *("redis-server", "--port", "0", "--unixsocket", str(self.socket), "--save", ""),
                *("--appendonly", "yes", "--appendfsync", "always", "--dir", str(folder)),
                *("--daemonize", "no", "--loglevel", "warning"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.pid = self._process.pid
        try:
            wait_until(self.socket.exists, "Redis listens")
        except BaseException:
            self.close()
            raise

    def sync(self, when: str) -> None:
        """Say when it syncs: `always`, or `no` while tasks are enqueued."""
        subprocess.run(
            ["redis-cli", "-s", str(self.socket), "config", "set", "appendfsync", when],
            check=True,
            capture_output=True,
            timeout=30,
        )

    def close(self) -> None:
        """End it."""
        _end([self._process])
        shutil.rmtree(self._place, ignore_errors=True)


class PeerDrain:
    """Two worker processes of a library run a task that does nothing, for slices of time."""

    def __init__(self, name: str, peer: ProcessPeer, folder: Path, seconds: float) -> None:
        self._name = name
        self._peer = peer
        self._folder = folder
        self._watch = Stopwatch()
        self._messages = 0
        self._workers: list[subprocess.Popen[bytes]] = []
        self._enqueued = 0
        self._stack = ExitStack()
        self.close = self._stack.close
        try:
            self._start(seconds)
        except BaseException:
            self.close()
            raise

    def _start(self, seconds: float) -> None:
        peer = self._peer
        self._redis = Redis(self._folder) if peer.needs_redis else None
        socket = ""
        if self._redis is not None:
            self._stack.callback(self._redis.close)
            socket = str(self._redis.socket)
        places = (str(TOOLS), str(TOOLS.parent), os.environ.get("PYTHONPATH", ""))
        variables = dict(os.environ) | {
            PEER: peer.name,
            FOLDER: str(self._folder),
            REDIS: socket,
            "PYTHONPATH": os.pathsep.join(filter(None, places)),
        }
        self._source = subprocess.Popen(
            [sys.executable, str(TOOLS / f"{_TASKS}.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=variables,
            start_new_session=True,
        )
        self._stack.callback(_end, [self._source])
        command = [word.format(redis=socket) for word in peer.command]
        self._stack.callback(self._end_workers)
        for _ in range(peer.times):
            self._workers.append(
                subprocess.Popen(
                    [sys.executable, "-m", *command],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=variables,
                    cwd=self._folder,
                    start_new_session=True,
                )
            )
        self._meet()
        self._hold_outside_a_commit()
        self._fill(round(peer.backlog * seconds))

    def _meet(self) -> None:
        """Wait until both workers run tasks."""

        def both() -> bool:
            if self.handled >= self._enqueued and len(self._counts()) < _WORKERS:
                self._enqueue(_WARM)
            if any(worker.poll() is not None for worker in self._workers):
                raise RuntimeError(f"the workers of {self._peer.name} have ended")
            return len(self._counts()) == _WORKERS and self.handled >= self._enqueued

        wait_until(both, f"the workers of {self._peer.name} work")

    def _fill(self, tasks: int) -> None:
        if self._redis is not None:
            self._redis.sync("no")
        self._enqueue(tasks)
        if self._redis is not None:
            self._redis.sync("always")

    def _enqueue(self, tasks: int) -> None:
        source = self._source
        assert source.stdin is not None and source.stdout is not None  # noqa: S101, PT018
        source.stdin.write(f"{tasks}\n")
        source.stdin.flush()
        if source.stdout.readline() != "ok\n":
            raise RuntimeError(f"the tasks of {self._peer.name} cannot be enqueued")
        self._enqueued += tasks

    def _counts(self) -> list[int]:
        found = []
        for path in self._folder.glob(f"*{COUNTED}"):
            data = path.read_bytes()[:8]
            if len(data) == struct.calcsize("=Q"):
                found.append(struct.unpack("=Q", data)[0])
        return found

    @property
    def handled(self) -> int:
        """How many tasks have been run."""
        return sum(self._counts())

    def begin(self) -> None:
        """Do nothing: the workers have been warm."""

    def run_for(self, seconds: float) -> None:
        """Let the workers run for a time, or until nothing is left."""
        before, cpu = self.handled, self._cpu()
        if before >= self._enqueued:
            return
        self._signal(signal.SIGCONT)
        begun = now = perf_counter()
        while now < begun + seconds and self.handled < self._enqueued:
            sleep(0.005)
            now = perf_counter()
        done = self.handled - before
        self._watch.add(perf_counter() - begun, 0.0)
        self._hold()
        self._messages += done
        self._watch.add(0.0, self._cpu() - cpu)

    def end(self) -> dict[str, Figure]:
        """Return what was measured; the CPU is that of the workers, and of Redis."""
        return {self._name: self._watch.figure_of(self._messages)}

    def _cpu(self) -> float:
        redis = 0.0 if self._redis is None else cpu_of(self._redis.pid)
        return redis + sum(cpu_of_group(worker.pid) for worker in self._workers)

    def _hold(self) -> None:
        """Stop all processes of the workers where they are."""
        self._signal(signal.SIGSTOP)

    def _hold_outside_a_commit(self) -> None:
        """Stop them where they do not keep others, who are to enqueue, from the database."""
        path = self._folder / "huey.db"
        while True:
            self._hold()
            sleep(0.01)
            if not path.exists():
                return
            with closing(sqlite3.connect(path, timeout=0.05, isolation_level=None)) as connection:
                try:
                    connection.execute("BEGIN IMMEDIATE")
                    connection.execute("ROLLBACK")
                except sqlite3.OperationalError:
                    self._signal(signal.SIGCONT)
                    sleep(0.01)
                else:
                    return

    def _signal(self, number: signal.Signals) -> None:
        for worker in self._workers:
            os.killpg(worker.pid, number)

    def _end_workers(self) -> None:
        with suppress(ProcessLookupError):
            self._signal(signal.SIGCONT)
        _end(self._workers)


def _end(processes: Sequence[subprocess.Popen[str]] | Sequence[subprocess.Popen[bytes]]) -> None:
    """End processes and whatever they have started; those that do not go are killed."""
    for number, wait_s in ((signal.SIGTERM, _END_S), (signal.SIGKILL, _END_S)):
        for process in processes:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)
        until = perf_counter() + wait_s
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.01, until - perf_counter()))
    for process in processes:
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


Opener = Callable[[Path], PeerDrain]
