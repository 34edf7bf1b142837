"""Put by each, consumed and settled by each: the table in docs/listeners.md, cell by cell.

The table is what is tested: a cell that says more than is true fails, and so does a missing one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from embedq import Broker, Queue
from embedq.app.listeners import BrokerListener
from tests.interop.mmqp_client import Reader, Refused
from tests.interop.phpmq_client import PhpmqClient
from tests.interop.speakers import PATIENCE_S, QUEUE, SPEAKERS, Speaker, Taken, until

PAGE = Path(__file__).resolve().parents[2] / "docs" / "listeners.md"
FIRST = "| put by, consumed by |"

BODIES = {
    "text": "Grüße, ☃\r\n".encode(),
    "nothing": b"",
    "zeros and what separates": b"\0\0|:\r\n\0MMQP|H01U\x19\0",
    "much": b"0123456789" * 7_000,
    "every byte": bytes(range(256)) + b"\0\xff\0" + bytes(reversed(range(256))),
}


def documented() -> dict[tuple[str, str], str]:
    """Read the table: by who puts and who consumes, "bytes" or "text"."""
    lines = iter(PAGE.read_text().splitlines())
    head = next(line for line in lines if line.startswith(FIRST))
    consumers = cells(head)[1:]
    next(lines)
    table: dict[tuple[str, str], str] = {}
    for line in lines:
        if not line.startswith("|"):
            break
        producer, *found = cells(line)
        table |= {(producer, by): cell for by, cell in zip(consumers, found, strict=True)}
    return table


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


TABLE = documented()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(":memory:") as broker:
        yield broker


@pytest.fixture(scope="module")
def listeners(broker: Broker) -> dict[str, BrokerListener]:
    return {name: broker.listen(each.url) for name, each in SPEAKERS.items() if each.url}


@pytest.fixture
def queue(broker: Broker, listeners: dict[str, BrokerListener]) -> Iterator[Queue[bytes]]:
    """The queue; whatever a test does, the next one finds it empty, and nobody who waits."""
    queue = broker.queue(QUEUE, bytes)
    queue.stats()
    yield queue
    until(lambda: not any(each.stats.connections for each in listeners.values()))
    queue.purge()


@pytest.fixture
def speak(broker, listeners, queue) -> Iterator[Callable[[str], Speaker]]:
    with ExitStack() as stack:

        def speak(name: str) -> Speaker:
            at = listeners[name].address if name in listeners else None
            speaker = SPEAKERS[name](broker, at)
            stack.callback(speaker.close)
            return speaker

        yield speak


def is_text(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_the_table_has_a_cell_for_each_pair():
    assert TABLE.keys() == {(put, take) for put in SPEAKERS for take in SPEAKERS}
    assert set(TABLE.values()) == {"bytes", "text"}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("consumer", SPEAKERS)
@pytest.mark.parametrize("producer", SPEAKERS)
def test_what_one_puts_the_other_gets_byte_for_byte_and_is_done_with(
    speak, queue, producer, consumer, body
):
    if TABLE[producer, consumer] == "text" and not is_text(body):
        cannot_be(speak, queue, producer, consumer, body)
        return
    putting, taking = speak(producer), speak(consumer)
    putting.put(body)
    taken = taking.take()
    assert taken.body == body
    if taking.acks:
        assert queue.stats().stored == 1
    taking.done()
    until(lambda: queue.stats().stored == 0)


def cannot_be(
    speak: Callable[[str], Speaker], queue: Queue[bytes], producer: str, consumer: str, body: bytes
) -> None:
    """What is no text: its producer is told, or it stays for those who can have it."""
    if SPEAKERS[producer].is_text:
        with pytest.raises(Refused, match="BAD_REQUEST"):
            speak(producer).put(body)
        assert queue.stats().stored == 0
        return
    speak(producer).put(body)
    until(lambda: queue.stats().stored == 1)
    speak("Python").put(b"behind it")
    assert speak(consumer).take().body == b"behind it"
    with queue.get(timeout=PATIENCE_S) as delivery:
        assert (delivery.body, delivery.attempt) == (body, 1)


# ------------------------------------------------------------------ what surrounds the body


@pytest.mark.parametrize("consumer", SPEAKERS)
def test_a_higher_priority_comes_first_for_each_consumer(speak, queue, consumer):
    for priority in (0, 9, 5):
        queue.put(b"%d" % priority, priority=priority)
    taking = speak(consumer)
    got = []
    for _ in range(3):
        got.append(taking.take().body)
        taking.done()
    assert got == [b"9", b"5", b"0"]


#: What each consumer sees of a message of Python with 5 attempts and an ordering key, by its wire.
SEEN = {
    "Python": Taken(b"x", "its id", "c-3", 4, 0),
    "SSPQ": Taken(b"x", left=4),
    "PHPMQ": Taken(b"x", "its id"),
    "MMQP": Taken(b"x", "its id", "c-3", before=0),
    "TMQ": Taken(b"x", "its id"),
    "zbus": Taken(b"x", "its id"),
}


@pytest.mark.parametrize("consumer", SPEAKERS)
def test_each_consumer_sees_what_its_wire_carries(speak, queue, consumer):
    receipt = queue.put(b"x", max_attempts=5, ordering_key="c-3", headers={"trace": "t-1"})
    taken = speak(consumer).take()
    if taken.id is not None:
        assert taken.id == receipt.id
        taken = taken._replace(id="its id")
    assert taken == SEEN[consumer]


#: What Python sees of a message of each producer: attempts (None: endless) and ordering key.
PUT = {
    "Python": (5, None),
    "SSPQ": (4, None),
    "PHPMQ": (None, None),
    "MMQP": (5, None),
    "TMQ": (5, None),
    "zbus": (5, None),
}
#: Headers that a producer's wire makes.
MADE = {
    "TMQ": {"wire-id", "tmq-source"},
    "zbus": {"wire-id", "zbus", "Content-Type"},
}


@pytest.mark.parametrize("producer", SPEAKERS)
def test_python_sees_what_each_producer_says(speak, queue, producer):
    speak(producer).put(b"x")
    with queue.get(timeout=PATIENCE_S) as delivery:
        assert (delivery.max_attempts, delivery.ordering_key) == PUT[producer]
        assert (delivery.priority, delivery.attempt) == (0, 1)
        assert set(delivery.headers) == MADE.get(producer, set())


@pytest.mark.parametrize("consumer", [name for name, each in SPEAKERS.items() if each.acks])
def test_headers_key_and_priority_outlive_a_consumer_whose_wire_lacks_them(speak, queue, consumer):
    put = queue.put(b"x", headers={"trace": "t-1"}, ordering_key="c-3", priority=7, max_attempts=9)
    taking = speak(consumer)
    assert taking.take().body == b"x"
    taking.close()
    with queue.get(timeout=PATIENCE_S) as delivery:
        assert delivery.id == put.id
        assert dict(delivery.headers) == {"trace": "t-1"}
        assert (delivery.ordering_key, delivery.priority) == ("c-3", 7)
        assert delivery.max_attempts == 9
        # A connection of SSPQ that ends has used an attempt; elsewhere it has used none.
        assert delivery.attempt == (2 if consumer == "SSPQ" else 1)


def test_a_group_of_mmqp_is_the_ordering_key_that_python_sees(speak, queue, listeners):
    assert speak("MMQP").sender.send(QUEUE, "x", "c-3") == ""
    with queue.get(timeout=PATIENCE_S) as delivery:
        assert delivery.ordering_key == "c-3"
    queue.put(b"of another", ordering_key="c-4")
    queue.put(b"mine", ordering_key="c-3")
    (found,) = Reader(listeners["MMQP"].address).poll(QUEUE, "c-3")
    assert (found.body, found.group) == ("mine", "c-3")


def test_a_time_to_live_of_python_is_seen_by_programs_of_phpmq_that_know_it(queue, listeners):
    queue.put(b"x", ttl="1h")
    client = PhpmqClient(listeners["PHPMQ"].address, speaks_ttl=True)
    client.publish(b"other", b"", 0)  # so that it is known to speak of times to live
    client.consume(QUEUE.encode(), 1)
    message = client.receive()
    client.close()
    assert message.ttl is not None
    assert 3_000 < message.ttl <= 3_600
