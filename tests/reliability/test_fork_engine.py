"""A forked child that outlives its host can neither use, block nor damage what it inherited.

Knows: programs that fork after they became a host.
Does not know: how an engine learns of a fork.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing

import pytest

from embedq.broker.host import open_engine
from tests.processes import line_of
from tests.storage.rivals import program, run, say

pytestmark = pytest.mark.reliability

_HOST = """
import json, os, sys
from embedq.broker.host import open_engine
from embedq.errors import EmbedqError, ForkedBroker
from embedq.message import draft

def line(**facts):
    print(json.dumps(facts), flush=True)

engine = open_engine(sys.argv[1], upkeep=len(sys.argv) > 2)
queue = engine.queue("orders")
group = engine.group(queue)
engine.put_many(queue, [b"x"] * 20)
held = engine.claim(group, 3)

def uses():
    yield "put", lambda: engine.put(queue, b"child")
    yield "put_many", lambda: engine.put_many(queue, [b"child"] * 5)
    yield "put_drafts", lambda: engine.put_drafts(queue, [draft(b"child", priority=1)])
    yield "claim", lambda: engine.claim(group)
    yield "ack", lambda: engine.ack(*held)
    yield "fail", lambda: engine.fail(held[0])
    yield "release", lambda: engine.release(held)
    yield "cancel", lambda: engine.cancel(queue, 10)
    yield "queue", lambda: engine.queue("new")
    yield "group", lambda: engine.group(queue, "new")
    yield "extend", lambda: engine.extend(held[0], 60)
    yield "peek", lambda: engine.peek(queue)

def told():
    codes = {}
    for name, use in uses():
        try:
            use()
            codes[name] = "done"
        except EmbedqError as error:
            codes[name] = error.code
    return codes
"""

_ASKS = """
child = os.fork()
if child == 0:
    line(codes=told())
    engine.close()
    sys.exit(0)  # through the whole end of the interpreter: everything is torn down
line(status=os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
engine.ack(*held)
engine.put(queue, b"parent")
line(stored=queue.stored)
engine.close()
"""


@pytest.mark.parametrize("upkeep", [(), ("upkeep",)], ids=["quiet", "while upkeep runs"])
def test_every_use_in_a_child_is_refused_and_the_parent_goes_on(tmp_path, upkeep):
    path = tmp_path / "q.db"
    with program(_HOST + _ASKS, path, *upkeep) as host:
        codes = say(host)["codes"]
        assert codes == dict.fromkeys(codes, "forked_broker")
        assert say(host) == {"status": 0}
        assert say(host) == {"stored": 18}
    with open_engine(path, upkeep=False) as engine:
        queue = engine.queue("orders")
        bodies = [lease.message.body for lease in engine.claim(engine.group(queue), 100)]
        assert bodies == [b"x"] * 17 + [b"parent"]


_OUTLIVES = """
child = os.fork()
if child == 0:
    sys.stdin.readline()
    codes = told()
    engine.close()
    line(codes=codes)
    sys.exit(0)
line(child=child)
os.kill(os.getpid(), 9)
"""


def test_a_child_that_outlives_its_host_does_not_keep_the_next_one_out(tmp_path):
    """The lock is free, the log belongs to the new host, and the child's end changes nothing."""
    path = tmp_path / "q.db"
    with program(_HOST + _OUTLIVES, path) as host:
        assert say(host)["child"]
        os.waitid(os.P_PID, host.pid, os.WEXITED | os.WNOWAIT)
        with open_engine(path, upkeep=False) as engine:
            queue = engine.queue("orders")
            group = engine.group(queue)
            engine.put(queue, b"new host")
            print(file=host.stdin, flush=True)  # the child wakes up beside the new host
            codes = say(host)["codes"]
            assert codes == dict.fromkeys(codes, "forked_broker")
            assert not line_of(host), "the child has ended"
            seqs = []
            while leases := engine.claim(group, 100):
                seqs += [lease.seq for lease in leases]
                engine.ack(*leases)
            assert len(set(seqs)) == len(seqs) == 21
            engine.put(queue, b"after the child")
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert database.execute("SELECT body FROM msg").fetchall() == [(b"after the child",)]


_OWN = """
from pathlib import Path
child = os.fork()
if child == 0:
    own = open_engine(Path(sys.argv[1]).with_name("own.db"), upkeep=False)
    mine = own.queue("mine")
    own.put(mine, b"child")
    line(stored=mine.stored)
    own.close()
    sys.exit(0)
os.waitpid(child, 0)
line(stored=queue.stored)
engine.close()
"""


def test_a_child_may_have_a_broker_of_its_own(tmp_path):
    with program(_HOST + _OWN, tmp_path / "q.db") as host:
        assert say(host) == {"stored": 1}
        assert say(host) == {"stored": 20}


_BUSY = """
import threading
ending = threading.Event()
def noise():
    while not ending.is_set():
        engine.put(queue, b"noise")
threads = [threading.Thread(target=noise) for _ in range(3)]
for thread in threads:
    thread.start()
statuses = []
for _ in range(20):
    child = os.fork()
    if child == 0:
        codes = set(told().values())
        os._exit(0 if codes == {"forked_broker"} else 1)
    statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
ending.set()
for thread in threads:
    thread.join()
line(statuses=statuses)
engine.close()
"""


def test_forks_in_the_middle_of_commits_are_refused_and_hang_nobody(tmp_path):
    """The locks that others held at the fork are held for ever in the child."""
    told, _ = run(_HOST + _BUSY, tmp_path / "q.db")
    assert told == {"statuses": [0] * 20}
