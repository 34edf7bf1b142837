"""Programs with worker processes from outside: how they start, how signals and kills end them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from embedq import Broker
from tests.workers.pooled import HEAD, is_running, said, until

pytestmark = pytest.mark.slow

SLOW = """
jobs = broker.queue("jobs", retry=AT_ONCE)

@jobs.consumer(pool="process", concurrency=2)
def work(how: str, delivery: Delivery) -> None:
    note("start", how, delivery.attempt, os.getpid())
    if how == "stubborn":
        while True:
            try:
                time.sleep(600)
            except BaseException:
                note("interrupted", how)
    time.sleep(float(how))
    note("end", how)
"""
LOGGED = """
    import logging
    logging.basicConfig(level=logging.INFO, format="%(message).300s")
"""
RUN = '\nif __name__ == "__main__":' + LOGGED
GUARDED = RUN + "    broker.run()\n    note('stopped')\n"


class Program:
    """A program in a process group of its own, as a shell starts it."""

    def __init__(self, folder: Path, *command: str) -> None:
        self.folder = folder
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, *command],
                cwd=folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def text(self) -> str:
        """What it has printed so far."""
        return self.log.read_text("utf-8", "replace")

    @property
    def workers(self) -> set[int]:
        """The workers that have started to handle something."""
        return {int(words[3]) for words in said(self.folder) if words[0] == "start"}

    def starts(self, count: int) -> None:
        """Wait until handlers have started."""
        until(lambda: sum(words[0] == "start" for words in said(self.folder)) >= count)

    def ends(self, patience: float = 60.0) -> int:
        """Return its exit code. Nothing of its group may live on."""
        code = self.process.wait(patience)
        until(lambda: not self.group(), "its group has ended")
        return code

    def group(self) -> set[int]:
        """Return the processes of its group that still run."""
        found = set()
        for entry in Path("/proc").iterdir():
            with suppress(OSError, ValueError):
                if os.getpgid(int(entry.name)) == self.process.pid and is_running(int(entry.name)):
                    found.add(int(entry.name))
        return found

    def kill(self) -> None:
        """End everything."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


Start = Callable[..., Program]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    programs: list[Program] = []

    def begin(source: str, *bodies: str) -> Program:
        (tmp_path / "app.py").write_text(HEAD + source)
        if bodies:
            with Broker(tmp_path / "app.db") as broker:
                broker.queue("jobs").put_many(list(bodies))
        programs.append(Program(tmp_path, "app.py"))
        return programs[-1]

    yield begin
    for program in programs:
        program.kill()


def left(folder: Path) -> dict[str, int]:
    """Return the messages that are left, and which attempt the next delivery is."""
    found = {}
    with Broker(folder / "app.db") as broker:
        while deliveries := broker.queue("jobs", str).get_many(10, 0.5):
            for each in deliveries:
                found[each.body] = each.attempt
                each.ack()
    return found


linux = pytest.mark.skipif(sys.platform != "linux", reason="only on Linux is there a /proc")


@linux
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_whole_group_lets_messages_in_work_come_to_their_end(
    start: Start, tmp_path: Path, number: signal.Signals
) -> None:
    program = start(SLOW + GUARDED, "2", "2.1", "0.1")
    program.starts(2)
    os.killpg(program.process.pid, number)  # as a Ctrl-C does, or systemd
    assert program.ends() == 0
    ended = {words[1] for words in said(tmp_path) if words[0] == "end"}
    assert ended == {"2", "2.1"}
    assert said(tmp_path)[-1] == ["stopped"]
    assert "Traceback" not in program.text
    assert f"draining ({number.name}): 2 handlers" in program.text
    assert "2 finished, 0 given back, 0 stuck" in program.text
    assert left(tmp_path) == {"0.1": 1}


@linux
def test_a_ctrl_c_while_workers_start_leaves_no_traceback(start: Start) -> None:
    program = start(SLOW + GUARDED, "0.1")
    until(lambda: "work consumes" in program.text)
    for _ in range(3):
        with suppress(ProcessLookupError):
            os.killpg(program.process.pid, signal.SIGINT)
    assert program.ends() == 0
    assert "Traceback" not in program.text
    assert "KeyboardInterrupt" not in program.text


@linux
def test_every_worker_is_started_with_the_ctrl_c_held_back(start: Start, tmp_path: Path) -> None:
    mask = "signal.pthread_sigmask(signal.SIG_BLOCK, [])"
    tell = f'if is_worker():\n    note("held", signal.SIGINT in {mask})\n'
    program = start(tell + SLOW + GUARDED)
    until(lambda: len(said(tmp_path)) >= 2)
    program.process.terminate()
    assert program.ends() == 0
    assert said(tmp_path)[:2] == [["held", "True"]] * 2


