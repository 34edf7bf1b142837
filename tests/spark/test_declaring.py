"""What a consumer with `spark=` may be, said where it is declared. No JVM is started."""

from __future__ import annotations

import threading

import pytest

from embedq import Broker, Delivery, InvalidOption

pytestmark = pytest.mark.spark  # PySpark is imported


@pytest.fixture
def orders(tmp_path):
    with Broker(tmp_path / "q.db") as broker:
        yield broker.queue("orders")


def factory():
    raise AssertionError("nobody asks for a session before there is a message")


def test_a_coroutine_or_a_worker_process_starts_no_spark_jobs(orders):
    async def handle(body: int) -> None: ...

    with pytest.raises(InvalidOption, match="declare the handler with def"):
        orders.consumer(spark=factory)(handle)
    with pytest.raises(InvalidOption, match="leave out pool="):
        orders.consumer(spark=factory, pool="process")(lambda body: None)
    orders.consumer(spark=factory)(lambda body: None)
    with pytest.raises(InvalidOption, match="Spark jobs, on threads of the driver"):
        orders.broker.consumers.move_to_processes(2)


@pytest.mark.parametrize("place", ["last", "middle", "only", "named", "default"])
def test_the_session_comes_in_the_parameter_named_spark_wherever_that_is(place):
    from embedq.spark.consuming import SparkHarness
    from embedq.workers.signature import read_signature

    def last(body: int, delivery: Delivery[int], spark) -> object:
        return body, delivery, spark

    def middle(body: int, spark: NoSuchName, delivery: Delivery[int]) -> object:  # type: ignore[name-defined]  # noqa: F821
        return body, delivery, spark

    def only(spark) -> object:
        return 1, "delivery", spark

    def named(body: int, delivery: Delivery[int], *, spark) -> object:
        return body, delivery, spark

    def default(body: int, delivery: Delivery[int], more: int = 5, spark=None) -> object:
        assert more == 5
        return body, delivery, spark

    harness = SparkHarness(factory)
    harness._here.session = "session"
    handler = {f.__name__: f for f in (last, middle, only, named, default)}[place]
    signature = read_signature(harness.adapt(handler))
    assert signature.call(1, "delivery") == (1, "delivery", "session")
    assert signature.type in (int, None)


def test_more_handlers_than_the_cap_wait_for_their_turn_and_one_that_is_given_up_leaves():
    from embedq.spark.consuming import Cap

    cap = Cap()
    assert cap.enter(2, lambda: False)
    assert cap.enter(2, lambda: False)
    assert not cap.enter(2, lambda: True)
    entered = threading.Event()

    def enter() -> None:
        if cap.enter(2, lambda: False):
            entered.set()

    third = threading.Thread(target=enter)
    third.start()
    cap.leave()
    assert entered.wait(60)
    third.join()


def test_the_errors_of_a_lost_jvm_are_told_from_those_of_a_job():
    from py4j.protocol import Py4JNetworkError
    from pyspark.errors import AnalysisException, PySparkTypeError, PythonException

    from embedq.spark.blame import is_death, is_final

    network = Py4JNetworkError("Answer from Java side is empty")
    wrapped = RuntimeError("clean-up failed")
    wrapped.__context__ = network
    assert is_death(network)
    assert is_death(wrapped)
    assert is_death(RuntimeError("Job 3 cancelled because SparkContext was shut down"))
    assert not is_death(ConnectionRefusedError("the user's own database"))
    assert not is_death(ValueError("x"))
    assert is_final(AnalysisException("no such table"))
    assert is_final(PySparkTypeError("x"))
    assert not is_final(PythonException("x"))
    assert not is_final(TypeError("x"))


def test_the_third_jvm_that_dies_under_a_message_counts_as_its_failure(orders):
    from py4j.protocol import Py4JNetworkError

    from embedq.broker.endings import RELEASED, Failed
    from embedq.spark.consuming import SparkHarness
    from embedq.workers.runner import Run, Runner
    from embedq.workers.spec import make_spec

    told: list[str] = []
    orders.broker.on("spark_lost", lambda notice: told.append(str(notice.fields["error"])))
    orders.put_many([1, 2])
    killer, other = orders.get_many(2, 60)
    harness = SparkHarness(factory)
    desk, group = orders.broker.desk, killer.lease.group
    runner = Runner(desk, group, make_spec(lambda body: None, queue="orders", spark=factory))
    error = Py4JNetworkError("Answer from Java side is empty")

    def end(delivery: Delivery[int]) -> object:
        ((_, ending),) = harness._died(runner, Run([delivery.lease]), error)
        return ending

    assert end(killer) is RELEASED
    assert end(other) is RELEASED
    assert end(killer) is RELEASED
    assert isinstance(end(killer), Failed)
    assert end(killer) is RELEASED  # and the count begins anew
    orders.broker.stop()
    assert told == ["py4j.protocol.Py4JNetworkError: Answer from Java side is empty"] * 5
