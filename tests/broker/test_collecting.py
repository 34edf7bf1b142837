"""Messages that every group has settled leave, whatever came in between."""

from pathlib import Path

from embedq.broker.engine import Engine
from embedq.broker.host import open_engine
from embedq.clock import VirtualClock
from embedq.policy import QueuePolicy

RETAINING = QueuePolicy(retain_ms=1_000_000)


def settle_all(engine: Engine, name: str = "orders") -> None:
    group = engine.group(engine.queue(name))
    engine.ack(*engine.claim(group, 100))


def test_what_a_queue_retained_leaves_when_it_no_longer_retains(tmp_path: Path) -> None:
    with open_engine(tmp_path / "q.db", clock=VirtualClock(), upkeep=False) as engine:
        queue = engine.queue("orders", RETAINING)
        engine.put_many(queue, [b"a", b"b", b"c"])
        settle_all(engine)
        waiting = engine.put(queue, b"d")
        assert queue.stored == 4
        engine.queue("orders", QueuePolicy())
        engine.upkeep.round()
        assert [message.seq for message in engine.peek(queue)] == [waiting]
        assert (queue.stored, queue.groups[0].settled) == (1, 0)


def test_a_host_that_died_while_it_collected_is_followed_by_one_that_does(tmp_path: Path) -> None:
    path = tmp_path / "q.db"
    first = open_engine(path, clock=VirtualClock(), upkeep=False)
    queue = first.queue("orders", RETAINING)
    first.put_many(queue, [b"a", b"b"])
    settle_all(first)
    first.queue("orders", QueuePolicy())  # and dies before its next round
    first.writer.close()
    first.store.close(clean=False)
    with open_engine(path, clock=VirtualClock(), upkeep=False) as engine:
        engine.upkeep.count()
        engine.upkeep.round()
        queue = engine.queue("orders")
        assert engine.peek(queue) == []
        assert (queue.stored, queue.groups[0].settled) == (0, 0)


def test_a_crash_alone_is_no_reason_to_look_through_a_queue(tmp_path: Path) -> None:
    path = tmp_path / "q.db"
    first = open_engine(path, upkeep=False)
    first.group(first.queue("orders"))
    first.put_many(first.queue("orders"), [b"a", b"b"])
    first.writer.close()
    first.store.close(clean=False)
    with open_engine(path, upkeep=False) as engine:
        engine.upkeep.count()
        assert not engine.queue("orders").untidy
        assert engine.queue("orders").stored == 2


def test_a_clean_start_collects_nothing(tmp_path: Path) -> None:
    path = tmp_path / "q.db"
    with open_engine(path, upkeep=False) as engine:
        engine.put(engine.queue("orders"), b"a")
    with open_engine(path, upkeep=False) as engine:
        assert not engine.queue("orders").untidy
