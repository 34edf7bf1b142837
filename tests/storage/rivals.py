"""Other processes that want the same database, for tests of what is around its file.

Knows: how a program is started, spoken with, killed and reaped.
Does not know: what any test expects of it.
"""

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import embedq
from tests.processes import line_of

ROOT = str(Path(embedq.__file__).parents[1])

# What a program that begins with OWNER can say. sys.argv[1] is the path of the database.
OWNER = """
import json, os, sys
from embedq.clock import SystemClock
from embedq.errors import EmbedqError, ForkedBroker
from embedq.storage.ownership import OwnerLock
from embedq.storage.placement import prepare

def line(**facts):
    print(json.dumps(facts), flush=True)

def attempt():
    lock = OwnerLock(prepare(sys.argv[1]), SystemClock())
    try:
        lock.acquire()
    except EmbedqError as error:
        line(code=error.code, text=str(error), **error.details)
    else:
        line(code="owner", pid=os.getpid(), previous=lock.previous)
    return lock

def in_child(work=lambda: None):
    pid = os.fork()
    if pid == 0:
        work()
        sys.exit(0)  # through the whole end of the interpreter, not os._exit
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""


@contextmanager
def program(code, *arguments):
    """Run `code` in another process; it and its children end with this block at the latest."""
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": ROOT},
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            # The whole group: a child that hangs after a fork would outlive its parent. Not once
            # the leader is reaped: then the number may be another group's.
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)


def say(process):
    """Wait for the next line of a program, which is JSON."""
    line = line_of(process)
    if not line:
        raise AssertionError(f"the program ended: {process.stderr.read()}")
    return json.loads(line)


def run(code, *arguments):
    """Run `code` to its end; return the last thing it said, and its errors."""
    with program(code, *arguments) as process:
        out, errors = process.communicate(timeout=120)
    if process.returncode != 0:
        raise AssertionError(f"the program failed with {process.returncode}: {errors}")
    return json.loads(out.splitlines()[-1]), errors


def rival(path):
    """What another process is told that wants to own `path` now."""
    return run(OWNER + "attempt()", path)[0]
