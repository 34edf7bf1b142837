"""Record what a program writes to its files and when it says what, in one order, with strace.

Knows: how strace prints calls, also those of several threads that overlap.
Does not know: what the files mean, what the disk would have kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from tests.reliability.invariants_events import Event
from tests.reliability.killing import worker
from tests.reliability.worker import Ended, Job, Started

_TRACED = "write,pwrite64,pwritev,pwritev2,writev,fdatasync,fsync,ftruncate,unlink,unlinkat,rename"
#: Calls that would change a file in a way that is not modelled.
_UNKNOWN = frozenset({"pwritev", "pwritev2", "writev", "unlinkat", "rename"})

_decode = msgspec.json.Decoder(Event | Started | Ended).decode


class Write(NamedTuple):
    """Bytes to a file. `begin` and `end` are places in the order of everything."""

    begin: int
    end: int
    path: str
    offset: int
    data: bytes


class Truncate(NamedTuple):
    """A file cut or grown to a size."""

    begin: int
    end: int
    path: str
    size: int


class Unlink(NamedTuple):
    """A name taken from its file."""

    begin: int
    end: int
    path: str


class Sync(NamedTuple):
    """A file, or a folder with the names in it, made durable."""

    begin: int
    end: int
    path: str


class Said(NamedTuple):
    """An event that the program told its parent."""

    begin: int
    end: int
    event: Event


Step = Write | Truncate | Unlink | Sync | Said


@dataclass(frozen=True)
class Recording:
    """Everything in the order of its beginning, and the path of the database."""

    steps: list[Step]
    path: str

    @property
    def last(self) -> int:
        """The last place in the order."""
        return max(step.end for step in self.steps)


def record(job: Job, trace: Path) -> Recording:
    """Run a job of the worker under strace to its end; `trace` is for strace's output."""
    command = ["strace", "-f", "-qq", "-y", "-xx", "-s", "70000", "-o", str(trace)]
    with worker(*command, "-e", f"trace={_TRACED}", "-e", "signal=none") as program:
        _, status = program.run(job)
    if status:
        raise AssertionError(f"the recorded program ended with {status}")
    with trace.open("rb") as lines:
        steps = sorted(_steps(lines), key=lambda step: step.begin)
    trace.unlink()
    return Recording(steps, job.path)


_LINE = re.compile(rb"(\d+) +(?:<\.\.\. \w+ (resumed)>|(\w+)\()(.*)", re.DOTALL)
_CUT = b" <unfinished ...>"
_FD = re.compile(rb"(\d+)<([^>]*)>")
_FAILED = re.compile(rb"= -1 [A-Z]+")


def _steps(lines: Iterator[bytes]) -> Iterator[Step]:
    """Read strace's output: a call that others overlap is printed in two halves."""
    begun: dict[bytes, tuple[int, bytes, bytes]] = {}
    for number, line in enumerate(lines):
        found = _LINE.match(line.rstrip())
        if found is None:
            continue
        thread, resumed, name, rest = found.groups()
        if resumed:
            begin, name, arguments = begun.pop(thread)
            rest = arguments + rest
        elif rest.endswith(_CUT):
            begun[thread] = (number, name, rest.removesuffix(_CUT))
            continue
        else:
            begin = number
        if _FAILED.search(rest[-200:]):
            continue
        step = _step(begin, number, name.decode(), rest)
        if step is not None:
            yield step
    for begin, name, arguments in begun.values():
        # The program ended inside: what it wrote may be there, nothing more.
        if name == b"pwrite64":
            step = _step(begin, begin, "pwrite64", arguments)
            if step is not None:
                yield step


def _step(begin: int, end: int, name: str, rest: bytes) -> Step | None:
    if name == "unlink":
        return Unlink(begin, end, _bytes(rest.split(b'"')[1]).decode())
    target = _FD.match(rest)
    if name in _UNKNOWN or target is None:
        raise AssertionError(f"a call that is not modelled: {name}({rest[:80]!r}")
    fd, path = target[1], _bytes(target[2]).decode()
    if name in {"fdatasync", "fsync"}:
        return Sync(begin, end, path)
    if name == "ftruncate":
        return Truncate(begin, end, path, int(rest[target.end() :].strip(b", ").split(b")")[0]))
    parts = rest.split(b'"')
    data = _bytes(parts[1])
    if name == "pwrite64":
        _, _, offset = parts[2].split(b")")[0].split(b", ")
        return Write(begin, end, path, int(offset), data)
    if fd != b"1":
        return None  # standard error
    message = _decode(data)
    return None if isinstance(message, Started | Ended) else Said(begin, end, message)


def _bytes(shown: bytes) -> bytes:
    r"""Return what strace shows as \x61\x62."""
    return bytes.fromhex(shown.replace(rb"\x", b"").decode("ascii"))
