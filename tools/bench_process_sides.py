"""The timed cells of the benchmark of processes: applications, producers and a probe.

Knows: how processes are started, told what to do and ended; what each cell measures.
Does not know: what is compared (bench_process_plan.py), other libraries (bench_process_peers.py).
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from time import perf_counter, process_time, sleep
from typing import Any, Final, Self

from bench_cells import Stopwatch
from bench_figures import Figure
from bench_process_names import MODE, PATH, PLANTED, WORKERS
from bench_sides import BODY, Raw

TOOLS = Path(__file__).resolve().parent
_END_S: Final = 20.0
_WARM_S: Final = 0.1
_REST_S: Final = 0.002
_PATIENCE_MS: Final = 60_000


class Program:
    """A process that does what lines tell it, and answers each with a line of JSON.

    Raises RuntimeError where it ends instead.
    """

    def __init__(self, script: str, *arguments: str, **variables: str) -> None:
        self._what = script
        self._process = subprocess.Popen(
            [sys.executable, str(TOOLS / script), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=dict(os.environ) | variables,
        )

    def met(self) -> Self:
        """Wait until it has started."""
        try:
            self.answer()
        except BaseException:
            self.close()
            raise
        return self

    def tell(self, *words: object) -> None:
        """Tell it what to do next."""
        assert self._process.stdin is not None  # noqa: S101  # it is a pipe
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:  # noqa: ANN401  # as JSON is
        """Wait for its answer."""
        assert self._process.stdout is not None  # noqa: S101  # it is a pipe
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._what} has ended: {self._process.wait(_END_S)}")
        return json.loads(line)

    def ask(self, *words: object) -> Any:  # noqa: ANN401  # as JSON is
        """Tell it something and wait for the answer."""
        self.tell(*words)
        return self.answer()

    def close(self) -> None:
        """Let it end, or end it."""
        process = self._process
        assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018
        with suppress(OSError):
            process.stdin.close()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_END_S)
        process.stdout.close()


def application(folder: Path, mode: str, planted_s: float = 0.0) -> Program:
    """Start an application whose database is in a folder; see bench_process_app.py."""
    variables = {PATH: str(folder / "queue.db"), MODE: mode, PLANTED: str(planted_s)}
    return Program("bench_process_app.py", **variables).met()


class WorkerDrain:
    """Two worker processes drain a backlog with a handler that does nothing."""

    def __init__(self, name: str, folder: Path, backlog: int, planted_s: float = 0.0) -> None:
        self._name = name
        self._watch = Stopwatch()
        self._messages = self._commits = 0
        self._backlog = self._left = backlog
        self._app = application(folder, "drain", planted_s)
        self.close = self._app.close
        try:
            self._app.ask("ready", WORKERS)
            self._app.ask("fill", backlog)
        except BaseException:
            self.close()
            raise

    def begin(self) -> None:
        """Let the workers run for a moment, and empty the log."""
        self._left -= self._app.ask("drain", _WARM_S)[0]
        self._app.ask("checkpoint")

    def run_for(self, seconds: float) -> None:
        """Let the workers work for a time."""
        # A busy machine hears late that it is enough: by then nothing may be left.
        if not self._left:
            self._watch.add(self._app.ask("checkpoint"), 0.0)
            self._app.ask("fill", self._backlog)
            self._left = self._backlog
        done, took, cpu, commits = self._app.ask("drain", seconds)
        self._watch.add(took, cpu)
        self._left -= done
        self._messages += done
        self._commits += commits

    def end(self) -> dict[str, Figure]:
        """Pay for the checkpoint that is due; the CPU is that of the host and its workers."""
        self._watch.add(self._app.ask("checkpoint"), 0.0)
        each = self._commits / max(1, self._messages)
        return {self._name: self._watch.figure_of(self._messages, each)}


class WorkerLatency:
    """The time from a put in an idle application to the first line of a handler in its worker."""

    def __init__(self, name: str, folder: Path) -> None:
        self._name = name
        self._watch = Stopwatch()
        self._app = application(folder, "latency")
        self.close = self._app.close
        try:
            self._app.ask("ready", 1)
        except BaseException:
            self.close()
            raise

    def begin(self) -> None:
        """Put a few, and empty the log."""
        self._app.ask("latency", _WARM_S)
        self._app.ask("checkpoint")

    def run_for(self, seconds: float) -> None:
        """Put for a time, one message after the other."""
        taken, cpu = self._app.ask("latency", seconds)
        self._watch.taken.extend(taken)
        self._watch.add(sum(taken), cpu)

    def end(self) -> dict[str, Figure]:
        """Return the latencies."""
        return {self._name: self._watch.figure(1)}


_ECHO = """
import sys, zmq
socket = zmq.Context().socket(zmq.REP)
socket.bind(sys.argv[1])
print("null", flush=True)
while (message := socket.recv()):
    socket.send(message)
