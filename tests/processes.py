"""Processes that tests start: none is waited for without a bound, none outlives what started it.

Knows: how a program ends with all that it has started, how long a test waits for what it says.
Does not know: which programs there are, what they say.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, AnyStr

#: Nothing that a test waits for takes longer, on however busy a machine.
PATIENCE_S = 60.0


def kill(process: subprocess.Popen[Any]) -> None:
    """Kill a process that has not been waited for; if it leads a group, all of that."""
    with suppress(ProcessLookupError):
        if process.returncode is None and os.getpgid(process.pid) == process.pid:
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()


@contextmanager
def patience(
    process: subprocess.Popen[Any], seconds: float = PATIENCE_S, told: Sequence[object] = ()
) -> Iterator[None]:
    """Kill the process when the block takes longer, so that whatever waits for it comes back.

    Raises AssertionError then, with what has been `told` so far.
    """
    over = threading.Event()

    def end() -> None:
        over.set()
        kill(process)

    watch = threading.Timer(seconds, end)
    watch.daemon = True
    watch.start()
    try:
        yield
    finally:
        watch.cancel()
        watch.join()
        if over.is_set():
            raise AssertionError(f"{process.args!r} took more than {seconds} s; said: {told!r}")


def line_of(process: subprocess.Popen[AnyStr], seconds: float = PATIENCE_S) -> AnyStr:
    """Return the next line that a process prints; an empty one if it ends."""
    assert process.stdout is not None
    with patience(process, seconds):
        return process.stdout.readline()


def lines_until(
    process: subprocess.Popen[str], text: str, seconds: float = PATIENCE_S
) -> list[str]:
    """Return the lines that a process prints up to one that contains `text`, without their ends.

    Raises AssertionError with what came, if none does.
    """
    assert process.stdout is not None
    lines: list[str] = []
    with patience(process, seconds, lines):
        for line in process.stdout:
            lines.append(line.rstrip("\n"))
            if text in line:
                return lines
    raise AssertionError(lines)


def run(
    command: Sequence[str | os.PathLike[str]],
    *,
    timeout: float = PATIENCE_S,
    check: bool = False,
    capture_output: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """Do what `subprocess.run` does; what the command has started is killed with it.

    Raises TimeoutExpired, with what was printed, after `timeout` seconds. Then, as for any other
    exception, nothing of the command runs on.
    """
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    said = options.pop("input", None)
    if said is not None:
        options["stdin"] = subprocess.PIPE
    with subprocess.Popen(command, start_new_session=True, **options) as process:
        try:
            out, err = process.communicate(said, timeout)
        except BaseException as error:
            kill(process)
            out, err = process.communicate()
            error.add_note(f"it printed {out!r} and {err!r}")
            raise
    done = subprocess.CompletedProcess(process.args, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done
