"""A forked child harms neither the database nor the lock of its parent.

Knows: real forks in programs of their own, SQLite's write-ahead log.
Does not know: how the store arranges its connections.
"""

import os
import sqlite3
from contextlib import closing

import pytest

from embedq.storage import fork
from tests.storage import rivals
from tests.storage.rivals import OWNER, program, rival, say

_AWARE = """
import gc, sqlite3, threading, warnings, weakref
from embedq.storage import fork

class Aware:
    def __init__(self, does=lambda: None):
        self.does = does
        self.calls = 0

    def forked_in_child(self):
        self.calls += 1
        self.does()
"""


def run(body, *arguments):
    return rivals.run(OWNER + _AWARE + body, *arguments)


# ------------------------------------------------------------------------------ telling


def test_registered_objects_are_told_once_in_the_child_and_never_in_the_parent():
    said, _ = run("""
one, two = Aware(), Aware()
for obj in (one, two, one):
    fork.on_fork(obj)
code = in_child(lambda: sys.exit(f"{one.calls}{two.calls}" != "11"))
print(json.dumps([code, one.calls, two.calls]))
""")
    assert said == [0, 0, 0]


def test_a_child_of_a_child_is_told_too():
    said, _ = run("""
one = Aware()
fork.on_fork(one)
code = in_child(lambda: sys.exit(in_child(lambda: sys.exit(one.calls != 2))))
print(json.dumps(code))
""")
    assert said == 0


def test_registering_does_not_keep_an_object_alive():
    said, _ = run("""
one = Aware()
gone = weakref.ref(one)
fork.on_fork(one)
del one
gc.collect()
print(json.dumps([gone() is None, in_child()]))
""")
    assert said == [True, 0]


def test_an_object_that_fails_does_not_keep_the_others_from_being_told():
    said, errors = run("""
def fail():
    raise RuntimeError("on purpose")
first, last = Aware(fail), Aware()
fork.on_fork(first)
fork.on_fork(last)
print(json.dumps(in_child(lambda: sys.exit(last.calls != 1))))
""")
    assert said == 0
    assert "on purpose" in errors  # and the failure is not lost


def test_a_forgotten_identity_is_not_removed_for_its_new_owner():
    class Aware:
        def forked_in_child(self):
            """Nothing to do."""

    obj = Aware()
    fork.on_fork(obj)
    stale = fork._registered[id(obj)]
    fork.on_fork(obj)
    fork._forget(id(obj), stale)
    assert fork._registered[id(obj)]() is obj
    key = id(obj)
    del obj
    assert key not in fork._registered


def test_a_fork_while_another_thread_registers_does_not_hang_the_child():
    said, _ = run("""
warnings.simplefilter("ignore")  # Python 3.12 warns of forks with threads: they are the point
fork.on_fork(Aware())
fork._installing.acquire()
code = in_child(lambda: fork.on_fork(Aware()))
print(json.dumps(code))
""")
    assert said == 0


def test_where_there_is_no_fork_there_is_nothing_to_install(monkeypatch):
    monkeypatch.delattr(os, "register_at_fork")
    monkeypatch.setattr(fork, "_installed", False)
    fork.on_fork(fork_aware := type("Aware", (), {"forked_in_child": lambda self: None})())
    assert not fork._installed
    assert fork._registered[id(fork_aware)]() is fork_aware


# ------------------------------------------------------------------------- immortality


@pytest.mark.parametrize("immortal", [True, False])
def test_an_immortal_object_outlives_its_last_name_and_the_interpreter(tmp_path, immortal):
    trace = tmp_path / "trace"
    trace.touch()
    run(
        """
class Dying:
    def __del__(self, path=sys.argv[1], write=os.write, open=os.open, flags=os.O_WRONLY):
        write(open(path, flags), b"destroyed")
obj = Dying()
obj.itself = obj
if sys.argv[2] == "True":
    fork.immortalise(obj)
print(json.dumps(None))
""",
        trace,
        immortal,
    )
    assert trace.read_text() == ("" if immortal else "destroyed")


