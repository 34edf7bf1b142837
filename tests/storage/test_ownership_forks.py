"""The lock of an owner that forks belongs to the parent alone.

Knows: real forks in programs of their own.
Does not know: SQL, what else a child inherits.
"""

import json

import pytest

from embedq.storage.placement import prepare
from tests.storage.rivals import OWNER, program, rival, run, say


@pytest.fixture
def placed(tmp_path):
    return prepare(tmp_path / "shop.db")


_CHILD_USES = """
lock = attempt()
descriptor = lock._fd
def child():
    assert not lock.held
    try:
        os.fstat(descriptor)
    except OSError:
        pass
    else:
        sys.exit("the child keeps the parent's descriptor")
    for use in (lock.mark, lock.confirm):
        try:
            use()
        except ForkedBroker as error:
            assert str(os.getppid()) in str(error)
        else:
            sys.exit("the child may use the lock")
    lock.release()
    lock.release(clean=False)
assert in_child(child) == 0
lock.confirm()
line(held=lock.held)
sys.stdin.read()
"""


def test_a_forked_child_neither_owns_nor_frees_the_store(placed):
    with program(OWNER + _CHILD_USES, placed.path) as owner:
        assert say(owner)["code"] == "owner"
        assert say(owner) == {"held": True}
        told = rival(placed.path)
        assert (told["code"], told["pid"]) == ("store_in_use", owner.pid)
    assert not json.loads(placed.lock_path.read_text())["clean"]


_CHILD_WANTS = """
lock = attempt()
assert in_child(attempt) == 0
"""


def test_a_forked_child_that_opens_the_store_is_told_that_its_parent_owns_it(placed):
    with program(OWNER + _CHILD_WANTS, placed.path) as owner:
        assert say(owner)["code"] == "owner"
        told = say(owner)
        assert (told["code"], told["pid"]) == ("store_in_use", owner.pid)


# The child opens the store after its parent has given it up: whatever the child still has of the
# parent's must not drop the child's own lock, also when that is destroyed.
_CHILD_INHERITS = """
import gc
lock = attempt()
ask, told = os.pipe()
if os.fork() == 0:
    os.read(ask, 1)
    mine = attempt()
    del lock
    gc.collect()
    mine.confirm()
    line(child=mine.held)
    sys.stdin.read()
    sys.exit(0)
lock.release()
os.write(told, b"x")
os.wait()
"""


def test_a_forked_child_can_become_the_owner_after_its_parent(placed):
    with program(OWNER + _CHILD_INHERITS, placed.path) as parent:
        assert say(parent)["code"] == "owner"
        told = say(parent)
        assert told["code"] == "owner"
        assert told["previous"][0] is True
        assert say(parent) == {"child": True}
        refused = rival(placed.path)
        assert (refused["code"], refused["pid"]) == ("store_in_use", told["pid"])
        parent.stdin.close()
        parent.wait(60)


_LOCKED_WHILE_FORKING = """
import threading
from embedq.storage import ownership
entered, leave = threading.Event(), threading.Event()
def hold():
    with ownership._owned.lock:
        entered.set()
        leave.wait()
thread = threading.Thread(target=hold)
thread.start()
entered.wait()
assert in_child(attempt) == 0
leave.set()
thread.join()
"""


def test_a_fork_in_the_middle_of_an_acquisition_does_not_hang_the_child(placed):
    # From Python 3.12 on forking with threads warns; that applications do it is the point here.
    body = "import warnings; warnings.simplefilter('ignore')\n" + _LOCKED_WHILE_FORKING
    # The registry learns of forks with the first acquisition.
    assert run(OWNER + "attempt().release()\n" + body, placed.path)[0]["code"] == "owner"
