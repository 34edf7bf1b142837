"""Options of a consumer are checked where they are written; groups know their consumers."""

from datetime import timedelta
from pathlib import Path

import pytest

from embedq.errors import DuplicateConsumer, InvalidName, InvalidOption
from embedq.policy import RetryPolicy
from embedq.workers.batches import Batch
from embedq.workers.spec import Consumers, ConsumerSpec, make_spec


def ship(order: int) -> None: ...


def audit(order: str) -> None: ...


def load(batch: Batch[int]) -> None: ...


async def later(order: int) -> None: ...


def made(function=ship, **options) -> ConsumerSpec:
    return make_spec(function, queue="orders", **options)


def test_what_is_not_said_has_a_default():
    spec = made()
    assert (spec.group, spec.name, spec.concurrency) == ("default", "ship", 1)
    assert (spec.timeout, spec.batch, spec.linger, spec.retry) == (None, None, 0.0, None)
    assert spec.body_type is int


def test_durations_become_seconds():
    spec = made(load, timeout=timedelta(minutes=1), batch=5, linger="200ms")
    assert (spec.timeout, spec.linger) == (60.0, 0.2)


def test_the_queues_type_serves_a_handler_that_asks_for_nothing():
    assert made(lambda order: order, type=float).body_type is float
    assert made(type=float).body_type is int
    assert made(lambda order: order, type=object).body_type is object


def test_a_queue_of_a_type_that_no_body_can_become_is_refused():
    with pytest.raises(InvalidOption, match=r"'orders'.*Path") as caught:
        made(lambda order: order, type=Path)
    assert caught.value.details == {"argument": "type"}
    assert made(type=Path).body_type is int


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"concurrency": 0}, "concurrency"),
        ({"concurrency": True}, "concurrency"),
        ({"concurrency": 1001}, "concurrency"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": "soon"}, "timeout"),
        ({"batch": 0}, "batch"),
        ({"linger": 1}, "linger"),
        ({"pool": "fibre"}, "pool"),
        ({"retry": 3}, "retry"),
        ({"compete": 1}, "compete"),
        ({"name": ""}, "name"),
    ],
)
def test_a_wrong_option_is_named(options: dict, argument: str):
    with pytest.raises(InvalidOption, match=argument) as caught:
        made(**options)
    assert caught.value.hint


def test_threads_are_for_functions_and_processes_for_both():
    assert made(pool="process").in_process
    assert made(later, pool="process").in_process
    assert not made(pool="thread").in_process
    assert made(pool="thread").concurrency == 1
    with pytest.raises(InvalidOption, match="pool"):
        made(later, pool="thread")


@pytest.mark.parametrize(
    "options",
    [
        {"max_messages": 0},
        {"max_messages": True},
        {"max_rss": "lots"},
        {"max_rss": "1MB"},
        {"max_age": "0.5s"},
        {"concurrency": 257},
    ],
    ids=str,
)
def test_bounds_of_worker_processes_are_checked(options: dict):
    (name,) = options
    with pytest.raises(InvalidOption, match=name):
        made(pool="process", **options)


@pytest.mark.parametrize(
    "options", [{"max_messages": 9}, {"max_rss": "1GB"}, {"max_age": "1h"}], ids=str
)
def test_only_worker_processes_are_replaced(options: dict):
    (name,) = options
    with pytest.raises(InvalidOption, match=name) as caught:
        made(**options)
    assert 'pool="process"' in str(caught.value)


def test_when_worker_processes_are_replaced():
    spec = made(pool="process", max_messages=9, max_rss="1.5 GiB", max_age="1h")
    assert (spec.max_messages, spec.max_rss, spec.max_age) == (9, 3 << 29, 3600.0)


def test_delays_are_drawn_ahead_for_every_attempt():
    policy = RetryPolicy(base=1, cap=5, jitter="none")
    delays = made(pool="process", retry=policy).delays()
    assert delays[:4] == (1.0, 2.0, 4.0, 5.0)
    assert set(delays[3:]) == {5.0}


def test_an_event_loop_runs_more_at_once_than_threads():
    assert made(later, concurrency=5000).concurrency == 5000


@pytest.mark.parametrize("names", [{"queue": ""}, {"queue": "q", "group": "a\nb"}])
def test_names_are_checked(names: dict):
    with pytest.raises(InvalidName):
        make_spec(ship, **names)


def test_a_second_function_in_a_group_is_refused_with_both_places():
    consumers = Consumers()
    consumers.add(made())
    with pytest.raises(DuplicateConsumer, match=r"ship.*test_spec\.py.*audit"):
        consumers.add(made(audit))
    consumers.add(made(audit, group="audit"))
    assert len(consumers) == 2


def test_competing_consumers_must_both_say_so():
    consumers = Consumers()
    consumers.add(made())
    with pytest.raises(DuplicateConsumer) as caught:
        consumers.add(made(audit, compete=True))
    assert "both" in str(caught.value)
    consumers.add(made(compete=True))
    consumers.add(made(audit, compete=True))
    assert [spec.name for spec in consumers] == ["ship", "audit"]


def test_the_same_function_again_takes_its_own_place():
    consumers = Consumers()
    consumers.add(made())
    consumers.add(made(concurrency=3))
    assert [spec.concurrency for spec in consumers] == [3]


def test_a_module_run_again_replaces_its_functions():
    consumers = Consumers()
    for _ in range(2):
        space: dict = {"__name__": "app"}
        exec("def ship(order): ...", space)
        consumers.add(made(space["ship"]))
    assert len(consumers) == 1


def test_functions_made_in_a_loop_are_different_ones():
    consumers = Consumers()
    first, second = [lambda order, n=n: n for n in range(2)]
    consumers.add(made(first))
    with pytest.raises(DuplicateConsumer):
        consumers.add(made(second))


def test_the_policy_of_the_consumer_is_kept():
    policy = RetryPolicy(max_attempts=2)
    assert made(retry=policy).retry is policy
