"""A host is killed after a commit and before its answer: what its client repeats is done once."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from embedq import Broker, Delivery, Empty, Queue, StaleLease
from embedq.ipc.remote import RemoteDesk
from embedq.storage.onlooker import Onlooker
from tests.app.test_takeover import Hosts
from tests.ipc.peer import eventually

pytestmark = pytest.mark.reliability

#: `arm KIND`: dies like a killed process instead of sending the next answer of that kind, which is
#: made after the commit. "forgetful": the planted bug, a host that knows nothing of the last one.
HOST = """
import os, signal, sys
from embedq import Broker
from embedq.ipc import frames
from embedq.ipc.door import Door
from embedq.storage import answered

deadly = [""]
send = Door.send

def sends(self, address, data):
    kinds = {type(answer).__name__ for answer in frames.decode_answers(data)}
    if deadly[0] in kinds:
        os.kill(os.getpid(), signal.SIGKILL)
    return send(self, address, data)

Door.send = sends
if sys.argv[2] == "forgetful":
    answered.decode = lambda data: {}
broker = Broker(sys.argv[1], role="host")
broker.queue("orders")
broker.backing.wait_until_served()
print("serving", flush=True)
for line in sys.stdin:
    deadly[0] = line.strip()
    print("armed", flush=True)
"""


class Scene:
    """A client in this process, and hosts that it has one after another."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self.path = path
        self._stack = stack

    def host(self, how: str = "sound") -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", HOST, str(self.path), how],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        self._stack.callback(Hosts.end, process)
        assert process.stdout is not None
        assert process.stdout.readline() == "serving\n"
        return process

    def lose(self, host: subprocess.Popen[str], answer: str, act: Callable[[], Any]) -> None:
        """Do something whose answer is lost with the host; it is committed, and nobody knows."""
        assert host.stdin is not None
        assert host.stdout is not None
        host.stdin.write(f"{answer}\n")
        host.stdin.flush()
        assert host.stdout.readline() == "armed\n"
        self._results: list[Any] = []

        def call() -> None:
            try:
                self._results.append(act())
            except StaleLease as error:
                self._results.append(error)

        self._caller = threading.Thread(target=call)
        self._caller.start()
        assert host.wait(60) == -signal.SIGKILL
        assert self._results == []

    def result(self) -> Any:
        """Wait for the call that lost its answer."""
        self._caller.join(60)
        (result,) = self._results
        return result

    def stored(self) -> list[bytes]:
        """Read what is in the file, beside any host."""
        onlooker = Onlooker(self.path)
        (queue,), _ = onlooker.catalogue()
        return [message.body for message in onlooker.range(queue.id, 0, 100)]


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    # The next host may take long to start: nothing that waits for it gives up.
    defaults = RemoteDesk.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "patience_s", None)
    with ExitStack() as stack:
        yield Scene(tmp_path / "app.db", stack)


def put_once(scene: Scene, act: Callable[[Queue[Any]], Any], answer: str, next_host: str) -> Any:
    """Lose the answer to a put, let the next host be asked again; returns what the put gave."""
    host = scene.host()
    with Broker(scene.path, role="client") as broker:
        orders = broker.queue("orders")
        orders.put("before")
        scene.lose(host, answer, lambda: act(orders))
        committed = scene.stored()
        assert committed[0] == b"before"
        assert len(committed) > 1, "the answer was to be lost after the commit"
        scene.host(next_host)
        result = scene.result()
        orders.put("after")
    assert scene.stored() == [*committed, b"after"]
    return result


PUTS: dict[str, tuple[str, Callable[[Queue[Any]], Any]]] = {
    "put": ("Stored_", lambda orders: [orders.put("x").seq]),
    "put_many": ("Stored_", lambda orders: [each.seq for each in orders.put_many(["x", "y"])]),
    "put with options": ("Receipts", lambda orders: [orders.put("x", priority=1).seq]),
    "put_many with options": (
        "Receipts",
        lambda orders: [each.seq for each in orders.put_many(["x", "y"], headers={"a": "b"})],
    ),
}


@pytest.mark.parametrize("what", PUTS)
def test_a_put_whose_answer_is_lost_is_one_message(scene: Scene, what: str) -> None:
    answer, act = PUTS[what]
    seqs = put_once(scene, act, answer, "sound")
    onlooker = Onlooker(scene.path)
    (queue,), _ = onlooker.catalogue()
    stored = [message.seq for message in onlooker.range(queue.id, 0, 100)]
    assert stored[1:-1] == seqs  # the receipts name the messages that are there


def test_a_host_that_forgets_what_it_has_answered_is_noticed(scene: Scene) -> None:
    answer, act = PUTS["put_many"]
    with pytest.raises(AssertionError, match="x"):
        put_once(scene, act, answer, "forgetful")


ENDS: dict[str, Callable[[Delivery[Any]], Any]] = {
    "ack": lambda delivery: delivery.ack(),
    "reject": lambda delivery: delivery.reject("no"),
    "nack": lambda delivery: delivery.nack(delay="1h"),
}


@pytest.mark.parametrize("what", ENDS)
def test_a_settlement_whose_answer_is_lost_counts_once(scene: Scene, what: str) -> None:
    host = scene.host()
    with Broker(scene.path, role="client") as broker:
        orders = broker.queue("orders")
        orders.put_many(["x", "next"])
        delivery = orders.get(20)
        scene.lose(host, "Exchanged", lambda: ENDS[what](delivery))
        scene.host()
        # It may be told that its lease is stale: the settlement counted all the same.
        assert scene.result() is None or isinstance(scene.result(), StaleLease)
        with orders.get(20) as other:
            assert (other.body, other.attempt) == ("next", 1)
        with pytest.raises(Empty):
            orders.get(0)
        left = {"ack": 0, "reject": 0, "nack": 1}[what]
        eventually(lambda: orders.stats().length == left)
        assert len(orders.dead.list()) == (1 if what == "reject" else 0)