@linux
def test_what_does_not_end_in_time_is_given_back_without_an_attempt(
    start: Start, tmp_path: Path
) -> None:
    program = start(SLOW + RUN + "    broker.run(grace='200ms')\n", "600", "stubborn")
    program.starts(2)
    program.process.send_signal(signal.SIGTERM)
    assert program.ends() == 0
    assert "Traceback" not in program.text
    assert ["interrupted", "stubborn"] in said(tmp_path)
    assert left(tmp_path) == {"600": 1, "stubborn": 1}


@linux
def test_a_second_signal_ends_the_grace(start: Start, tmp_path: Path) -> None:
    program = start(SLOW + GUARDED, "600")
    program.starts(1)
    program.process.send_signal(signal.SIGTERM)
    until(lambda: "draining" in program.text)
    program.process.send_signal(signal.SIGTERM)
    assert program.ends() == 0
    assert left(tmp_path) == {"600": 1}


@linux
def test_workers_of_an_application_that_was_killed_finish_or_leave(
    start: Start, tmp_path: Path
) -> None:
    program = start(SLOW + GUARDED, "0.5", "600")
    program.starts(2)
    workers = program.workers  # one, if it was at both before the other had started
    program.process.kill()
    program.process.wait()
    until(lambda: not any(map(is_running, workers)), "orphans leave")
    until(lambda: not program.group(), "its group has ended")
    assert ["end", "0.5"] in said(tmp_path)
    remaining = left(tmp_path)
    assert remaining.pop("600") == 2  # it had started
    assert set(remaining) <= {"0.5"}  # done, but there was no host to hear of it


@linux
def test_workers_of_an_application_that_was_killed_report_to_the_next_host(
    start: Start, tmp_path: Path
) -> None:
    program = start(SLOW + GUARDED, "2.5")
    program.starts(1)
    heard: list[str] = []
    with Broker(tmp_path / "app.db") as broker:  # a client, until there is no host
        broker.on("*", lambda notice: heard.append(notice.name))
        assert broker.queue("jobs").stats().length == 1
        program.process.kill()
        program.process.wait()
        until(lambda: not broker.queue("jobs").stats().length, "the worker has reported")
        assert ["end", "2.5"] in said(tmp_path)
        until(lambda: not program.group(), "its group has ended")
    assert sum(words[0] == "start" for words in said(tmp_path)) == 1
    assert "crashed_delivery" not in heard


@linux
def test_a_program_without_a_guard_is_told_once(start: Start, tmp_path: Path) -> None:
    program = start(SLOW + LOGGED.replace("    ", "") + "broker.run()\n", "0.1")
    until(lambda: "__main__" in program.text)
    time_is_over = time.monotonic() + 2
    until(lambda: time.monotonic() > time_is_over)
    assert program.text.count("__main__") == 1
    assert program.text.count("cannot start") == 1
    assert "Traceback" not in program.text
    assert not program.group() - {program.process.pid} - tracker(program)
    program.process.send_signal(signal.SIGTERM)
    assert program.ends() == 0
    assert said(tmp_path) == []
    assert left(tmp_path) == {"0.1": 1}


def tracker(program: Program) -> set[int]:
    """Return Python's own helper process, which ends with its program."""
    return {
        pid
        for pid in program.group()
        if b"resource_tracker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    }


@linux
def test_a_program_that_never_stops_its_broker_leaves_no_worker(
    start: Start, tmp_path: Path
) -> None:
    source = SLOW + RUN + "    broker.start()\n    jobs.put('600')\n"
    source += "    while not (FOLDER / 'out').exists(): time.sleep(0.01)\n"
    program = start(source)
    assert program.ends() == 0
    assert "Traceback" not in program.text
    assert left(tmp_path) == {"600": 1}


@linux
def test_handlers_of_a_module_that_runs_as_a_program(tmp_path: Path) -> None:
    package = tmp_path / "shop"
    package.mkdir()
    (package / "__init__.py").touch()
    source = HEAD.replace(".parent", ".parent.parent")
    (package / "app.py").write_text(source + SLOW + "from shop import more\n" + GUARDED)
    more = "@broker.queue('more').consumer(pool='process')\ndef work(n: int) -> None:\n"
    (package / "more.py").write_text(source + more + "    note('more', __name__, n)\n")
    with Broker(tmp_path / "app.db") as broker:
        broker.queue("jobs").put("0.1")
    program = Program(tmp_path, "-m", "shop.app")
    try:
        until(lambda: ["end", "0.1"] in said(tmp_path))
        program.process.send_signal(signal.SIGTERM)
        assert program.ends() == 0
        assert "cannot start" not in program.text
    finally:
        program.kill()
