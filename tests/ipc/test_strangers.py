"""What is found around the sockets: other users, files that the dead left, a folder that goes."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from embedq import Broker
from embedq.ipc import place
from tests.ipc.conftest import Served
from tests.ipc.peer import Peer, eventually

NOBODY = 65534

#: Connects as another user: says "refused" when the connection is closed, "welcome" if not.
STRANGER = """
import os, sys, zmq
if len(sys.argv) > 2:
    os.setgid(int(sys.argv[2]))
    os.setuid(int(sys.argv[2]))
socket = zmq.Context().socket(zmq.DEALER)
socket.setsockopt(zmq.LINGER, 0)
socket.setsockopt(zmq.RECONNECT_IVL, -1)
monitor = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_CLOSED | zmq.EVENT_CONNECT_RETRIED | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL)
socket.connect(sys.argv[1])
event = int.from_bytes(monitor.recv_multipart()[0][:2], sys.byteorder)
print("welcome" if event == zmq.EVENT_HANDSHAKE_SUCCEEDED else "refused", flush=True)
"""


def stranger(endpoint: str, user: int | None) -> str:
    done = subprocess.run(
        # It becomes somebody else once Python has loaded: its files may be closed to others.
        [sys.executable, "-c", STRANGER, endpoint, *([] if user is None else [str(user)])],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd="/",
    )
    return done.stdout.strip()


@pytest.fixture
def open_to_all(served: Served, tmp_path: Path) -> Served:
    """Open every folder on the way, so that nothing but the user can be the reason."""
    if os.geteuid() != 0:
        pytest.skip("only on machines where the tests run as root can there be another user")
    for folder in [tmp_path, *tmp_path.parents]:
        if folder.stat().st_uid == os.geteuid() and str(folder).startswith("/tmp/"):
            folder.chmod(folder.stat().st_mode | 0o055)
    at = Path(served.server.endpoint.removeprefix("ipc://"))
    at.parent.chmod(0o777)
    at.chmod(0o777)
    return served


def test_another_user_is_not_let_in_even_where_the_files_are_open(open_to_all: Served) -> None:
    endpoint = open_to_all.server.endpoint
    near = open_to_all.peer()
    assert stranger(endpoint, None) == "welcome"
    assert stranger(endpoint, NOBODY) == "refused"
    near.put(open_to_all.q, b"nobody else notices")
    assert open_to_all.server.stats.sessions == 1


def test_another_user_cannot_even_reach_the_folder(served: Served) -> None:
    if os.geteuid() != 0:
        pytest.skip("only on machines where the tests run as root can there be another user")
    assert stranger(served.server.endpoint, NOBODY) == "refused"


HOST = """
import sys
from embedq import Broker
broker = Broker(sys.argv[1], role="host")
broker.queue("orders").put("kept")
broker.backing.wait_until_served()
print("serving", flush=True)
sys.stdin.read()
"""


def test_what_a_killed_host_left_is_in_nobody_s_way(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    with subprocess.Popen(
        [sys.executable, "-c", HOST, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as host:
        assert host.stdout is not None
        assert host.stdout.readline() == b"serving\n"
        host.send_signal(signal.SIGKILL)
    folder = place.folder_of(path)
    left = {each.name for each in folder.iterdir()}
    assert left == {"1.sock"}
    assert (tmp_path / "app.db.lock").stat().st_size > 0
    assert place.find_host(path) is None
    with socket.socket(socket.AF_UNIX) as plain:
        plain.bind(str(folder / "2.sock"))  # even the name that the next host will use
    with Broker(path) as broker:
        (message,) = broker.queue("orders").peek()
        broker.backing.wait_until_served()
        assert message.body == b"kept"
        with Broker(path, role="client") as client:
            client.queue("orders").put("served")
        assert {each.name for each in folder.glob("*.sock")} == {"2.sock"}


def test_a_host_without_its_folder_serves_who_is_there_and_makes_it_anew(served: Served) -> None:
    near = served.peer()
    folder = place.folder_of(served.path)
    shutil.rmtree(folder)
    near.put(served.q, b"the connection that is there stays")
    eventually(lambda: folder.is_dir() and any(folder.glob("*.sock")))
    with Peer(served.server.endpoint) as other:
        other.hello()
        other.put(served.q, b"so do new ones")


def test_a_socket_path_is_never_too_long(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    with Broker(deep / "app.db") as host:
        host.backing.wait_until_served()
        with Broker(deep / "app.db", role="client") as client:
            client.queue("orders").put("x")
        assert len(host.queue("orders").peek()) == 1
    at = place.folder_of(deep / "app.db")
    assert len(os.fsencode(at)) < place.LONGEST
    shutil.rmtree(at, ignore_errors=True)
