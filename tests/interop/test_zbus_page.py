"""A page with some lines of JavaScript, in a real browser without a window, speaks to zbus.

Chromium is Debian's package; .ci/run installs it. It is told to know no host but this one.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from embedq import Broker, Empty
from embedq.app.listeners import BrokerListener

PAGE = Path(__file__).with_name("zbus_page.html")
PATIENCE_S = 120.0
BODIES = ["hello", "héllo 你好 😀", {"b": [1, 2.5, None]}, 5, "by HTTP"]


@contextmanager
def browsing(listener: BrokerListener, folder: Path) -> Iterator[None]:
    """Show the page; the browser and all of its processes are ended with the context.

    `folder`: everything that it writes. It keeps a socket there, whose path must be short.
    """
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("Chromium is missing: apt-get install chromium")
    address = listener.address
    assert isinstance(address, tuple)
    with (folder / "browser.log").open("wb") as log:
        process = subprocess.Popen(
            [
                program,
                "--headless",
                "--no-sandbox",  # CI is root in a container
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--disable-background-networking",
                "--disable-component-update",
                "--no-first-run",
                "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
                f"--user-data-dir={folder / 'profile'}",
                "--remote-debugging-port=0",  # without it, it ends as soon as the page is there
                f"{PAGE.as_uri()}?{address[0]}:{address[1]}",
            ],
            env={**os.environ, "HOME": str(folder), "TMPDIR": str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            yield
        finally:
            process.terminate()  # it ends the others of its group
            try:
                process.wait(PATIENCE_S)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait(PATIENCE_S)


@pytest.fixture
def broker():
    with Broker(":memory:") as broker:
        yield broker


@pytest.fixture
def folder():
    # What is killed may still be writing.
    with TemporaryDirectory(ignore_cleanup_errors=True) as name:
        yield Path(name)


def told(broker: Broker, listener: BrokerListener, folder: Path) -> dict[str, Any]:
    """Show the page, and return what it puts into the queue of its results."""
    results = broker.queue("told", bytes)
    results.put(b"the queue is there")
    with browsing(listener, folder):
        results.get(timeout=PATIENCE_S).ack()
        try:
            with results.get(timeout=PATIENCE_S) as message:
                found: dict[str, Any] = json.loads(message.body)
        except Empty:
            raise AssertionError((folder / "browser.log").read_text()) from None
    return found


def test_a_page_puts_gets_and_takes_over_websocket_and_http(broker, folder):
    assert told(broker, broker.listen("zbus://127.0.0.1:0?cors=*&origins=*"), folder) == {
        "created": "OK, CREATE (mq=q,channel=c)",
        "subscribed": "OK, SUB (mq=q,channel=c)",
        "put": [200, 200, 200, 200],
        "fetched": [200, "OK, PUB (mq=q)"],
        "pushed": BODIES,
        "taken": BODIES,
        "nothing": 604,
        "missing": "MQ(nowhere) Not Found",
    }


def test_a_page_of_another_origin_sends_nothing_over_http_unless_it_may(broker, folder):
    found = told(broker, broker.listen("zbus://127.0.0.1:0?origins=null"), folder)
    assert found == {"failed": "TypeError: Failed to fetch"}
