"""The program that the fault harnesses kill: it forks a child for each job that it is told.

Knows: how a job is read, what a child does with it, where the child's events go.
Does not know: how and when a child dies, what must be true afterwards.

    python -m tests.reliability.worker

One job (JSON) comes in on each line of standard input. Standard output gets the pid of the child,
the child's events, and at last how the child ended. A child is forked instead of started because
importing costs ten times as much as the work of a job; this program itself never opens a store,
and so forks without harm.

Under `strace -e inject=…:when=N` each child begins to count anew. `pad` lets a child make so many
harmless calls of the kind that counts, so that call N is one the harness chose.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec

from embedq.broker.engine import Engine
from embedq.broker.host import open_engine
from embedq.limits import LIMITS
from embedq.storage.connection import Durability
from tests.reliability.invariants_events import Answer, Call, Closed, Event, line_of
from tests.reliability.worker_calls import Calls
from tests.reliability.worker_mixes import mix, script

#: A file beside the database that harmless calls go to.
PAD = "pad"


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What a child does. `kind`: mix, script, or the name of one call (worker_single)."""

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
    pad: int = 0
    pad_call: str = ""  # pwrite64, fdatasync or fsync


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


def pad(job: Job, calls: int) -> None:
    """Make calls that count for strace and do nothing else."""
    fd = os.open(Path(job.path).with_name(PAD), os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        for _ in range(calls):
            if job.pad_call == "pwrite64":
                os.pwrite(fd, b"x", 0)
            elif job.pad_call == "fdatasync":
                os.fdatasync(fd)
            else:
                os.fsync(fd)
    finally:
        os.close(fd)


def engine_of(job: Job) -> Engine:
    """Open the job's database."""
    limits = LIMITS
    if job.small:
        limits = replace(LIMITS, checkpoint_pages=20, load_chunk=5, head_max=8)
    engine = open_engine(job.path, durability=job.durability, limits=limits, upkeep=False)
    if job.planted == "sync-off":
        engine.store.connection.execute("PRAGMA synchronous=OFF")  # type: ignore[attr-defined]
    return engine


def work(job: Job, note: Callable[[Event], object]) -> None:
    """Do a job from opening to closing."""
    if job.kind not in {"mix", "script"}:
        from tests.reliability.worker_single import single

        single(job, note)
        return
    pad(job, job.pad)
    engine = engine_of(job)
    calls = (Early if job.planted == "early" else Calls)(engine, note, job.first)
    if job.kind == "script":
        script(calls)
    else:
        engine.upkeep.start()
        steps = iter(range(job.steps))
        going = (lambda: next(steps, None) is not None) if job.steps else (lambda: True)
        mix(calls, job.seed, job.threads, going)
    if job.close:
        engine.close()
        note(Closed())
    else:
        # The end of the process closes the files, as a kill would.
        os._exit(0)


def child(job: Job) -> None:
    """Do a job in a forked child, which ends here."""
    code = 1
    try:
        work(job, say)
        code = 0
    except BaseException:  # the parent reads the text, and the code says that something was wrong
        logging.getLogger("worker").exception("the job failed: %s", job)
    finally:
        os._exit(code)


def main() -> None:
    """Fork a child for each line."""
    logging.getLogger("embedq").setLevel(logging.ERROR)
    decode = msgspec.json.Decoder(Job).decode
    for line in sys.stdin.buffer:
        job = decode(line)
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            child(job)
        say(Started(pid))
        _, status = os.waitpid(pid, 0)
        say(Ended(os.waitstatus_to_exitcode(status)))


if __name__ == "__main__":
    main()
