"""The host is killed while clients of every protocol put and consume at once: nothing is lost.

What a protocol confirms is confirmed for good. Where it confirms nothing, messages of one
connection are stored in their order, so that one that is there vouches for those before it. Each
of them was had by a consumer, or is there afterwards. EMBEDQ_TEST_LONG=1 makes more kills.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from embedq import Broker
from tests.interop.host import hosting
from tests.interop.mmqp_client import Mack, Poller, messages
from tests.interop.phpmq_client import Died, PhpmqClient
from tests.interop.speakers import CHANNEL, CONTENT, PATIENCE_S, QUEUE
from tests.interop.sspq_client import Sspq
from tests.interop.tmq_client import Died as TmqDied, TmqClient

KILLS = 20 if os.environ.get("EMBEDQ_TEST_LONG") else 1
#: What every producer has put, and every consumer has had, before the kill.
ENOUGH = 20
#: Of each producer: all of them can be looked at afterwards.
MOST = 2_000
#: Messages that a kill may lose: an answer of MMQP that had left, and that its client never read.
IN_THE_KERNEL = 1
URLS = (
    f"sspq://127.0.0.1:0?queue={QUEUE}",
    "phpmq://127.0.0.1:0?receipts=1",
    "mmqp://127.0.0.1:0?create=1",
    "tmq://127.0.0.1:0?acknowledge=1&deliveries=stored&window=1",
)
GONE = (OSError, EOFError, Died, TmqDied, AssertionError)


class Load:
    """Everything that is under way, and what is known of it."""

    def __init__(self) -> None:
        self.over = threading.Event()
        #: Puts that were confirmed; all that were sent, by connection and in order.
        self.confirmed: set[bytes] = set()
        self.sent: dict[str, list[bytes]] = {}
        #: What consumers were given.
        self.had: set[bytes] = set()
        self.busy: dict[str, int] = {}
        self._changed = threading.Condition()

    def turned(self, who: str) -> None:
        """Somebody has done one more of what it does."""
        with self._changed:
            self.busy[who] = self.busy.get(who, 0) + 1
            self._changed.notify()

    def wait(self, workers: Sequence[str]) -> bool:
        """Wait until everybody has done enough."""

        def enough() -> bool:
            return all(self.busy.get(who, 0) >= ENOUGH for who in workers)

        with self._changed:
            return self._changed.wait_for(enough, 60)


Worker = Callable[[Any, str, Load], None]


def bodies(load: Load, who: str) -> Iterator[bytes]:
    """What a producer puts: each is known as sent before it is."""
    sent = load.sent.setdefault(who, [])
    for number in range(MOST):
        if load.over.is_set():
            return
        body = b"%s-%d" % (who.encode(), number)
        sent.append(body)
        yield body
        load.turned(who)


def put_sspq(address: Any, who: str, load: Load) -> None:
    client = Sspq(address)
    with suppress(*GONE):
        for body in bodies(load, who):
            client.send(body, 255)
            load.over.wait(0.002)  # nothing is answered, so nothing slows it down
    client.close()


def put_phpmq(address: Any, who: str, load: Load) -> None:
    client = PhpmqClient(address, timeout=PATIENCE_S)
    with suppress(*GONE):
        for body in bodies(load, who):
            client.publish(QUEUE.encode(), body)
            client.receipt()
            load.confirmed.add(body)
    client.close()


def put_mmqp(address: Any, who: str, load: Load) -> None:
    with suppress(*GONE):
        for body in bodies(load, who):
            assert Mack(address).send(QUEUE, body.decode(), "main") == ""
            load.confirmed.add(body)


def put_tmq(address: Any, who: str, load: Load) -> None:
    client = TmqClient(address, timeout=PATIENCE_S)
    with suppress(*GONE):
        client.accepted()
        for body in bodies(load, who):
            client.put(CHANNEL, CONTENT, body)
            load.confirmed.add(body)
    client.close()


def get_sspq(address: Any, who: str, load: Load) -> None:
    client = Sspq(address)
    with suppress(*GONE):
        body = client.receive()
        while True:
            load.had.add(body)
            load.turned(who)
            body = client.confirm_and_receive()
    client.close()


def get_phpmq(address: Any, who: str, load: Load) -> None:
    client = PhpmqClient(address, timeout=PATIENCE_S)
    with suppress(*GONE):
        client.consume(QUEUE.encode(), 1)
        while True:
            message = client.receive()
            load.had.add(message.content)
            load.turned(who)
            client.ack(QUEUE.encode(), message.id)
    client.close()


def get_mmqp(address: Any, who: str, load: Load) -> None:
    poller = Poller(address)
    one = poller.head(b"P", QUEUE) + b"\x01\0"
    with suppress(*GONE):
        while not load.over.is_set():
            for found in messages(poller.ask(one)):
                load.had.add(found.body.encode())
                load.turned(who)


def get_tmq(address: Any, who: str, load: Load) -> None:
    client = TmqClient(address, timeout=PATIENCE_S)
    with suppress(*GONE):
        client.accepted()
        assert client.join(CHANNEL) == 200
        while True:
            message = client.message()
            load.had.add(message.body)
            load.turned(who)
            client.ack(message)
    client.close()


#: By the protocol of its URL: who puts, who gets.
WORKERS: dict[str, tuple[Worker, Worker]] = {
    "sspq": (put_sspq, get_sspq),
    "phpmq": (put_phpmq, get_phpmq),
    "mmqp": (put_mmqp, get_mmqp),
    "tmq": (put_tmq, get_tmq),
}


def killed_under_load(folder: Path, planted: str) -> Load:
    """Let all of them work until the host is killed; return what they have seen."""
    load = Load()
    with hosting(folder / "q.db", *URLS, planted=planted) as host:
        threads = [
            threading.Thread(target=work, args=(address, f"{name}-{role}", load))
            for (name, pair), address in zip(WORKERS.items(), host.addresses, strict=True)
            for role, work in zip(("put", "get"), pair, strict=True)
        ]
        for thread in threads:
            thread.start()
        enough = load.wait([f"{name}-{role}" for name in WORKERS for role in ("put", "get")])
        host.kill()
        load.over.set()
        for thread in threads:
            thread.join(60)
        assert enough, load.busy
    return load


def judge(folder: Path, planted: str = "") -> list[str]:
    """Return what is wrong after a kill."""
    load = killed_under_load(folder, planted)
    with Broker(folder / "q.db") as broker:
        queue = broker.queue(QUEUE, bytes)
        stored = Counter(message.body for message in queue.peek(len(WORKERS) * MOST))
        dead = queue.stats().dead
    wrong = [f"{body!r} is there twice" for body, times in stored.items() if times > 1]
    if dead:
        wrong.append(f"{dead} are dead")
    seen = load.had | stored.keys()
    every = {body for sent in load.sent.values() for body in sent}
    wrong += [f"{body!r} was never sent" for body in seen - every]
    lost = load.confirmed - seen
    for sent in load.sent.values():
        last = max((at for at, body in enumerate(sent) if body in seen), default=-1)
        lost |= set(sent[:last]) - seen
    if len(lost) > IN_THE_KERNEL:
        wrong.append(f"{len(lost)} messages are lost: {sorted(lost)[:5]}")
    return wrong


def test_a_kill_under_the_load_of_all_protocols_loses_nothing_confirmed(tmp_path: Path) -> None:
    for attempt in range(KILLS):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        assert judge(folder) == []


# Receipts of PHPMQ come long before the commits.
HASTY = """
from embedq_transports.phpmq.session import PhpmqSession
from embedq_transports.phpmq.wire import Receipt
def hasty(session, event, publish=PhpmqSession._publish):
    session._send(Receipt(event.queue, b"0" * 32))
    session._connection.site.later(60, lambda: publish(session, event))
PhpmqSession._publish = hasty
"""


def test_a_host_that_confirms_before_the_commit_is_noticed(tmp_path: Path) -> None:
    assert any("are lost" in each for each in judge(tmp_path, planted=HASTY))
