"""Commands beside a running application work at its desk, and are never a host for others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from embedq import Broker
from embedq.storage.owners import owner_of
from tests.ipc.peer import eventually
from tests.processes import line_of

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
EMBEDQ = [sys.executable, "-W", "error", "-m", "embedq"]


@pytest.fixture
def app(embedq) -> Iterator[Broker]:
    """An application that is the host, in this process: commands run beside it, in their own."""
    with Broker(embedq.db) as broker:
        broker.backing.wait_until_served()
        yield broker


def test_a_message_is_put_through_the_host(embedq, app):
    orders = app.queue("orders")
    told = embedq.json("put", "orders", "one", "--priority", "3", "--header", "a=b")
    with orders.get(60) as delivery:
        assert (delivery.body, delivery.id, delivery.priority) == ("one", told["id"], 3)
        assert dict(delivery.headers) == {"a": "b"}
    again = embedq.json("put", "orders", "x", "--dedup-key", "k")
    assert embedq.json("put", "orders", "x", "--dedup-key", "k")["id"] == again["id"]
    embedq.ok("put", "new", "-", "--lines", stdin="a\nb\nc\n")
    assert [message.body for message in app.queue("new").peek()] == [b"a", b"b", b"c"]


def test_a_full_queue_refuses_at_once(embedq, app):
    app.queue("small", max_length=1, when_full="block").put("x")
    code, error = embedq.error("put", "small", "y")
    assert (code, error["code"]) == (embedq("put", "small", "y").exit_code, "queue_full")


def test_messages_are_taken_from_the_host_and_settled(embedq, app):
    orders = app.queue("orders")
    orders.put_many(["a", "b", "c", "d"])
    assert embedq.ok("get", "orders") == "a"
    assert [told["body"] for told in embedq.lines("get", "orders", "--count", "2")] == ["b", "c"]
    assert embedq.ok("get", "orders", "--no-ack") == "d"
    assert [(d.body, d.attempt) for d in orders.get_many(9)] == [("d", 1)]
    assert embedq.error("get", "orders")[0] == 1


def test_a_get_that_waits_is_woken_by_the_host(embedq, app):
    orders = app.queue("orders")
    orders.get_many(1)
    found: list[str] = []
    waiter = threading.Thread(
        target=lambda: found.append(embedq.ok("get", "orders", "--timeout", "20s"))
    )
    waiter.start()
    group = app.desk.existing_queue("orders").groups[0]
    eventually(lambda: group.waiters)
    orders.put("here")
    waiter.join(20)
    assert found == ["here"]
    assert orders.stats().stored == 0


def test_a_command_that_is_interrupted_while_it_waits_leaves_nobody_waiting(embedq, app):
    orders = app.queue("orders")
    orders.get_many(1)
    command = [*EMBEDQ, "--db", str(embedq.db), "get", "orders", "--timeout", "60s"]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        group = app.desk.existing_queue("orders").groups[0]
        eventually(lambda: group.waiters, 30)
        process.terminate()
        process.communicate(timeout=20)
        eventually(lambda: not group.waiters)
    finally:
        process.kill()
        process.communicate()
    orders.put("x")
    assert orders.get(60).attempt == 1


def test_a_queue_is_paused_resumed_and_purged_at_the_host(embedq, app):
    orders = app.queue("orders")
    orders.put_many(range(3))
    assert embedq.json("pause", "orders")["changed"]
    assert not embedq.json("pause", "orders")["changed"]
    assert orders.paused
    assert orders.get_many(9) == []
    embedq.ok("resume", "orders")
    assert not orders.paused
    assert embedq.json("purge", "orders", "--yes")["removed"] == 3
    assert orders.stats().length == 0
    code, error = embedq.error("purge", "ordres", "--yes")
    assert (code, error["code"], "'orders'" in error["hint"]) == (
        embedq.error("peek", "ordres")[0],
        "queue_not_found",
        True,
    )


def test_dead_letters_are_moved_and_removed_at_the_host(embedq, app):
    orders = app.queue("orders")
    orders.put_many(range(4))
    for delivery in orders.get_many(9):
        delivery.reject("no")
    assert embedq.json("dead", "redrive", "orders", "--limit", "3", "--all")["redriven"] == 3
    assert embedq.json("dead", "purge", "orders", "--all", "--yes")["removed"] == 1
    assert (orders.stats().length, len(orders.dead)) == (3, 0)


def test_looking_and_care_work_beside_the_application(embedq, app, tmp_path):
    orders = app.queue("orders")
    orders.put("x")
    assert embedq.json("stats")["queues"][0]["length"] == 1
    assert embedq.json("peek", "orders")["messages"][0]["body"] == "x"
    assert embedq.json("doctor")["host"]["pid"] == os.getpid()
    assert embedq.json("backup", str(tmp_path / "copy.db"))["messages"] == 1


def test_commands_at_a_host_leave_no_session_and_no_marks(embedq, app):
    for _ in range(3):
        embedq.ok("put", "orders", "x")
        embedq.ok("get", "orders")
    folder = Path(f"{embedq.db}.ipc")
    assert [entry.name for entry in folder.iterdir() if not entry.name.endswith(".sock")] == []


HOST = """
import sys
from embedq import Broker
broker = Broker(sys.argv[1])
broker.queue("orders").get_many(1)
broker.backing.wait_until_served()
print("serving", flush=True)
sys.stdin.read()
"""


@pytest.mark.reliability
def test_a_command_that_waits_never_becomes_the_host_for_others(embedq, tmp_path):
    host = subprocess.Popen(
        [sys.executable, "-c", HOST, str(embedq.db)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    command = [*EMBEDQ, "--db", str(embedq.db), "get", "orders", "--timeout", "60s", "--json"]
    waiter = None
    try:
        assert line_of(host) == b"serving\n"
        waiter = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
        sessions = Path(f"{embedq.db}.ipc")
        eventually(lambda: list(sessions.glob("*.marks")), 30)
        host.kill()
        host.communicate()
        with Broker(embedq.db, role="host") as app:  # nobody holds the file
            app.backing.wait_until_served()
            app.queue("orders").put("of the next host")
            out, _ = waiter.communicate(timeout=40)
        assert json.loads(out)["body"] == "of the next host"
        owner = owner_of(embedq.db)
        assert owner is not None
        assert owner.clean
    finally:
        for process in (host, waiter):
            if process is not None:
                process.kill()
                process.communicate()
