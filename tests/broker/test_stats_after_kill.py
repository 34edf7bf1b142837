"""Numbers that are asked for right after a kill: they are counted first, and only once."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from embedq.broker.desk import Desk
from embedq.broker.host import open_engine
from embedq.broker.stats import of_broker, of_group, of_queue


@pytest.fixture
def killed(tmp_path: Path) -> Iterator[Desk]:
    """A host whose last one was killed with five messages, one of them being delivered."""
    desk = open_engine(tmp_path / "q.db", upkeep=False)
    queue = desk.queue("q")
    desk.group(queue)
    desk.put_many(queue, [b"%d" % n for n in range(5)])
    desk.claim(queue.groups[0])
    desk.writer.close()
    desk.store.close(clean=False)
    desk = open_engine(tmp_path / "q.db", upkeep=False)
    yield desk
    desk.close()


ASKING: dict[str, Callable[[Desk], object]] = {
    "queue": lambda desk: of_queue(desk, desk.queues["q"]).length,
    "group": lambda desk: of_group(desk, desk.queues["q"].groups[0]).waiting,
    "broker": lambda desk: of_broker(desk).queues[0].stored,
}


@pytest.mark.parametrize("what", ASKING)
def test_whoever_asks_gets_true_numbers(killed: Desk, what: str) -> None:
    assert not killed.counts_exact
    assert ASKING[what](killed) == 5
    assert killed.counts_exact


def test_nobody_counts_twice(killed: Desk) -> None:
    """The upkeep may be at it while somebody asks: both must not add what they found."""
    begin, met = killed.store.begin_tally, threading.Barrier(2)

    def both() -> Callable[[], object]:
        ask = begin()

        def counted() -> object:
            met.wait(20)
            return ask()

        return counted

    killed.store.begin_tally = both  # type: ignore[method-assign,assignment]
    threads = [threading.Thread(target=killed.upkeep.count) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert killed.queues["q"].stored == 5
