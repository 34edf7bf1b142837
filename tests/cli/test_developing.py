"""`embedq dev` with a real project: edits, mistakes, bursts, running work, ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from embedq import Broker
from embedq.broker.desk import Desk
from embedq.cli.developing import Developing
from embedq.cli.offspring import Child
from embedq.errors import StoreFailed
from embedq.storage.owners import owner_of
from embedq.storage.sqlite import SqliteStore
from embedq.workers.reload import Sources

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60.0

APP = """
import os, time
from embedq import Broker, Delivery
broker = Broker("q.db", role="host")
orders = broker.queue("orders", str)

@orders.consumer({options})
def ship(order: str, delivery: Delivery) -> None:
    with open("said.txt", "a") as file:
        file.write(f"{version} {{order}} {{delivery.attempt}} {{os.getpid()}}\\n")
    if order.startswith("slow"):
        time.sleep(float(order.split()[1]))
    with open("said.txt", "a") as file:
        file.write(f"{version} done {{order}}\\n")
"""


def until(true: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)  # a poll with a deadline: other processes tell us in no other way


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


class Project:
    """A folder with an application, and `embedq dev` on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "log.txt"
        self.process: subprocess.Popen[bytes] | None = None

    def write(self, version: str, options: str = "") -> None:
        (self.folder / "shop.py").write_text(APP.format(version=version, options=options))

    def start(self, until: str = "running") -> None:
        env = {name: value for name, value in os.environ.items() if not name.startswith("EMBEDQ_")}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-W", "error", "-m", "embedq", "dev", "shop:broker"],
                cwd=self.folder,
                env={**env, "PYTHONPATH": str(ROOT)},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.wait(until)

    def events(self, name: str) -> list[str]:
        lines = [line.split(None, 2) for line in self.log.read_text().splitlines()]
        return [line[2] for line in lines if len(line) == 3 and line[1] == name]

    def wait(self, event: str, times: int = 1) -> str:
        until(lambda: len(self.events(event)) >= times)
        return self.events(event)[times - 1]

    def put(self, *bodies: str) -> None:
        broker = Broker(self.folder / "q.db", role="client")
        broker.queue("orders", str).put_many(bodies)
        broker.stop()

    def said(self) -> list[list[str]]:
        path = self.folder / "said.txt"
        text = path.read_text() if path.exists() else ""
        return [line.split() for line in text.splitlines()]

    def hear(self, *words: str) -> list[str]:
        """Wait until a handler has said a line that begins so."""
        found: list[list[str]] = []

        def there() -> bool:
            found[:] = [line for line in self.said() if line[: len(words)] == list(words)]
            return bool(found)

        until(there)
        return found[0]

    @property
    def child(self) -> int:
        return int(self.events("running")[-1].split()[1].rstrip(","))

    def end(self) -> None:
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(PATIENCE_S)


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    made = Project(tmp_path)
    made.write("v1")
    yield made
    made.end()


def test_an_edit_runs_for_the_next_message_and_the_host_stays(project):
    project.start()
    host = owner_of(project.folder / "q.db")
    project.put("one")
    project.hear("v1", "one")
    project.write("v2")
    project.wait("running", 2)
    project.put("two")
    project.hear("v2", "two")
    assert owner_of(project.folder / "q.db") == host
    assert "shop.py" in project.events("changed")[0]


def test_a_mistake_keeps_the_old_code_and_is_shown_once(project):
    project.start()
    good = (project.folder / "shop.py").read_text()
    (project.folder / "shop.py").write_text(good + "def half(\n")
    assert "the old code goes on" in project.wait("refused")
    project.put("one")
    project.hear("v1", "one")
    text = project.log.read_text()
    assert text.count("Traceback") == 1
    assert "def half(" in text
    assert "application.py" not in text
    (project.folder / "shop.py").write_text("")  # half written: imports, but has no broker
    project.wait("refused", 2)
    project.write("v2")
    project.wait("running", 2)
    project.put("two")
    project.hear("v2", "two")


def test_a_start_with_a_mistake_waits_for_a_good_change(project):
    (project.folder / "shop.py").write_text("1 / 0\n")
    project.start("refused")
    assert "waiting for a change" in project.wait("refused")
    assert not (project.folder / "q.db").exists()
    project.write("v2")
    project.wait("running")


def test_a_burst_is_one_reload_and_the_files_of_the_database_are_none(project):
    project.start()
    for number in range(20):
        project.write(f"v{number}")
    project.wait("running", 2)
    project.put(*map(str, range(50)))  # the database, its log and its neighbours change
    project.hear("v19", "49")
    (project.folder / "q.db-journal").write_text("x")
    (project.folder / "notes.txt").write_text("x")
    project.write("v20")
    project.wait("running", 3)
    assert len(project.events("changed")) == 2


def test_running_work_finishes_within_the_grace_or_is_given_back(project):
    project.write("v1", "concurrency=2")
    project.start()
    project.put("slow 1", "slow 30")
    project.hear("v1", "slow", "1")
    project.hear("v1", "slow", "30")
    project.write("v2", "concurrency=2")
    project.wait("running", 2)
    assert project.said().count(["v1", "done", "slow", "1"]) == 1
    assert project.hear("v2", "slow", "30")[3] == "1"  # given back: no attempt
    assert not any(line[:3] == ["v2", "slow", "1"] for line in project.said())


def test_worker_processes_are_reloaded_and_a_ctrl_c_of_the_terminal_leaves_nobody(project):
    project.write("v1", 'pool="process", concurrency=2')
    project.start()
    project.put("one")
    project.hear("v1", "one")
    project.write("v2", 'pool="process", concurrency=2')
    project.wait("running", 2)
    project.put("two")
    worker = int(project.hear("v2", "two")[3])
    pids = [project.child, worker]
    assert all(map(alive, pids))
    assert project.process is not None
    os.killpg(project.process.pid, signal.SIGINT)
    assert project.process.wait(PATIENCE_S) == 0
    until(lambda: not any(map(alive, pids)))
    assert "Traceback" not in project.log.read_text()
    with Broker(project.folder / "q.db") as broker:  # it was closed in order
        assert broker.queue("orders").stats().length == 0


def test_a_child_ends_with_a_parent_that_was_killed(project):
    project.start()
    child = project.child
    assert project.process is not None
    project.process.kill()
    project.process.wait(PATIENCE_S)
    until(lambda: not alive(child))


def test_a_child_that_dies_is_started_again(project):
    project.start()
    os.kill(project.child, signal.SIGKILL)
    project.wait("died")
    project.wait("running", 2)
    project.put("one")
    project.hear("v1", "one")


def test_it_ends_when_nothing_can_be_stored_any_more(tmp_path, monkeypatch):
    class Failing(Developing):
        def _on_running(self, child: Child, note: dict) -> None:
            super()._on_running(child, note)
            assert self._host is not None
            desk = self._host.desk
            assert isinstance(desk, Desk)
            assert isinstance(desk.store, SqliteStore)
            desk.store._stopped = StoreFailed("the disk is gone")
            desk.events.emit("store_failed", path="q.db", detail="the disk is gone")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (tmp_path / "shop.py").write_text(APP.format(version="v1", options=""))
    told: list[str] = []
    dev = Failing(["shop:broker"], Sources([tmp_path]), lambda event, *_: told.append(event))
    with pytest.raises(StoreFailed, match="the disk is gone"):
        dev.run()
    assert "running" in told
