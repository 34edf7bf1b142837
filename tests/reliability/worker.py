"""The program that the fault harnesses kill: it forks a child for each job that it is told.

Knows: how a job is read, what a child does with it, where the child's events go.
Does not know: how and when a child dies, what must be true afterwards.

    python -m tests.reliability.worker

One job (JSON) comes in on each line of standard input. Standard output gets the pid of the child,
the child's events, and at last how the child ended. A child is forked instead of started because
importing costs ten times as much as the work of a job; this program itself never opens a store,
and so forks without harm.

Under `strace -e inject=…:when=N` each thread of each child begins to count anew. `pad` lets a
child make so many harmless calls of the kind that counts, so that call N is one the harness chose.
"""

from __future__ import annotations

import importlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from embedq.broker.engine import Engine
from embedq.broker.host import open_engine
from embedq.limits import LIMITS
from embedq.storage.connection import Durability
from embedq.storage.ops import Op
from embedq.storage.sqlite import SqliteStore
from embedq.storage.writer import Task
from tests.reliability.invariants_events import Answer, Call, Closed, Elapsed, Event, line_of
from tests.reliability.worker_calls import Calls
from tests.reliability.worker_mixes import mix, script

#: A file beside the database that harmless calls go to.
PAD = "pad"


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What a child does. `kind`: mix, script, or the name of one call (worker_single).

    "mixed" and "mixed drain" are whole hosts with consumers, see mixed_host.
    """

    path: str
    kind: str
    seed: str = ""
    threads: int = 1
    first: int = 1  # lowest tag and call id
    durability: Durability = "full"
    small: bool = False  # tiny bounds: many checkpoints, many loads
    steps: int = 0  # of a mix, for all threads; 0: until somebody kills it
    planted: str = ""  # a mistake that the harness must notice
    close: bool = True  # close the engine at the end
    crowd: bool = False  # every commit is handed over to the writing thread, which pads
    pad: int = 0
    probes: int = 0  # harmless calls that show whether the fault is still to come
    call: str = ""  # what the harness counts: pwrite64, fdatasync or fsync


class Started(msgspec.Struct, frozen=True, array_like=True, tag="started"):
    """The child of the newest job."""

    pid: int


class Ended(msgspec.Struct, frozen=True, array_like=True, tag="ended"):
    """How it ended: an exit code, or minus a signal."""

    status: int


class Early(Calls):
    """A planted mistake: puts are confirmed before they are committed."""

    def _make(self, call: Call, act: Callable[[], Answer]) -> Answer | None:
        if call.name != "put":
            return super()._make(call, act)
        self.note(call)
        self.note(Answer(call.id))
        return act()


def say(message: Event | Started | Ended) -> None:
    """Write one line at once; what has been written survives the writer."""
    line = line_of(message) if isinstance(message, Event) else _encode(message)
    if os.write(1, line) != len(line):
        raise OSError("a line was not written at once")


def _encode(message: Started | Ended) -> bytes:
    return msgspec.json.encode(message) + b"\n"


_CALLS: dict[str, Callable[[int], object]] = {
    "pwrite64": lambda fd: os.pwrite(fd, b"x", 0),
    "fdatasync": os.fdatasync,
    "fsync": os.fsync,
}


def pad(job: Job, calls: int) -> int:
    """Make calls that count for strace and do nothing else; stop at the one that fails.

    Returns how many were made, that one included; minus that many if it failed.
    """
    if not calls:
        return 0
    fd = os.open(Path(job.path).with_name(PAD), os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        for number in range(1, calls + 1):
            try:
                _CALLS[job.call](fd)
            except OSError:
                return -number
        return calls
    finally:
        os.close(fd)


class Padding(Task):
    """Pads in whichever thread commits it."""

    def __init__(self, job: Job, calls: int) -> None:
        super().__init__()
        self.job = job
        self.calls = calls
        self.made = 0

    def prepare(self) -> Sequence[Op]:
        """Pad; commit nothing."""
        self.made = pad(self.job, self.calls)
        return ()

    def apply(self) -> None:
        """Nothing was to be done."""


class Handing(Calls):
    """Makes every call as if others were waiting: the writing thread commits it."""

    def _make(self, call: Call, act: Callable[[], Answer]) -> Answer | None:
        self.engine.writer._crowded = True
        return super()._make(call, act)


def engine_of(job: Job) -> Engine:
    """Open the job's database."""
    limits = LIMITS
    if job.small:
        limits = replace(LIMITS, checkpoint_pages=20, load_chunk=5, head_max=8)
    if job.planted == "no-ballast":
        limits = replace(limits, ballast_bytes=0)
    engine = open_engine(job.path, durability=job.durability, limits=limits, upkeep=False)
    store = engine.store
    assert isinstance(store, SqliteStore)
    if job.planted == "sync-off":
        store.connection.execute("PRAGMA synchronous=OFF")
    elif job.planted == "go-on":
        store.stop = lambda reason: None  # type: ignore[method-assign]
    return engine


def calls_of(job: Job, engine: Engine, note: Callable[[Event], object]) -> Calls:
    """Return what makes the job's calls."""
    if job.planted == "early":
        return Early(engine, note, job.first)
    return (Handing if job.crowd else Calls)(engine, note, job.first)


def work(job: Job, note: Callable[[Event], object]) -> None:
    """Do a job from opening to closing."""
    if job.kind.startswith("mixed"):
        from tests.reliability.mixed_host import MixedHost

        MixedHost(job, note).run()
        return
    if job.kind not in {"mix", "script"}:
        from tests.reliability.worker_single import single

        single(job, note)
        return
    if not job.crowd:
        pad(job, job.pad)
    engine = engine_of(job)
    calls = calls_of(job, engine, note)
    if job.crowd:
        engine.writer._crowded = True
        engine.writer.run(Padding(job, job.pad))
    if job.kind == "script":
        script(calls)
    else:
        engine.upkeep.start()
        steps = iter(range(job.steps))
        going = (lambda: next(steps, None) is not None) if job.steps else (lambda: True)
        mix(calls, job.seed, job.threads, going)
    if job.close:
        note(Elapsed())  # closing gives back what is leased
        engine.close()
        note(Closed())
    else:
        # The end of the process closes the files, as a kill would.
        os._exit(0)


def child(job: Job) -> None:
    """Do a job in a forked child, which ends here."""
    code = 1
    try:
        say(Started(os.getpid()))  # not the parent: it may have its turn after the first events
        work(job, say)
        code = 0
    except BaseException:  # the parent reads the text, and the code says that something was wrong
        logging.getLogger("worker").exception("the job failed: %s", job)
    finally:
        os._exit(code)


def main() -> None:
    """Fork a child for each line."""
    logging.getLogger("embedq").setLevel(logging.CRITICAL)  # a store that stops is no news here
    for name in ("asyncio", "embedq.workers.crews"):
        importlib.import_module(name)  # else each child that needs it would
    decode = msgspec.json.Decoder(Job).decode
    for line in sys.stdin.buffer:
        job = decode(line)
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            child(job)
        _, status = os.waitpid(pid, 0)
        say(Ended(os.waitstatus_to_exitcode(status)))


if __name__ == "__main__":
    main()
