"""The host of a TMQ listener is killed under load: what was confirmed is there.

What was not acknowledged comes again, what was does not. A put is confirmed by the server's
Delivery. The acknowledgement of a consumer is answered by nobody, so that the last ones of each
may not have been stored.
"""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from embedq import Broker
from tests.interop.host import hosting
from tests.interop.tmq_client import Died, TmqClient

# One message at a time: what comes after it tells that its acknowledgement was stored.
URL = "tmq://127.0.0.1:0?acknowledge=1&deliveries=stored&window=1&create=1"
PRODUCERS, CONSUMERS, COUNT = 2, 2, 40
#: Acknowledgements of one consumer that a kill may swallow: one under way and the one behind it.
LATE = 2


class Load:
    """What is under way, until there was enough of it."""

    def __init__(self) -> None:
        self.room = threading.Semaphore(20)
        self.confirmed: list[bytes] = []
        self.acknowledged: dict[bytes, list[bytes]] = {}
        self.held: dict[bytes, bytes] = {}
        self.enough = threading.Event()
        self.over = threading.Event()

    def produce(self, client: TmqClient) -> None:
        with suppress(Died, OSError):
            for number in range(100_000):
                while not self.room.acquire(timeout=0.1):
                    if self.over.is_set():
                        return
                body = b"%s-%d" % (client.id, number)
                client.put("ch", 1, body)
                self.confirmed.append(body)

    def consume(self, client: TmqClient) -> None:
        mine = self.acknowledged.setdefault(client.id, [])
        with suppress(Died, OSError):
            while True:
                message = client.message()
                self.held[client.id] = message.body
                client.ack(message)
                mine.append(message.body)
                self.room.release()
                if len(mine) >= COUNT:
                    self.enough.set()


def killed_under_load(folder: Path, planted: str) -> Load:
    """Let clients work until the host is killed; return what they have seen."""
    load = Load()
    with hosting(folder / "q.db", URL, planted=planted) as host, ExitStack() as stack:
        consumers = [TmqClient(host.addresses[0], f"c{number}") for number in range(CONSUMERS)]
        producers = [TmqClient(host.addresses[0], f"p{number}") for number in range(PRODUCERS)]
        for client in (*consumers, *producers):
            stack.callback(client.close)
        for client in consumers:
            assert client.join("ch") == 200
        threads = [threading.Thread(target=load.produce, args=(each,)) for each in producers]
        threads += [threading.Thread(target=load.consume, args=(each,)) for each in consumers]
        for thread in threads:
            thread.start()
        enough = load.enough.wait(60)
        host.kill()
        load.over.set()
        for thread in threads:
            thread.join(60)
        assert enough
    return load


def judge(folder: Path, planted: str = "") -> list[str]:
    """Return what is wrong after a kill."""
    load = killed_under_load(folder, planted)
    with Broker(folder / "q.db") as broker:
        left = Counter(each.body for each in broker.queue("ch/1", bytes).peek(10_000))
    wrong = [f"{body!r} is there twice" for body, times in left.items() if times > 1]
    acknowledged = {body for bodies in load.acknowledged.values() for body in bodies}
    wrong += [
        f"{body!r} was confirmed, and is lost"
        for body in {*load.confirmed, *load.held.values()} - acknowledged - set(left)
    ]
    # What both have acknowledged long ago. One alone may have been the second to do so.
    safe = set.intersection(*(set(bodies[:-LATE]) for bodies in load.acknowledged.values()))
    wrong += [f"{body!r} was acknowledged, and comes again" for body in safe & set(left)]
    return wrong


def test_a_kill_loses_nothing_confirmed_and_repeats_nothing_acknowledged(tmp_path: Path) -> None:
    assert judge(tmp_path) == []


PLANTED = {
    "what is confirmed is not always stored": (
        """
from embedq.net import Access
def put(access, queue, draft, then=None, *, create=True, put=Access.put):
    if not draft.body.endswith(b"7"):
        put(access, queue, draft, then, create=create)
    else:
        put(access, "elsewhere", draft, then)
Access.put = put
""",
        "is lost",
    ),
    "an acknowledgement is forgotten": (
        """
from embedq.net import RELEASED
from embedq_transports.tmq.handout import Handout
def forget(handout, ending, then=None, end=Handout._end):
    end(handout, RELEASED if handout.delivery.body.endswith(b"3") else ending, then)
Handout._end = forget
""",
        "comes again",
    ),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_host_that_is_wrong_is_noticed(tmp_path: Path, fault: str) -> None:
    planted, word = PLANTED[fault]

    def is_noticed(attempt: int) -> bool:
        folder = tmp_path / str(attempt)
        folder.mkdir()
        return any(word in each for each in judge(folder, planted))

    # Where a kill falls decides what can be seen of it.
    assert any(is_noticed(attempt) for attempt in range(10)), fault


def test_what_a_client_held_when_the_host_was_killed_comes_again_to_the_next(
    tmp_path: Path,
) -> None:
    path = tmp_path / "q.db"
    with hosting(path, URL) as host:
        client = TmqClient(host.addresses[0], "c")
        client.create("ch", 7, queue_status="roundrobin", request_acknowledge=True)
        client.join("ch")
        client.put("ch", 7, b"x")
        assert client.message().body == b"x"
        host.kill()
        client.close()
    with hosting(path, URL) as host:
        client = TmqClient(host.addresses[0], "d")
        client.join("ch")
        again = client.message()
        assert (again.body, again.source, again.first) == (b"x", b"c", False)
        client.ack(again)
        assert client.command(602, "nothing") == 404
        client.close()
    with Broker(path) as broker:
        assert broker.queue("ch/7").stats().stored == 0
