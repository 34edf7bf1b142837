"""Programs and servers in a terminal of their own: Ctrl-C, SIGHUP and SIGQUIT."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from embedq import Broker
from tests.app.served import PATIENCE_S, began, environment, eventually, members, write

pytestmark = [
    pytest.mark.reliability,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only on Linux: /proc"),
]

BIND = ["--bind", "127.0.0.1:0", "--chdir", "src"]
COMMANDS = {
    "script": ["shop.web"],
    "run": ["embedq", "run", "shop.web:broker"],
    "dev": ["embedq", "dev", "shop.web:broker"],
    "uvicorn": ["uvicorn", "--port", "0", "--app-dir", "src", "shop.web:asgi"],
    "uvicorn-workers": ["uvicorn", "--port=0", "--workers=2", "--app-dir=src", "shop.web:asgi"],
    "gunicorn": ["gunicorn", "--workers", "2", *BIND, "--config", "hooks.py", "shop.web:wsgi"],
}
#: Takes the terminal of its standard input as its own, as a shell does for what it starts.
LEADER = """
import fcntl, os, signal, sys, termios
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
    signal.signal(number, signal.SIG_DFL)  # nohup, for one, has them ignored
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


class Foreground:
    """A program in the foreground of a terminal of its own."""

    def __init__(self, folder: Path, command: Sequence[str]) -> None:
        write(folder)
        self.path = folder / "shop.db"
        with Broker(self.path) as broker:
            broker.queue("orders", str).put("orders-slow")
            broker.queue("heavy", str).put("heavy-slow")
        self._ours, theirs = pty.openpty()
        env = environment(folder)
        env["PYTHONPATH"] = os.pathsep.join([str(folder / "src"), env["PYTHONPATH"]])
        self.process = subprocess.Popen(
            [sys.executable, "-c", LEADER, "-m", *command],
            cwd=folder,
            env=env,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        self._printed: list[bytes] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with suppress(OSError):  # the last one that had the terminal is gone
            while data := os.read(self._ours, 4096):
                self._printed.append(data)

    @property
    def text(self) -> str:
        """What it has printed."""
        return b"".join(self._printed).decode("utf-8", "replace")

    def type(self, keys: bytes) -> None:
        """Press keys: the terminal makes a signal of some."""
        os.write(self._ours, keys)

    def ends(self) -> int:
        """Return the exit code; nobody that it has started may live on."""
        code = self.process.wait(PATIENCE_S)
        eventually(lambda: not members(self.process.pid))
        self._reader.join(PATIENCE_S)
        return code

    def close(self) -> None:
        """End everything."""
        for pid in members(self.process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self._reader.join(PATIENCE_S)
        os.close(self._ours)


@contextmanager
def foreground(folder: Path, name: str) -> Iterator[Foreground]:
    program = Foreground(folder, COMMANDS[name])
    try:
        eventually(lambda: began(program.path) == 2 or program.process.poll() is not None)
        assert began(program.path) == 2
        yield program
    except AssertionError as failure:
        failure.add_note(program.text)
        raise
    finally:
        program.close()


def left(path: Path) -> dict[str, int]:
    """Return which attempt the next delivery of a message would be, where it is left."""
    with Broker(path) as broker:
        queues = {name: broker.queue(name, str).get_many(10) for name in ("orders", "heavy")}
        return {name: each.attempt for name, got in queues.items() for each in got}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_ctrl_c_leaves_no_process_no_traceback_and_no_attempt(tmp_path: Path, name: str) -> None:
    with foreground(tmp_path, name) as program:
        program.type(b"\x03")
        assert program.ends() == 0
        assert "Traceback" not in program.text
        assert "KeyboardInterrupt" not in program.text
    assert set(left(tmp_path / "shop.db").values()) <= {1}


def test_a_sigquit_to_gunicorn_lets_its_workers_drain(tmp_path: Path) -> None:
    with foreground(tmp_path, "gunicorn") as program:
        program.process.send_signal(signal.SIGQUIT)
        assert program.ends() == 0
        assert "Traceback" not in program.text
    assert left(tmp_path / "shop.db") == {}


ENDS = [
    ("script", signal.SIGHUP),
    ("script", signal.SIGQUIT),
    ("run", signal.SIGHUP),
    ("dev", signal.SIGHUP),
    ("uvicorn", signal.SIGQUIT),
]


@pytest.mark.parametrize(("program_name", "number"), ENDS)
def test_a_signal_that_ends_a_program_at_once_loses_nothing(
    tmp_path: Path, program_name: str, number: signal.Signals
) -> None:
    with foreground(tmp_path, program_name) as program:
        program.process.send_signal(number)
        assert program.ends() == -number
    with Broker(tmp_path / "shop.db") as broker:
        done = {json.loads(each.body)["order"] for each in broker.queue("done").peek(10)}
        for name in ("orders", "heavy"):
            assert f"{name}-slow" in done or broker.queue(name).stats().length == 1
