"""A process without a free descriptor lives on, and serves others once there are some again."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from embedq import Broker
from tests.brim import BRIM
from tests.processes import kill, line_of

PROGRAM = (
    BRIM
    + """
import sys
from embedq import Broker, EmbedqError

def outcome(call):
    try:
        return str(call())
    except (EmbedqError, OSError) as error:
        return f"{type(error).__name__}: {error}".replace(chr(10), " ")

def say(*words):
    print(*words, flush=True)
"""
)

HOST = (
    PROGRAM
    + """
broker = Broker(sys.argv[1])
queue = broker.queue("q")
queue.put(b"1")
broker.backing.wait_until_served()
taken = brim()
broker.desk.store._readers.drop_idle()
taken += brim()
say("full")
say(outcome(lambda: len(queue.peek(10))))
say(outcome(lambda: queue.put(b"2").seq))
sys.stdin.readline()
for each in taken:
    os.close(each)
say(outcome(lambda: len(queue.peek(10))))
sys.stdin.readline()
broker.stop()
"""
)

OPENING = (
    PROGRAM
    + """
for spare in range(30):
    taken = brim()
    for each in taken[:spare]:
        os.close(each)
    broker = Broker(sys.argv[1], role=sys.argv[2])
    outcome(lambda: broker.queue("q").put(b"x"))
    outcome(broker.stop)
    for each in taken[spare:]:
        os.close(each)
broker = Broker(sys.argv[1], role=sys.argv[2])
say(outcome(lambda: broker.queue("q").put(b"x").seq > 0))
broker.stop()
"""
)


@contextmanager
def started(program: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", program, *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            kill(process)


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.01)


def test_a_host_without_a_descriptor_lives_on_and_lets_others_in_again(tmp_path: Path) -> None:
    path = tmp_path / "q.db"
    with started(HOST, str(path)) as host:
        assert host.stdin is not None
        assert line_of(host) == "full\n"
        assert line_of(host).startswith("StoreBusy: ")
        assert line_of(host) == "2\n"
        sockets = tmp_path / "q.db.ipc"
        until(lambda: not list(sockets.glob("*.sock")))
        host.stdin.write("go on\n")
        host.stdin.flush()
        assert line_of(host) == "2\n", "the store has stopped"
        until(lambda: list(sockets.glob("*.sock")))
        client = Broker(path, role="client")
        assert client.queue("q").put(b"3").seq == 3
        client.stop()
        host.stdin.write("end\n")
        host.stdin.flush()
        assert host.wait(60) == 0


@pytest.mark.parametrize("role", ["host", "client"])
def test_who_opens_with_few_descriptors_left_is_told_and_lives_on(
    tmp_path: Path, role: str
) -> None:
    path = str(tmp_path / "q.db")
    with Broker(path) as broker:
        broker.queue("q").stats()
        if role == "host":
            broker.stop()
        with started(OPENING, path, role) as process:
            said, trouble = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, "True\n"), trouble
    assert "Traceback" not in trouble
