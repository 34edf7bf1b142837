"""The host of a zbus listener is killed: what was confirmed about queues and channels holds."""

from __future__ import annotations

from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from tests.interop.host import hosting
from tests.interop.zbus_client import ZbusClient

URL = "zbus://127.0.0.1:0"
PATIENCE_S = 60.0
CREATED: tuple[dict[str, Any], ...] = (
    {"mq": "kept", "mqType": "disk", "mqMask": 4, "channel": "c", "filter": "a.#"},
    {"mq": "kept", "channel": "one", "channelMask": 2},
    {"mq": "leaving", "mqMask": 1, "channel": "c"},
    {"mq": "gone", "channel": "c"},
    {"mq": "back", "mqType": "disk", "channel": "c"},
)


def connect(address: Any) -> ZbusClient:
    return ZbusClient(address, PATIENCE_S)


def told(client: ZbusClient, **headers: Any) -> Any:
    answer = client.ask(None, **headers)
    return answer["body"] if answer["status"] == 200 else answer["status"]


def wrong_after_a_kill(path: Path, planted: str = "") -> list[str]:
    """Say what queues are to be, kill the host, and return what the next one has wrong."""
    with hosting(path, URL, planted=planted) as host:
        client = connect(host.addresses[0])
        for headers in CREATED:
            assert client.ask(None, cmd="create", **headers)["status"] == 200
        for mq in ("gone", "back"):
            assert client.ask("old", cmd="pub", mq=mq)["status"] == 200
            assert client.ask(None, cmd="remove", mq=mq)["status"] == 200
        assert client.ask(None, cmd="create", mq="back", channel="c")["status"] == 200
        before = told(client, cmd="query", mq="kept")
        host.kill()
        client.close()
    with hosting(path, URL, planted=planted) as host:
        client = connect(host.addresses[0])
        wrong = _compare(client, before) or _use(client, host.addresses[0])
        client.close()
    return wrong


def _compare(client: ZbusClient, before: dict[str, Any]) -> list[str]:
    after = told(client, cmd="query", mq="kept")
    wrong = [
        f"{name} of a queue is {after[name]}, it was {before[name]}"
        for name in ("type", "mask", "creator", "createdAt", "channels")
        if after[name] != before[name]
    ]
    if told(client, cmd="query", mq="gone") != 404:
        wrong.append("a queue that was removed is there")
    back = told(client, cmd="query", mq="back")
    if (back["type"], back["size"]) != ("memory", 0):
        wrong.append(f"a queue that was made anew is {back}")
    return wrong


def _use(client: ZbusClient, address: Any) -> list[str]:
    """Let masks and filters have their effect."""
    wrong = []
    others = [connect(address), connect(address)]
    found = [told(each, cmd="sub", mq="kept", channel="one") for each in others]
    if found[1] != 409:
        wrong.append("an exclusive channel has two subscribers")
    told(client, cmd="sub", mq="kept", channel="c")
    for tag in ("b", "a.x"):
        others[1].ask(tag, cmd="pub", mq="kept", tag=tag)
    if (pushed := client.next()["body"]) != "a.x":
        wrong.append(f"the filter of a channel lets {pushed} through")
    told(others[1], cmd="sub", mq="leaving", channel="c")
    for each in others:
        each.close()
    end = monotonic() + PATIENCE_S
    while told(client, cmd="query", mq="leaving") != 404:
        if monotonic() > end:
            return [*wrong, "a queue that is deleted with its last subscriber stays"]
        sleep(0.005)
    return wrong


def test_queues_and_channels_are_after_a_kill_what_they_were(tmp_path: Path) -> None:
    assert wrong_after_a_kill(tmp_path / "q.db") == []


PLANTED = {
    "nothing is kept": (
        """
from embedq_transports.zbus.book import Book
Book.write = lambda book, broker, entry, then: then(None)
""",
        "mask of a queue",
    ),
    "removals are not kept": (
        """
from embedq_transports.zbus.book import Book
def write(book, broker, entry, then, write=Book.write):
    then(None) if entry.removed else write(book, broker, entry, then)
Book.write = write
""",
        "a queue that was removed is there",
    ),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_host_that_forgets_is_noticed(tmp_path: Path, fault: str) -> None:
    planted, word = PLANTED[fault]
    assert any(word in each for each in wrong_after_a_kill(tmp_path / "q.db", planted)), fault