socket.send(b"")
"""


class Probe:
    """What cannot be done without: a request over ZeroMQ, its answer, and one commit."""

    def __init__(self, name: str, folder: Path) -> None:
        import zmq  # noqa: PLC0415  # only who measures it needs it

        self._name = name
        self._watch = Stopwatch()
        self._cpu = 0.0
        with ExitStack() as stack:
            self._side = Raw(folder, "full")
            stack.callback(self._side.close)
            # The path of a socket is short.
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
            address = f"ipc://{place / secrets.token_hex(4)}"
            self._echo = subprocess.Popen(
                [sys.executable, "-c", _ECHO, address], stdout=subprocess.PIPE
            )
            stack.callback(self._end_echo)
            assert self._echo.stdout is not None  # noqa: S101  # it is a pipe
            self._echo.stdout.readline()
            context = stack.enter_context(zmq.Context())
            self._socket = stack.enter_context(context.socket(zmq.REQ))
            self._socket.setsockopt(zmq.LINGER, 0)
            self._socket.setsockopt(zmq.RCVTIMEO, _PATIENCE_MS)
            self._socket.connect(address)
            self._once()
            self._stack = stack.pop_all()

    def _once(self) -> None:
        self._socket.send(BODY)
        self._socket.recv()

    def begin(self) -> None:
        """Fill the log once, and empty it."""
        self._side.fill(1000)
        self._side.checkpoint()

    def run_for(self, seconds: float) -> None:
        """Ask and commit, with a rest in between, for a time."""
        end, cpu = perf_counter() + seconds, process_time()
        while perf_counter() < end:
            sleep(_REST_S)
            begun = perf_counter()
            self._once()
            self._side.put()
            self._watch.taken.append(perf_counter() - begun)
        self._cpu += process_time() - cpu

    def end(self) -> dict[str, Figure]:
        """Return the times."""
        self._watch.add(sum(self._watch.taken), self._cpu)
        return {self._name: self._watch.figure(1)}

    def _end_echo(self) -> None:
        self._echo.kill()
        self._echo.wait(_END_S)
        assert self._echo.stdout is not None  # noqa: S101  # it is a pipe
        self._echo.stdout.close()

    def close(self) -> None:
        """End the other process, close the database."""
        self._stack.close()


class Producers:
    """Processes that put through the host of another one, each with so many puts under way."""

    def __init__(self, name: str, folder: Path, processes: int, window: int) -> None:
        self._name = name
        self._watch = Stopwatch()
        self._messages = 0
        self._programs: Sequence[Program] = ()
        with ExitStack() as stack:
            self._app = application(folder, "")
            stack.callback(self._app.close)
            path = str(folder / "queue.db")
            started = []
            for _ in range(processes):
                program = Program("bench_process_producer.py", path, str(window))
                stack.callback(program.close)
                started.append(program)
            self._programs = [program.met() for program in started]
            self._stack = stack.pop_all()

    def begin(self) -> None:
        """Let them put for a moment, and empty the log."""
        self._run(_WARM_S, Stopwatch())
        self._app.ask("checkpoint")

    def run_for(self, seconds: float) -> None:
        """Let all of them put for a time."""
        self._messages += self._run(seconds, self._watch)

    def _run(self, seconds: float, watch: Stopwatch) -> int:
        for program in self._programs:
            program.tell(seconds)
        answers = [program.answer() for program in self._programs]
        watch.add(max(took for _, took, _, _ in answers), sum(cpu for _, _, cpu, _ in answers))
        for _, _, _, taken in answers:
            watch.taken.extend(taken)
        return sum(count for count, _, _, _ in answers)

    def end(self) -> dict[str, Figure]:
        """Pay for the checkpoint that is due; the CPU is that of the producers alone."""
        self._watch.add(self._app.ask("checkpoint"), 0.0)
        return {self._name: self._watch.figure_of(self._messages)}

    def close(self) -> None:
        """End all processes."""
        self._stack.close()
