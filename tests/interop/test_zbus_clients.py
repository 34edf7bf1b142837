"""Programs that were written for zbus, unmodified: the Python client of the registry, and curl.

EMBEDQ_ZBUSPY names folders of further versions of the Python client (separated by colons), into
which `pip install --target` has put them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from embedq import Broker
from embedq.net import TokenFile

PROGRAM = Path(__file__).with_name("zbuspy_program.py")
BODIES: list[Any] = [
    "hello",
    "héllo 你好 😀",
    "test",
    {"b": [1, 2.5, None], "a": "x"},
    [1],
    5,
    None,
]
FOLDERS = ["", *filter(None, os.environ.get("EMBEDQ_ZBUSPY", "").split(":"))]
OK = {"status": 200}


@pytest.fixture
def broker():
    with Broker(":memory:") as broker:
        yield broker


def zbuspy(folder: str, listener, *signing: str) -> dict[str, Any]:
    """Run the program, and return what it prints."""
    host, port = listener.address
    done = subprocess.run(
        [sys.executable, str(PROGRAM), f"{host}:{port}", *signing],
        env={**os.environ, "PYTHONPATH": folder},
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr.decode()
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def check_messages(told: dict[str, Any]) -> None:
    assert told["create"] == {"status": 200, "body": "OK, CREATE (mq=z,channel=c)"}
    assert told["sub"] == {"status": 200, "body": "OK, SUB (mq=z,channel=c)"}
    assert told["pub"] == [{"status": 200, "body": "OK, PUB (mq=z)"}] * len(BODIES)
    assert told["pushed"] == told["taken"] == BODIES
    assert told["tags"] == ["a.b"]
    assert told["nothing"] == {"status": 604, "body": []}
    assert told["query"] == "z"
    assert told["remove"] == {"status": 200, "body": "OK, REMOVE (mq=z)"}
    assert told["told"] == 404


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_python_client_puts_gets_takes_and_calls(broker, folder):
    told = zbuspy(folder, broker.listen("zbus://127.0.0.1:0"))
    check_messages(told)
    assert (told["sum"], told["form"], told["path"]) == (3, 7, 11)


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_python_client_signs_everything_it_sends(broker, tmp_path, folder):
    tokens = tmp_path / "tokens"
    tokens.touch(0o600)
    tokens.write_text("key secret\n")
    listener = broker.listen("zbus://127.0.0.1:0", auth=TokenFile(tokens))
    check_messages(zbuspy(folder, listener, "key", "secret"))
    assert listener.stats.refused == {}


def curl(listener, *arguments: str, data: bytes = b"") -> bytes:
    host, port = listener.address
    done = subprocess.run(
        [
            "curl",
            "-sS",
            "--max-time",
            "60",
            "--noproxy",
            "*",
            *arguments,
            f"http://{host}:{port}/",
        ],
        input=data,
        capture_output=True,
        check=False,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def test_curl_puts_and_takes(broker):
    listener = broker.listen("zbus://127.0.0.1:0")

    def ask(*headers: str, data: bytes | None = None, kind: str = "text/plain") -> bytes:
        options = [word for each in headers for word in ("-H", each)]
        if data is not None:
            options += ["-H", f"Content-Type: {kind}", "--data-binary", "@-"]
        return curl(listener, *options, data=data or b"")

    create = ask("cmd: create", "mq: q", "channel: c")
    assert create == b"OK, CREATE (mq=q,channel=c)"
    assert ask("cmd: pub", "mq: q", data="héllo".encode()) == b"OK, PUB (mq=q)"
    much = bytes(range(256)) * 8_000  # more than curl sends without being asked to go on
    assert (
        ask("cmd: pub", "mq: q", data=much, kind="application/octet-stream") == b"OK, PUB (mq=q)"
    )
    (text,) = json.loads(ask("cmd: take", "mq: q", "channel: c"))
    assert text["body"] == "héllo"
    with broker.queue("q").get(timeout=60, group="c") as delivery:
        assert delivery.body == much
    assert ask("cmd: pub", "mq: q", "Expect: 100-continue", data=b"x") == b"OK, PUB (mq=q)"
    status = curl(listener, "-o", os.devnull, "-w", "%{http_code}", "-H", "cmd: take")
    assert status == b"400"
    form = curl(listener, "-H", "cmd: pub", "-H", "mq: q", "-F", "a=1", "-F", "f=@-", data=b"file")
    assert form == b"OK, PUB (mq=q)"
    found = json.loads(ask("cmd: take", "mq: q", "channel: c", "window: 2"))[1]["body"]
    assert found["attributes"] == {"a": "1"}
    assert found["files"]["f"][0]["data"] == "ZmlsZQ=="


@pytest.mark.parametrize("option", ["--http1.0", "--http1.1", "--head"])
def test_curl_speaks_any_http_1(broker, option):
    listener = broker.listen("zbus://127.0.0.1:0")
    curl(listener, "-H", "cmd: create", "-H", "mq: q")
    answer = curl(listener, option, "-i", "-H", "cmd: query", "-H", "mq: q")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert (b'"name":"q"' in answer) == (option != "--head")
