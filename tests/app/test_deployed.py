"""One file behind real servers with three workers: kills, new code, signals, the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from embedq import Broker
from tests.app.served import PATIENCE_S, Served, began, eventually, members, served, write

pytestmark = [
    pytest.mark.reliability,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only on Linux: /proc"),
]

UVICORN = ["uvicorn", "--workers", "3", "--port", "PORT", "--app-dir", "src"]
#: A busy machine takes longer to start a worker than uvicorn waits for it.
PATIENT = ["--timeout-worker-healthcheck", str(int(PATIENCE_S))]
GUNICORN = ["gunicorn", "--workers", "3", "--bind", "127.0.0.1:PORT", "--chdir", "src"]
#: gunicorn reads its configuration before it goes to --chdir.
SYNC = [*GUNICORN, "--config", "hooks.py", "shop.web:wsgi"]
COMMANDS = {
    "uvicorn": [*UVICORN, *PATIENT, "shop.web:asgi"],
    "gunicorn": SYNC,
    "gunicorn-preload": [*SYNC, "--preload"],
    "gunicorn-asgi": [*GUNICORN, "-k", "uvicorn_worker.UvicornWorker", "shop.web:asgi"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_workers_of_a_server_share_a_file_until_the_server_ends(tmp_path: Path, name: str) -> None:
    write(tmp_path)
    with served(tmp_path, COMMANDS[name]) as server:
        server.puts("1", "2", "3")
        eventually(lambda: set(server.taken) <= server.handled())
        threads = {told["pid"] for told in server.told() if told["order"].startswith("orders")}
        processes = {told["pid"] for told in server.told() if told["order"].startswith("heavy")}
        assert server.host in members(server.process.pid)
        assert not threads & processes
        _kill_the_host(server)
        if name == "uvicorn":
            eventually(lambda: _has_replaced(server))
            server.process.send_signal(signal.SIGQUIT)  # which its master takes for nothing
        _give_it_new_code(server, tmp_path, keeps_the_old_code="preload" in name)
        _end(server)


def _kill_the_host(server: Served) -> None:
    """Another worker takes its place, and the server starts a new one."""
    host = server.host
    assert host is not None
    os.kill(host, signal.SIGKILL)
    server.puts("4", "5", "6")
    eventually(lambda: server.host not in {None, host})
    eventually(lambda: set(server.taken) <= server.handled())


def _has_replaced(server: Served) -> bool:
    """Whether the one that was killed has a successor that serves: a server asked before waits."""
    return server.text.count("Application startup complete") == 4


def _give_it_new_code(server: Served, folder: Path, *, keeps_the_old_code: bool) -> None:
    """SIGHUP replaces each worker by one that loads the code anew."""
    write(folder, "v2")
    before = set(members(server.process.pid)) - {server.process.pid}
    server.process.send_signal(signal.SIGHUP)
    eventually(lambda: not before & set(members(server.process.pid)) - _trackers(server))
    server.puts("new")
    eventually(lambda: set(server.taken) <= server.handled())
    assert server.versions("orders-new") == {"v1" if keeps_the_old_code else "v2"}
    # A worker process is started anew and imports what is there.
    assert server.versions("heavy-new") == {"v2"}


def _trackers(server: Served) -> set[int]:
    """Return the helpers that multiprocessing has started for the server itself."""
    found = set()
    for pid in members(server.process.pid):
        with suppress(OSError):  # it has ended meanwhile
            if b"resource_tracker" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.add(pid)
    return found


def _end(server: Served) -> None:
    """SIGTERM stops everything in order: nobody is left, and nothing is lost."""
    server.puts("slow")
    eventually(lambda: began(server.path) == 2)
    server.let_go()
    server.process.send_signal(signal.SIGTERM)
    assert server.ends() == 0
    assert server.lost() == set()
    assert "Traceback" not in server.text
    assert not server.path.with_name("shop.db.fatal").exists()


# --- the looks above, shown something wrong ------------------------------------------------------


def test_a_message_that_is_gone_and_a_process_that_stays_are_noticed(tmp_path: Path) -> None:
    leaves_a_child = "import subprocess; print(subprocess.Popen(['sleep', '60']).pid)"
    with subprocess.Popen(
        [sys.executable, "-c", leaves_a_child], stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        assert process.wait(60) == 0
    assert members(process.pid) == [child]
    os.kill(child, signal.SIGKILL)
    server = Served(tmp_path, 0, process)
    server.let_go()
    server.taken += ["done", "waiting", "gone"]
    with Broker(server.path) as broker:
        broker.queue("done").put({"order": "done"})
        broker.queue("heavy").put("waiting")
    assert server.lost() == {"gone"}
