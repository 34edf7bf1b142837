"""All consumers of a process together: started, added later, competing, watched."""

import threading

from embedq.broker.host import open_engine
from embedq.clock import VirtualClock
from embedq.policy import RetryPolicy
from embedq.workers.crews import ConsumerRunner
from embedq.workers.spec import make_spec


def test_a_consumer_may_be_added_while_the_others_run(bench):
    runner = bench.consume(lambda order: bench.seen.append(("default", order)))
    late = make_spec(
        lambda order: bench.seen.append(("audit", order)), queue="orders", group="audit"
    )
    runner.add(late)
    bench.put(b"1")
    bench.until(lambda: len(bench.seen) == 2)
    assert sorted(bench.seen) == [("audit", 1), ("default", 1)]
    assert bench.count("consumer_registered") == 2


def test_a_consumer_added_before_the_start_waits_for_it(bench):
    runner = ConsumerRunner(bench.at)
    bench.runners.append(runner)
    bench.put(b"1")
    runner.add(make_spec(bench.seen.append, queue="orders"))
    assert not runner.crews
    runner.start()
    runner.start()
    bench.until(bench.drained)
    assert bench.seen == [1]
    assert len(runner.crews) == 1


def test_a_consumer_added_after_the_drain_does_not_start(bench):
    runner = bench.consume(bench.seen.append)
    runner.drain(1)
    runner.add(make_spec(bench.seen.append, queue="orders", group="audit"))
    assert len(runner.crews) == 1


def test_competing_consumers_share_the_messages(bench):
    both = threading.Barrier(2)

    def first(order):
        both.wait(60)
        bench.seen.append(("first", order))

    def second(order):
        both.wait(60)
        bench.seen.append(("second", order))

    bench.consume(first, compete=True)
    bench.consume(second, compete=True)
    bench.put(b"1", b"2")
    bench.until(bench.drained)
    assert sorted(name for name, _ in bench.seen) == ["first", "second"]


def test_the_bound_of_the_consumer_wins_over_the_queues_and_loses_to_the_messages(bench):
    from embedq.message import draft

    def handle(order):
        bench.seen.append(order)
        raise ValueError

    bench.consume(handle, retry=RetryPolicy(max_attempts=7, base=0, cap=0))
    bench.put(b"0")
    bench.desk.put_drafts(bench.queue, [draft(b"1", kind=2, max_attempts=2)])
    bench.until(lambda: len(bench.dead()) == 2)
    assert (bench.seen.count(0), bench.seen.count(1)) == (7, 2)


def test_the_watch_goes_by_the_clock_it_is_given():
    clock = VirtualClock()
    release = threading.Event()
    started = threading.Event()

    def handle(order):
        started.set()
        release.wait(20)

    with open_engine(":memory:", clock=clock, upkeep=False) as desk:
        queue = desk.queue("orders")
        group = desk.group(queue)
        spec = make_spec(handle, queue="orders", timeout="1h", retry=RetryPolicy(base=60, cap=60))
        runner = ConsumerRunner(desk, [spec])
        runner.start()
        desk.put(queue, b"0", 2)
        assert started.wait(20)
        runner.watch.round()
        clock.advance(3599)
        runner.watch.round()
        assert runner.stuck == 0
        clock.advance(1)
        runner.watch.round()
        assert runner.stuck == 1
        assert group.waiting == 1
        assert not group.leases
        release.set()
        runner.stop()


def test_one_member_that_cannot_be_looked_at_does_not_hide_the_others(bench, caplog):
    class Broken:
        busy = False

        def check(self, now: float) -> None:
            raise RuntimeError("no")

    never = threading.Event()
    runner = bench.consume(lambda order: never.wait(60), timeout=0.05)
    runner.watch.add(Broken(), None)
    bench.put(b"0")
    bench.until(lambda: runner.stuck)
    never.set()
    assert "could not look" in caplog.text


def test_a_slot_survives_a_defect_around_its_handler(bench, monkeypatch):
    monkeypatch.setattr("embedq.workers.runner._DEFECT_S", 0.1)
    left = [1]
    runner = bench.consume(bench.seen.append)
    run = runner.crews[0].runner.run

    def defect(under_way):
        if left[0]:
            left[0] -= 1
            raise RuntimeError("a defect of ours")
        return run(under_way)

    monkeypatch.setattr(runner.crews[0].runner, "run", defect)
    bench.put(b"0")
    bench.until(lambda: bench.seen == [0])
    bench.until(bench.drained)
    assert bench.count("consumer_error") == 1
