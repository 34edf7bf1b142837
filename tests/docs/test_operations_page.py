"""docs/operations.md: its service runs and stops as it says, its tables and numbers are true.

Its commands and its Python are run by test_console.py and test_pages.py.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from embedq import Broker, errors
from embedq.broker.desk import Desk
from embedq.catalogue import CATALOGUE
from embedq.limits import LIMITS, MIB
from embedq.storage import placement
from embedq.storage.space import DiskSpace
from tests.docs.markdown import ROOT, blocks
from tests.docs.test_storage_page import plain, table_under

PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")


def only_block(info: str) -> str:
    (text,) = [block.text for block in blocks(PAGE) if block.info == info]
    return text


def first_column(heading: str) -> list[str]:
    return [plain(row[0]) for row in table_under(PAGE, heading)]


# --- the service -------------------------------------------------------------------------------


@contextmanager
def service(folder: Path) -> Iterator[subprocess.Popen[str]]:
    (folder / "service.py").write_text(only_block("python no-run"))
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "service.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "EMBEDQ_PATH": str(folder / "shop.db")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    # Who waits for a line that never comes would wait for ever.
    end = threading.Timer(120, process.kill)
    end.start()
    try:
        yield process
    finally:
        end.cancel()
        process.kill()
        process.communicate(timeout=60)


def put(folder: Path, order: str) -> None:
    with Broker(folder / "shop.db") as broker:
        broker.queue("orders", str).put(order)


def wait_for(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if text in line:
            return
    raise AssertionError(f"the service ended without printing {text!r}, but\n{''.join(lines)}")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_service_works_until_a_signal_and_ends_in_order(
    tmp_path: Path, number: signal.Signals
) -> None:
    put(tmp_path, "teapot")
    with service(tmp_path) as process:
        wait_for(process, "shipped teapot, attempt 1")
        process.send_signal(number)
        assert process.wait(timeout=60) == 0
    assert [path.name for path in tmp_path.glob("shop.db-*")] == []


def test_the_service_ends_when_its_store_has_stopped(tmp_path: Path) -> None:
    put(tmp_path, "teapot")
    with service(tmp_path) as process:
        wait_for(process, "shipped teapot")
        (tmp_path / "shop.db").rename(tmp_path / "moved.db")
        wait_for(process, "stopped")
        process.wait(timeout=60)


# --- tables and numbers --------------------------------------------------------------------------


def test_every_file_beside_a_database_is_on_the_page(tmp_path: Path) -> None:
    told = first_column("Where the file lives")
    with Broker(tmp_path / "shop.db") as broker:
        broker.queue("orders").put("teapot")
        host = broker.desk
        assert isinstance(host, Desk)
        host.store.look_around()  # the ballast is made then
        assert {path.name for path in tmp_path.iterdir()} <= set(told)
        modes = {path: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
        assert modes == {path: 0o700 if path.is_dir() else 0o600 for path in modes}
    # A journal is SQLite's before the file has a log: embedq never leaves one.
    suffixes = [suffix for suffix in placement._BESIDE if suffix != "-journal"]
    assert {f"shop.db{suffix}" for suffix in suffixes} <= set(told)


def test_every_error_of_the_store_has_its_row() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    codes = {
        kind.code
        for kind in kinds
        if issubclass(kind, errors.StorageError) and kind is not errors.StorageError
    }
    beside = {"insecure_listener"}  # what an endpoint without keys is
    assert set(first_column("… an error names the store")) == codes | beside


def test_sizes_are_those_of_the_limits(tmp_path: Path) -> None:
    space = DiskSpace(
        placement.prepare(tmp_path / "shop.db"), LIMITS.disk_watermark_bytes, LIMITS.ballast_bytes
    )
    again = space.resume_bytes
    space.drop_ballast()
    assert first_column("Room on the disk") == [
        f"{LIMITS.disk_watermark_bytes // MIB} MiB and more",
        "less",
        "nothing",
        f"{again // MIB} MiB again, {space.resume_bytes // MIB} MiB after it was all used up",
    ]
    assert f"Above {LIMITS.wal_limit_bytes // MIB} MiB the host logs" in PAGE
    assert f"| {LIMITS.ballast_bytes // MIB} MiB, given up" in PAGE
    assert f"for more than {LIMITS.busy_timeout_s:g} s" in PAGE


def test_every_event_of_the_page_exists() -> None:
    (part,) = re.findall(r"Wake\s+somebody for (.*?) the next morning", PAGE, re.DOTALL)
    named = re.findall(r"`(\w+)`", part)
    assert len(named) > 5
    assert set(named) <= CATALOGUE.keys()


def test_the_numbers_to_watch_are_in_the_json(tmp_path: Path) -> None:
    put(tmp_path, "teapot")
    done = subprocess.run(
        [sys.executable, "-m", "embedq", "--db", str(tmp_path / "shop.db"), "stats", "--json"],
        stdout=subprocess.PIPE,
        check=True,
        timeout=60,
    )
    found = json.loads(done.stdout)
    (queue,) = found["queues"]
    known = {*found, *queue} | {name for group in queue["groups"] for name in group}
    rows = [row for row in table_under(PAGE, "What to watch") if row[0].startswith("`")]
    told = {re.findall(r"`(\w+)`", row[0])[0] for row in rows}
    assert told
    assert told <= known | {"leased", "waiting"}
