"""The host of an SSPQ listener is killed under load: nothing is lost or skipped, little repeated.

Nothing on this wire is answered, so what must hold is seen from both ends: the messages of one
connection are stored in their order, without a gap; what a receiver was given and did not confirm
comes again; what it confirmed does not, but for the last ones, whose confirmation may not have
been stored.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from embedq import Broker
from tests.interop.host import hosting
from tests.interop.sspq_client import Sspq

URL = "sspq://127.0.0.1:0?queue=q"
SENDERS, RECEIVERS = 3, 2
#: Confirmations of one connection that a kill may swallow: one under way and the one behind it.
LATE = 2


class Load:
    """How much is under way, and for how long."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.room = threading.Semaphore(30)
        self.enough = threading.Event()
        self.over = threading.Event()


class Receiver:
    """Receives and confirms for ever, as the helper program of the original does."""

    def __init__(self, client: Sspq) -> None:
        self.client = client
        self.confirmed: list[bytes] = []
        self.held: bytes | None = None
        #: Its confirmation is under way: it may come again or not.
        self.unsure: bytes | None = None

    def hold(self, load: Load) -> None:
        """Receive one message and never confirm it."""
        with suppress(OSError, EOFError):
            self.held = self.client.receive()
            load.over.wait(60)

    def run(self, load: Load) -> None:
        with suppress(OSError, EOFError):
            self.held = self.client.receive()
            while True:
                confirmed, self.held = self.held, None
                self.unsure = confirmed
                self.held = self.client.confirm_and_receive()
                self.confirmed.append(confirmed)
                self.unsure = None
                load.room.release()
                if len(self.confirmed) >= load.count:
                    load.enough.set()


def send(client: Sspq, number: int, load: Load) -> None:
    position = 0
    with suppress(OSError):
        while not load.over.is_set():
            if load.room.acquire(timeout=0.1):
                client.send(b"%d-%d" % (number, position), 255)
                position += 1


@contextmanager
def closing_all(clients: Iterable[Sspq]) -> Iterator[None]:
    try:
        yield
    finally:
        for client in clients:
            client.close()


def killed_under_load(folder: Path, count: int, planted: str) -> list[Receiver]:
    """Let senders and receivers work until the host is killed; return what receivers have seen."""
    with hosting(folder / "q.db", URL, planted=planted) as host:
        (address,) = host.addresses
        clients = [Sspq(address) for _ in range(SENDERS + RECEIVERS + 1)]
        with closing_all(clients):
            holder, *receivers = [Receiver(client) for client in clients[SENDERS:]]
            load = Load(count)
            threads = [
                threading.Thread(target=send, args=(client, number, load))
                for number, client in enumerate(clients[:SENDERS])
            ]
            threads += [threading.Thread(target=each.run, args=(load,)) for each in receivers]
            threads += [threading.Thread(target=holder.hold, args=(load,))]
            for thread in threads:
                thread.start()
            enough = load.enough.wait(20)
            host.kill()
            load.over.set()
            assert enough
            for thread in threads:
                thread.join(60)
    return [holder, *receivers]


def left_over(folder: Path) -> list[bytes]:
    """Return what the next host has left to deliver."""
    with Broker(folder / "q.db") as broker:
        return [message.body for message in broker.queue("q", bytes).peek(10_000)]


def judge(folder: Path, count: int = 60, planted: str = "") -> list[str]:
    """Return what is wrong after a kill."""
    receivers = killed_under_load(folder, count, planted)
    again = Counter(left_over(folder))
    wrong = [f"{body!r} is there twice" for body, times in again.items() if times > 1]
    seen = set(again)
    for receiver in receivers:
        if receiver.held is not None and receiver.held not in again:
            wrong.append(f"{receiver.held!r} was not confirmed, and is lost")
        safe = receiver.confirmed[:-LATE]
        wrong += [f"{body!r} was confirmed, and comes again" for body in safe if body in again]
        seen |= {*receiver.confirmed}
        if receiver.unsure is not None:
            seen.add(receiver.unsure)
    for number in range(SENDERS):
        mine = sorted(
            int(body.split(b"-")[1]) for body in seen if body.startswith(b"%d-" % number)
        )
        if mine != list(range(len(mine))):
            wrong.append(f"messages of sender {number} are missing")
    return wrong


def test_a_kill_loses_no_message_and_repeats_no_confirmed_one(tmp_path: Path) -> None:
    for attempt in range(2):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        assert judge(folder) == []


PLANTED = {
    "a message is skipped": (
        """
from embedq_transports.sspq.session import SspqSession
def skip(session, packet, put=SspqSession._put):
    if not packet.payload.endswith(b"7"):
        put(session, packet)
SspqSession._put = skip
""",
        "are missing",
    ),
    "a confirmation is forgotten": (
        """
from embedq.net import Delivery, Released
def forget(delivery, then=None):
    delivery.settle(Released(tail=True), then)
Delivery.ack = forget
""",
        "comes again",
    ),
    "what is delivered is done": (
        """
from embedq_transports.sspq.session import SspqSession
def early(session, delivery, deliver=SspqSession._deliver):
    delivery.ack()
    deliver(session, delivery)
SspqSession._deliver = early
""",
        "is lost",
    ),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_host_that_is_wrong_is_noticed(tmp_path: Path, fault: str) -> None:
    planted, word = PLANTED[fault]

    def is_noticed(attempt: int) -> bool:
        folder = tmp_path / str(attempt)
        folder.mkdir()
        return any(word in each for each in judge(folder, planted=planted))

    # What is done too early is lost only if that was stored before the kill.
    assert any(is_noticed(attempt) for attempt in range(10)), fault
