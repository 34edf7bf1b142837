"""Processes in namespaces of their own, as in containers, on one file in a shared volume."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from embedq.storage.owners import owner_of
from tests.app.served import ROOT, eventually

#: Pids, network, mounts: a container without an image. What unshare starts is process 1 there.
CONTAINER = ["--fork", "--kill-child", "--pid", "--mount-proc", "--net", "--ipc", "--mount"]
#: All of the file system can only be read, but for the volume.
READ_ONLY = 'mount --bind "$0" "$0" && mount -o remount,bind,ro / && exec "$@"'
PROGRAM = """
import os, sys, time
from embedq import Broker

name = sys.argv[1]
broker = Broker(os.environ["EMBEDQ_PATH"], grace="5s")
orders = broker.queue("orders", str)

def say(*words):
    with open(f"{os.path.dirname(broker.settings.path)}/{name}.txt", "a") as said:
        print(os.getpid(), *words, file=said)

@orders.consumer
def ship(order: str) -> None:
    say("begins", order)
    while order == "slow" and name == "first":
        time.sleep(0.1)
    say("ships", order)

if name == "writer":
    orders.put(sys.argv[2])
    broker.stop()
else:
    report = broker.run()
    say("ended", report.stuck)
"""


def can_have_namespaces() -> bool:
    unshare = shutil.which("unshare")
    if unshare is None:
        return False
    done = subprocess.run([unshare, *CONTAINER, "true"], capture_output=True, check=False)
    return done.returncode == 0


pytestmark = [
    pytest.mark.reliability,
    pytest.mark.skipif(not can_have_namespaces(), reason="only on Linux, by root: namespaces"),
]


class Volume:
    """A folder that containers share, and the program in them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "shop.db"
        self.program = folder / "program.py"
        self.program.write_text(PROGRAM)
        self.env = {**os.environ, "EMBEDQ_PATH": str(self.path), "PYTHONPATH": str(ROOT)}

    def command(self, *arguments: str) -> list[str]:
        """Return what runs the program in a container with a root that can only be read."""
        inside = [sys.executable, "-B", str(self.program), *arguments]
        return ["unshare", *CONTAINER, "sh", "-c", READ_ONLY, str(self.folder), *inside]

    @contextmanager
    def container(self, name: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run the program until the block ends."""
        process = subprocess.Popen(self.command(name), cwd=self.folder, env=self.env)
        try:
            yield process
        finally:
            process.kill()  # --kill-child: process 1 of the container goes with it
            process.wait()

    def put(self, order: str) -> None:
        """Put from a container that ends then."""
        command = self.command("writer", order)
        subprocess.run(command, cwd=self.folder, env=self.env, check=True, timeout=120)

    def said(self, name: str) -> list[str]:
        """Return the lines of a container, each with the pid that it has seen of itself."""
        told = self.folder / f"{name}.txt"
        return told.read_text().splitlines() if told.exists() else []


@pytest.fixture
def volume() -> Iterator[Volume]:
    # A long path would have its sockets elsewhere, where nothing can be written.
    with tempfile.TemporaryDirectory(prefix="volume-", dir="/tmp") as folder:
        yield Volume(Path(folder))


def child_of(process: subprocess.Popen[bytes]) -> int:
    """Return process 1 of a container, as it is called outside."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    eventually(lambda: children.read_text().split())
    return int(children.read_text().split()[0])


def test_containers_share_a_file_and_one_takes_the_place_of_one_that_is_killed(
    volume: Volume,
) -> None:
    with volume.container("first") as first:
        eventually(lambda: (owner := owner_of(volume.path)) is not None and owner.alive)
        volume.put("slow")
        eventually(lambda: volume.said("first") == ["1 begins slow"])
        with volume.container("second") as second:
            volume.put("one")
            eventually(lambda: "1 ships one" in volume.said("second"))
            first.kill()
            eventually(lambda: "1 ships slow" in volume.said("second"))
            volume.put("two")
            eventually(lambda: "1 ships two" in volume.said("second"))
            os.kill(child_of(second), signal.SIGTERM)  # process 1 has a handler for it
            assert second.wait(60) == 0
    assert volume.said("second")[-1] == "1 ended 0"
    assert volume.said("first") == ["1 begins slow"]
    owner = owner_of(volume.path)
    assert owner is not None
    assert owner.clean