# The parent forks in the middle of a transaction that has spilled into the write-ahead log, goes
# on, and has spilled the next transaction when the child ends. A child that closes its copy of
# the connection rolls back in the memory that both share: it wipes the index of the log.
_PARENT_WRITES = """
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
execute = connection.execute
execute("PRAGMA journal_mode=wal")
execute("PRAGMA wal_autocheckpoint=0")
execute("PRAGMA cache_size=5")
execute("CREATE TABLE msg (seq INTEGER PRIMARY KEY, body BLOB)")

def write(letter):
    execute("BEGIN")
    for seq in range(200):
        execute("INSERT OR REPLACE INTO msg VALUES (?, ?)", (seq, letter * 2000))

if sys.argv[2] == "immortal":
    guard = Aware(lambda: fork.immortalise(connection))
    fork.on_fork(guard)

write("a")
end, tell = os.pipe()
pid = os.fork()
if pid == 0:
    os.close(tell)
    os.read(end, 1)
    sys.exit(0)  # the whole end of the interpreter, which destroys what it can
execute("COMMIT")
write("b")
os.write(tell, b"x")
assert os.waitpid(pid, 0)[1] == 0, "the child failed"
try:
    seen = execute("SELECT count(*) FROM msg WHERE substr(body, 1, 1) = 'b'").fetchone()[0]
    execute("COMMIT")
    write("c")
    execute("COMMIT")
    execute("PRAGMA wal_checkpoint(TRUNCATE)")
    intact = execute("PRAGMA integrity_check").fetchone()[0]
except sqlite3.DatabaseError as error:
    print(json.dumps([str(error), 0]))
else:
    print(json.dumps([intact, seen]))
"""


def test_a_child_that_ends_normally_leaves_the_write_ahead_log_of_its_parent_alone(tmp_path):
    said, _ = run(_PARENT_WRITES, tmp_path / "shop.db", "immortal")
    assert said == ["ok", 200]
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        counted = connection.execute("SELECT count(*), min(substr(body, 1, 1)) FROM msg")
        assert counted.fetchone() == (200, "c")


def test_the_harness_notices_a_child_that_closes_the_connection(tmp_path):
    said, _ = run(_PARENT_WRITES, tmp_path / "shop.db", "planted bug")
    assert said != ["ok", 200]


# ------------------------------------------------------ the lock and the database together

_HOST = """
lock = attempt()
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA journal_mode=wal")
connection.execute("CREATE TABLE msg (seq INTEGER PRIMARY KEY)")
guard = Aware(lambda: fork.immortalise(connection))
fork.on_fork(guard)

def put(count):
    for _ in range(count):
        connection.execute("INSERT INTO msg DEFAULT VALUES")

put(10)
codes = [in_child(lock.release) for _ in range(3)]
if sys.argv[2] == "planted bug":
    os.close(os.open(lock._placement.lock_path, os.O_RDONLY))
line(children=codes)
sys.stdin.readline()
put(10)
intact = connection.execute("PRAGMA integrity_check").fetchone()[0]
count = connection.execute("SELECT count(*) FROM msg").fetchone()[0]
connection.close()
lock.release()
line(intact=intact, count=count)
"""


@pytest.mark.parametrize("bug", ["no bug", "planted bug"])
def test_after_its_children_ended_the_parent_still_owns_and_writes_the_store(tmp_path, bug):
    path = tmp_path / "shop.db"
    with program(OWNER + _AWARE + _HOST, path, bug) as host:
        assert say(host)["code"] == "owner"
        assert say(host) == {"children": [0, 0, 0]}
        told = rival(path)
        if bug == "planted bug":  # a lost lock: the rival is how it shows
            assert told["code"] == "owner"
            return
        assert (told["code"], told["pid"]) == ("store_in_use", host.pid)
        host.stdin.write("go on\n")
        host.stdin.flush()
        assert say(host) == {"intact": "ok", "count": 20}
    assert rival(path)["previous"][0] is True
