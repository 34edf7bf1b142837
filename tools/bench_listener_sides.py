"""The timed cells of the benchmark of listeners: servers, their clients, what is moved.

Knows: which processes a cell has, that everything written must be stored, when the clock runs.
Does not know: what is compared (bench_listener_plan.py), bytes of protocols.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from bench_cells import Stopwatch
from bench_figures import Figure
from bench_listener_peer import Beanstalkd
from bench_listener_wires import BEANSTALKD, Wire
from bench_process_cpu import cpu_of
from bench_process_sides import Program

_WARM_S: Final = 0.1
#: Processes for the clients of a library that works while it waits.
_PROCESSES: Final = 2


class Look(NamedTuple):
    """What a server has: messages, how many were put and taken so far, commits, CPU in seconds."""

    stored: int
    put: int
    taken: int
    commits: int
    cpu: float


class Server(Protocol):
    """Where messages are."""

    def look(self) -> Look:
        """Say what there is, once nothing is under way."""
        ...

    def fill_up(self, messages: int) -> None:
        """Have at least so many messages, and an empty log."""
        ...

    def empty(self) -> float:
        """Pay for a log that is emptied later; return the seconds."""
        ...

    def close(self) -> None:
        """End it."""
        ...


class Ours:
    """A host in a process of its own. See bench_listener_host.py."""

    def __init__(self, folder: Path, wire: Wire | None = None, planted_s: float = 0.0) -> None:
        words = (str(folder / "queue.db"), wire.queue if wire else "orders", str(planted_s))
        self.program = Program("bench_listener_host.py", *words).met()
        self.close = self.program.close
        self._url = wire.url if wire else ""

    def listen(self) -> int:
        """Serve the protocol; return the port."""
        port: int = self.program.ask("listen", json.dumps(self._url))[1]
        return port

    def look(self) -> Look:
        """Return its counters."""
        return Look(*self.program.ask("look"))

    def fill_up(self, messages: int) -> None:
        """Put in bulk, and empty the log."""
        self.program.ask("fill_up", messages)
        self.empty()

    def empty(self) -> float:
        """Write the log into the database."""
        seconds: float = self.program.ask("empty")
        return seconds


class Bare:
    """A server of bytes and rows. See bench_listener_bare.py."""

    def __init__(self, folder: Path, wire: Wire) -> None:
        self._program = Program("bench_listener_bare.py", str(folder), wire.name)
        self.close = self._program.close
        self.port: int = self._program.answer()
        self.pid = 0

    def look(self) -> Look:
        """Return its counters."""
        stored, taken, cpu = self._program.ask(0)
        return Look(stored, 0, taken, 0, cpu)

    def fill_up(self, messages: int) -> None:
        """Insert rows in bulk, and empty the log."""
        self._program.ask(messages)

    def empty(self) -> float:
        """Leave the log: it is emptied by whoever fills it."""
        return 0.0


class Theirs:
    """beanstalkd. `jobs`: what it finds in its log when it starts."""

    def __init__(self, folder: Path, jobs: int = 0) -> None:
        if jobs:
            self._server = Beanstalkd(folder, filling=True)
            try:
                self.fill_up(jobs)
            finally:
                self._server.close()
        self._server = Beanstalkd(folder)
        self.port = self._server.port

    def look(self) -> Look:
        """Return its counters."""
        counts = self._server.counts()
        stored = counts["current-jobs-ready"]
        cpu = cpu_of(self._server.pid)
        return Look(stored, counts["cmd-put"], counts["cmd-delete"], 0, cpu)

    def fill_up(self, messages: int) -> None:
        """Put jobs until there are so many."""
        clients = client_program("put", BEANSTALKD, self._server.port, 1)
        try:
            while self.look().stored < messages:
                clients.ask(0)
        finally:
            clients.close()

    def empty(self) -> float:
        """Do nothing: its log is no copy."""
        return 0.0

    def close(self) -> None:
        """End it."""
        self._server.close()


# ------------------------------------------------------------------------------------ loads


class Load(Protocol):
    """Who works for a time."""

    def run(self, seconds: float) -> tuple[int, float]:
        """Work; return how many messages it knows of, and how long it took."""
        ...

    def close(self) -> None:
        """End it."""
        ...


class Clients:
    """Processes of clients, all of which work at the same time."""

    def __init__(self, programs: Sequence[Program]) -> None:
        self._programs = programs

    def run(self, seconds: float) -> tuple[int, float]:
        """Let them work."""
        for program in self._programs:
            program.tell(seconds)
        answers = [program.answer() for program in self._programs]
        return sum(count for count, _ in answers), max(took for _, took in answers)

    def close(self) -> None:
        """End them."""
        for program in self._programs:
            program.close()


class Threads:
    """Threads of the host itself."""

    def __init__(self, host: Ours, verb: str, threads: int) -> None:
        self._host = host
        self._verb = json.dumps(verb)
        self._threads = threads

    def run(self, seconds: float) -> tuple[int, float]:
        """Let them work."""
        count, took = self._host.program.ask("work", self._verb, self._threads, seconds)
        return count, took

    def close(self) -> None:
        """Leave them to the host."""


def client_program(verb: str, wire: Wire, port: int, connections: int) -> Program:
    """Start clients in a process of their own. See bench_listener_client.py."""
    words = (verb, wire.name, str(wire.burst), str(port), str(connections))
    return Program("bench_listener_client.py", *words).met()


# ------------------------------------------------------------------------------------ cells


class _Moving:
    """A server and a load. The CPU is that of the server."""

    def __init__(self, name: str, server: Server, load: Load, stack: ExitStack) -> None:
        self._name = name
        self._server = server
        self._load = load
        self._watch = Stopwatch()
        self._messages = self._commits = 0
        self.close = stack.close

    def _add(self, before: Look, after: Look, messages: int, took: float) -> None:
        self._watch.add(took, after.cpu - before.cpu)
        self._messages += messages
        self._commits += after.commits - before.commits

    def end(self) -> dict[str, Figure]:
        """Pay for the checkpoint that is due."""
        self._watch.add(self._server.empty(), 0.0)
        each = self._commits / max(1, self._messages)
        return {self._name: self._watch.figure_of(self._messages, each or None)}


class Puts(_Moving):
    """What clients have written is stored when their connections end."""

    def begin(self) -> None:
        """Let them work for a moment, and empty the log."""
        self._load.run(_WARM_S)
        self._server.empty()

    def run_for(self, seconds: float) -> None:
        """Let them work. Raises RuntimeError if what they have written is not stored."""
        before = self._server.look()
        written, took = self._load.run(seconds)
        after = self._server.look()
        if after.put - before.put != written:
            raise RuntimeError(f"{self._name}: {written} written, {after.put - before.put} stored")
        self._add(before, after, written, took)


class Takes(_Moving):
    """What counts is what the server says is settled."""

    backlog: int

    def begin(self) -> None:
        """Let them work for a moment."""
        self._server.fill_up(self.backlog)
        self._load.run(_WARM_S)

    def run_for(self, seconds: float) -> None:
        """Let them work; again with more messages if they have taken them all, or none."""
        done = False
        while not done:
            self._server.fill_up(self.backlog)
            before = self._server.look()
            _, took = self._load.run(seconds)
            after = self._server.look()
            if after.stored:
                self._add(before, after, after.taken - before.taken, took)
                done = bool(self._messages)
            else:
                self.backlog *= 2


def listener_puts(
    name: str, folder: Path, wire: Wire, connections: int, planted_s: float = 0.0
) -> Puts:
    """Return the puts of clients of a protocol."""
    with ExitStack() as stack:
        host = Ours(folder, wire, planted_s)
        stack.callback(host.close)
        load = Clients([client_program("put", wire, host.listen(), connections)])
        stack.callback(load.close)
        return Puts(name, host, load, stack.pop_all())


def thread_puts(name: str, folder: Path, threads: int) -> Puts:
    """Return the puts of threads of a host."""
    with ExitStack() as stack:
        host = Ours(folder)
        stack.callback(host.close)
        return Puts(name, host, Threads(host, "put_text", threads), stack.pop_all())


def peer_puts(name: str, folder: Path, connections: int, *, pipelining: bool) -> Puts:
    """Return the puts of clients of beanstalkd, which write ahead or wait for each answer."""
    with ExitStack() as stack:
        server = Theirs(folder)
        stack.callback(server.close)
        if pipelining:
            load = Clients([client_program("put", BEANSTALKD, server.port, connections)])
        else:
            load = _peer_clients("put", server, connections)
        stack.callback(load.close)
        return Puts(name, server, load, stack.pop_all())


def _peer_clients(verb: str, server: Theirs, connections: int) -> Clients:
    processes = min(_PROCESSES, connections)
    words = (verb, str(server.port), str(connections // processes))
    return Clients([Program("bench_listener_peer.py", *words).met() for _ in range(processes)])


def _takes(name: str, server: Server, load: Load, backlog: int, stack: ExitStack) -> Takes:
    stack.callback(load.close)
    cell = Takes(name, server, load, stack.pop_all())
    cell.backlog = backlog
    return cell


def listener_takes(
    name: str, folder: Path, wire: Wire, connections: int, backlog: int, planted_s: float = 0.0
) -> Takes:
    """Return clients of a protocol that consume and settle."""
    with ExitStack() as stack:
        host = Ours(folder, wire, planted_s)
        stack.callback(host.close)
        load = Clients([client_program("take", wire, host.listen(), connections)])
        return _takes(name, host, load, backlog, stack)


def thread_takes(name: str, folder: Path, threads: int, backlog: int) -> Takes:
    """Return threads of a host that get and acknowledge."""
    with ExitStack() as stack:
        host = Ours(folder)
        stack.callback(host.close)
        return _takes(name, host, Threads(host, "get_and_ack", threads), backlog, stack)


def bare_takes(name: str, folder: Path, wire: Wire, connections: int, backlog: int) -> Takes:
    """Return clients that move the bytes of a protocol to and from a bare server."""
    with ExitStack() as stack:
        server = Bare(folder, wire)
        stack.callback(server.close)
        load = Clients([client_program("bare", wire, server.port, connections)])
        return _takes(name, server, load, backlog, stack)


def peer_takes(name: str, folder: Path, connections: int, backlog: int) -> Takes:
    """Return clients of beanstalkd that reserve and delete."""
    with ExitStack() as stack:
        server = Theirs(folder, backlog)
        stack.callback(server.close)
        load = _peer_clients("take", server, connections)
        # Each further one is synced: it has them until few are left.
        return _takes(name, server, load, backlog // 8, stack)
