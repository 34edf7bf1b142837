"""The original Python client of zbus, unmodified, comes back to a host that was killed.

EMBEDQ_ZBUSPY names further versions, as in test_zbus_clients.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.interop.host import hosting
from tests.interop.zbus_client import ZbusClient
from tests.processes import PATIENCE_S, line_of

PROGRAM = Path(__file__).with_name("zbuspy_returning.py")
FOLDERS = ["", *filter(None, os.environ.get("EMBEDQ_ZBUSPY", "").split(":"))]
#: An address of this process: while nobody listens there, nothing else is given the same port.
OWN = f"127.77.{os.getpid() // 250 % 250}.{1 + os.getpid() % 250}"
AFTER = ["one", "two", "three", "four", "five"]


@contextmanager
def staying(address: tuple[str, int], folder: str) -> Iterator[Callable[[], Any]]:
    """Run the program; what is given waits for its next line."""
    host, port = address
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), f"{host}:{port}"],
        env={**os.environ, "PYTHONPATH": folder},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield lambda: json.loads(line_of(process))
    finally:
        process.stdin.close()
        try:
            process.wait(PATIENCE_S)
        finally:
            process.kill()
            process.wait(PATIENCE_S)
            process.stdout.close()


def ask(address: tuple[str, int], body: object = None, **headers: Any) -> dict[str, Any]:
    """Ask once, as another client."""
    client = ZbusClient(address, PATIENCE_S)
    try:
        return client.ask(body, mq="q", **headers)
    finally:
        client.close()


def put(address: tuple[str, int], text: str) -> None:
    assert ask(address, text, cmd="pub")["status"] == 200


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_python_client_comes_back_to_a_host_that_was_killed(tmp_path, folder):
    path = tmp_path / "q.db"
    with hosting(path, f"zbus://{OWN}:0") as host:
        address = host.addresses[0]
        with staying(address, folder) as line:
            assert line() == ["subscribed", [200, 200]]
            assert ask(address, cmd="create", channel="other")["status"] == 200
            put(address, "before")
            assert line() == ["message", "before"]
            host.kill()
            with hosting(path, f"zbus://{OWN}:{address[1]}"):
                assert line() == ["subscribed", [200, 200]]
                for text in AFTER:
                    put(address, text)
                    # It may have been killed before it wrote down that it had sent this one.
                    while (told := line()) == ["message", "before"]:
                        pass
                    assert told == ["message", text]
                taken = ask(address, cmd="take", channel="other", window=9)["body"]
                assert [each["body"] for each in taken] == ["before", *AFTER]
