"""`embedq run` and `embedq worker`, as real processes with a real application."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.processes import lines_until

ROOT = Path(__file__).resolve().parents[2]
EMBEDQ = [sys.executable, "-W", "error", "-m", "embedq"]
PATIENCE_S = 60

APP = """
from embedq import Broker
broker = Broker("q.db", role={role!r})
orders = broker.queue("orders", str)
mails = broker.queue("mails", str)

@orders.consumer(concurrency=2)
def ship(order: str) -> None:
    print("ship", order, flush=True)

@mails.consumer(group="outbox")
async def send(mail: str) -> None:
    print("send", mail, flush=True)
"""


@pytest.fixture
def env() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EMBEDQ_")}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}


@contextmanager
def started(folder: Path, env: dict[str, str], *args: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*EMBEDQ, *args],
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(PATIENCE_S)
        assert process.stdout is not None
        process.stdout.close()


def put(folder: Path, env: dict[str, str], queue: str, *bodies: str) -> None:
    program = (
        "import sys; from embedq import Broker\n"
        "with Broker('q.db') as b: b.queue(sys.argv[1], str).put_many(sys.argv[2:])"
    )
    command = [sys.executable, "-c", program, queue, *bodies]
    subprocess.run(command, cwd=folder, env=env, check=True, timeout=PATIENCE_S)


def test_run_says_what_runs_and_ends_in_order(tmp_path, env):
    (tmp_path / "shop.py").write_text(APP.format(role=None))
    put(tmp_path, env, "orders", "one")
    with started(tmp_path, env, "run", "shop:broker", "--grace", "5s") as process:
        said = lines_until(process, "running")
        head = [line for line in said if line != "ship one"]
        assert head[0] == "file      q.db (host)"
        assert head[1:3] == [
            "consumer  orders        ship  2 threads",
            "consumer  mails/outbox  send  1 task",
        ]
        if head == said:
            lines_until(process, "ship one")
        put(tmp_path, env, "mails", "two")
        lines_until(process, "send two")
        process.send_signal(signal.SIGINT)
        assert lines_until(process, "ended ")[-1].startswith("ended     ")
        assert process.wait(PATIENCE_S) == 0


def test_a_worker_beside_an_application_is_connected_and_runs_only_its_queues(tmp_path, env):
    (tmp_path / "shop.py").write_text(APP.format(role="host"))
    with started(tmp_path, env, "run", "shop", "--db", "other.db") as first:
        lines_until(first, "running")
        args = ("worker", "shop", "--queues", "mails", "--db", "other.db", "--json")
        with started(tmp_path, env, *args) as second:
            told = json.loads(lines_until(second, "running")[-1])
            assert (told["role"], told["path"]) == ("client", "other.db")
            assert [each["name"] for each in told["consumers"]] == ["send"]
            second.send_signal(signal.SIGTERM)
            assert json.loads(lines_until(second, "ended")[-1])["stuck"] == 0
            assert second.wait(PATIENCE_S) == 0
    assert not (tmp_path / "q.db").exists()


def test_a_worker_can_run_its_consumers_in_processes(tmp_path, env):
    text = APP.format(role=None).replace('print("ship"', 'print("ship", os.getpid()')
    (tmp_path / "shop.py").write_text("import os\n" + text)
    put(tmp_path, env, "orders", "one")
    args = ("worker", "shop", "--queues", "orders", "--processes", "2")
    with started(tmp_path, env, *args) as process:
        said = lines_until(process, "running")
        assert "consumer  orders  ship  2 processes" in said
        words = lines_until(process, "ship ")[-1].split()
        assert words[2] == "one"
        assert int(words[1]) != process.pid
        process.send_signal(signal.SIGTERM)
        assert lines_until(process, "ended ")
        assert process.wait(PATIENCE_S) == 0


def test_what_cannot_run_ends_with_2_and_an_explanation(tmp_path, env):
    (tmp_path / "shop.py").write_text("x = 1\n1 / 0\n")
    with started(tmp_path, env, "run", "shop:broker") as process:
        lines = lines_until(process, "error:")
        assert process.wait(PATIENCE_S) == 2
    assert "ZeroDivisionError" in lines[-1]
    assert any("shop.py" in line and "line 2" in line for line in lines)
    (tmp_path / "shop.py").write_text(APP.format(role=None))
    with started(tmp_path, env, "worker", "shop", "--queues", "mail") as process:
        assert "'mail'" in lines_until(process, "error:")[-1]
        assert "mails, orders" in lines_until(process, "hint:")[-1]
        assert process.wait(PATIENCE_S) == 1
