"""A child made by fork keeps neither the port nor the connections of its parent."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import os, signal, socket, sys
from embedq import Broker
from tests.net.lines import LINES
from tests.net.client import Client

with Broker(sys.argv[1]) as broker:
    listener = broker.listen("lines://127.0.0.1:0", transport=LINES)
    address = listener.address
    client = Client(listener)
    client.put(b"x")
    ready, go = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(go, b"x")
        signal.pause()
        os._exit(0)
    os.read(ready, 1)
    client.put(b"y")
client.socket.settimeout(20)
assert client.socket.recv(1) == b"", "the child keeps the connection"
with socket.socket() as again:
    again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    again.bind(address)
    again.listen()
os.kill(pid, signal.SIGKILL)
os.waitpid(pid, 0)
print("fine")
"""


def test_clients_see_the_end_of_the_parent_and_its_port_is_free(tmp_path):
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, tmp_path / "q.db"],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "fine\n", done.stderr
