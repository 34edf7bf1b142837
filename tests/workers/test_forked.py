"""Handlers that fork: the child is the user's, the broker stays the parent's."""

import signal
import sys
from pathlib import Path

import pytest

from tests import processes

pytestmark = pytest.mark.slow

PROGRAM = """
import os, signal, sys, threading, warnings
from embedq import Broker, EmbedqError, RetryPolicy

warnings.simplefilter("ignore")  # newer Pythons warn of every fork beside threads
broker = Broker(sys.argv[1], grace="10s")
orders = broker.queue("orders", str, retry=RetryPolicy(max_attempts=1))
told, tell = os.pipe()

def in_child(what, delivery):
    if what == "exits":
        sys.exit(5)
    if what == "raises":
        raise LookupError("in the child")
    if what == "says why":
        sys.exit("why")
    if what == "uses":
        uses = [lambda: orders.put("x"), delivery.ack, orders.stats, broker.start, broker.stop]
        for use in uses:
            try:
                use()
            except EmbedqError as error:
                print(type(error).__name__, flush=True)
    if what == "terminated":
        os.write(tell, b"x")
        threading.Event().wait(20)
    if what == "leaves":
        with broker:
            pass

def parent(child, what):
    if what == "terminated":
        os.read(told, 1)  # before that Python may lose a signal to a new child
        os.kill(child, signal.SIGTERM)
    _, status = os.waitpid(child, 0)
    print(what, os.waitstatus_to_exitcode(status), flush=True)

def handle(what, delivery):
    child = os.fork()
    if child:
        parent(child, what)
        broker.stop()
    else:
        in_child(what, delivery)

async def ahandle(what, delivery):
    handle(what, delivery)

orders.consumer(ahandle if sys.argv[2] == "async" else handle)
orders.put(sys.argv[3])
report = broker.run()
print(report.released, report.stuck)
broker.start()
print(orders.stats().stored, orders.stats().dead)
"""


@pytest.mark.parametrize("kind", ["thread", "async"])
@pytest.mark.parametrize(
    ("what", "code", "said"),
    [
        ("returns", 0, ""),
        ("exits", 5, ""),
        ("says why", 1, "why"),
        ("raises", 1, "LookupError: in the child"),
        ("uses", 0, "ForkedBroker\n" * 5),
        ("terminated", -signal.SIGTERM, ""),
        ("leaves", 1, "ForkedBroker"),
    ],
)
def test_a_child_ends_as_a_program_would_and_the_parent_goes_on(
    tmp_path: Path, what: str, code: int, said: str, kind: str
) -> None:
    path = tmp_path / "q.db"
    done = processes.run(
        [sys.executable, "-c", PROGRAM, str(path), kind, what],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    printed = done.stdout + done.stderr
    assert f"\n{what} {code}\n" in f"\n{done.stdout}", printed
    assert said in printed
    assert done.stdout.endswith("0 0\n0 0\n"), printed
    assert done.returncode == 0


MAIN = """
import os, sys, threading, time, warnings
from embedq import Broker

warnings.simplefilter("ignore")
broker = Broker(sys.argv[1])
orders = broker.queue("orders", str)
seen = []
orders.consumer(seen.append)
with broker:
    child = os.fork()
    if not child:
        sys.exit(4)  # leaves the block, in the child
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status))
    orders.put("after")
    for _ in range(4000):
        if seen:
            break
        threading.Event().wait(0.005)
    print(seen)
"""


def test_a_child_that_leaves_the_block_of_its_parent_neither_waits_nor_closes(tmp_path: Path):
    done = processes.run(
        [sys.executable, "-c", MAIN, str(tmp_path / "q.db")],
        capture_output=True,
        text=True,
        check=False,
        timeout=25,  # less than the grace of a drain that waits for the parent's threads
    )
    assert (done.stdout, done.stderr) == ("4\n['after']\n", "")


def test_a_child_in_which_even_the_output_fails_ends_all_the_same(tmp_path: Path):
    program = (
        "import os, sys\nfrom embedq.workers.forked import end_child\n"
        "if not os.fork():\n"
        "    sys.stdout.close()\n    end_child(None)\n"
        "print(os.waitstatus_to_exitcode(os.wait()[1]))\n"
    )
    done = processes.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=25
    )
    assert done.stdout == "1\n"
