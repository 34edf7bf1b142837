"""What Spark is told of a queue: where its host and its file are, as text."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from embedq import Broker, InvalidOption
from embedq.ipc.errands import open_office
from tests.ipc.abroad import free_port, make_keys


def test_a_queue_of_this_machine_can_be_read_by_its_host_and_by_its_file(tmp_path: Path) -> None:
    with Broker(tmp_path / "app.db") as broker:
        options = broker.queue("orders").spark_options()
        place = str(tmp_path / "app.db")
        assert options == {
            "endpoint": place,
            "path": place,
            "queue": "orders",
            "subscribe": "orders",
        }
        with open_office(options["endpoint"]) as office:
            assert office.queues() == ["orders"]


def test_a_relative_path_means_the_same_for_a_process_that_is_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Broker("app.db") as broker:
        options = broker.queue("orders").spark_options(log=Path("log"))
    assert options["path"] == os.fspath(tmp_path / "app.db")
    assert options["log"] == os.fspath(tmp_path / "log")


def test_further_options_are_written_as_spark_takes_them(tmp_path: Path) -> None:
    with Broker(tmp_path / "app.db") as broker:
        options = broker.queue("orders").spark_options(
            group="archive",
            maxOffsetsPerTrigger=1_000,
            failOnDataLoss=False,
            startingOffsets={"seq": 3},
            endpoint="tcp://10.0.0.1:5555",
            path=None,
            states=None,
        )
    assert options == {
        "endpoint": "tcp://10.0.0.1:5555",
        "queue": "orders",
        "subscribe": "orders",
        "group": "archive",
        "maxOffsetsPerTrigger": "1000",
        "failOnDataLoss": "false",
        "startingOffsets": '{"seq": 3}',
    }


def test_a_name_with_a_comma_is_one_name(tmp_path: Path) -> None:
    with Broker(tmp_path / "app.db") as broker:
        options = broker.queue("a,b").spark_options()
    assert options["queue"] == "a,b"
    assert options["subscribePattern"] == "a,b"
    assert "subscribe" not in options


def test_a_broker_on_another_machine_is_told_with_its_keys_and_without_a_path(
    tmp_path: Path,
) -> None:
    folder = make_keys(tmp_path / "keys", "ada")
    place = f"tcp://127.0.0.1:{free_port()}"
    with Broker(tmp_path / "app.db", endpoint=place, keys=folder) as host:
        host.queue("orders").put("x")
        with Broker(place, keys=folder / "ada.secret") as broker:
            options = broker.queue("orders").spark_options()
        assert options == {
            "endpoint": place,
            "keys": str(folder / "ada.secret"),
            "queue": "orders",
            "subscribe": "orders",
        }
        with open_office(options["endpoint"], options["keys"]) as office:
            assert office.queues() == ["orders"]


def test_a_queue_in_memory_is_for_no_other_process() -> None:
    with Broker(":memory:") as broker, pytest.raises(InvalidOption, match="in memory"):
        broker.queue("orders").spark_options()


def test_what_is_no_name_of_an_option_is_refused(tmp_path: Path) -> None:
    queue = Broker(tmp_path / "app.db").queue("orders")
    with pytest.raises(InvalidOption, match="no name of an option"):
        queue.spark_options(**{"max offsets": 5})
