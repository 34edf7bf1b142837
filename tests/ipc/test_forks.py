"""Children made by fork: they hold nothing of their parent's connections, and break nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import line_of

ROOT = Path(__file__).resolve().parents[2]

HOST = """
import os, sys
from pathlib import Path
from embedq.broker.host import open_engine
from embedq.ipc.server import Server
from tests.ipc.peer import Peer, eventually

path = Path(sys.argv[1])
desk = open_engine(path)
queue = desk.queue("q")
server = Server(desk, path)
server.start()
peer = Peer(server.endpoint)
peer.hello()
if sys.argv[2] == "live":
    print(server.endpoint, flush=True)
    sys.stdin.readline()
pid = os.fork()
if not pid:
    if sys.argv[2] == "exit":
        server.stop()
        sys.exit(0)
    sys.stdin.read()  # outlives the host
    os._exit(0)
if sys.argv[2] == "exit":
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    peer.put(queue.id, b"still served")
    peer.bye()
    peer.close()
    server.stop()
    desk.close()
    print("well")
else:
    os.kill(os.getpid(), 9)
"""


def start(path: Path, what: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", HOST, str(path), what],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_child_ends_and_its_parent_serves_on(tmp_path: Path) -> None:
    host = start(tmp_path / "q.db", "exit")
    try:
        out, _ = host.communicate(timeout=30)
    finally:
        host.kill()
        host.communicate()
    assert out == "well\n"
    assert host.returncode == 0


@pytest.mark.skipif(sys.platform != "linux", reason="only on Linux a socket names its path")
def test_clients_see_the_end_of_a_host_whose_child_lives_on(tmp_path: Path) -> None:
    import zmq

    from tests.ipc.peer import Peer

    host = start(tmp_path / "q.db", "live")
    assert host.stdin is not None
    try:
        endpoint = line_of(host).strip()
        with Peer(endpoint) as peer:
            monitor = peer.socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
            try:
                peer.hello()
                host.stdin.write("now\n")
                host.stdin.flush()
                assert monitor.poll(1_000), "the child keeps the connection open"
            finally:
                peer.socket.disable_monitor()
                monitor.close()
    finally:
        host.kill()
        host.communicate()
