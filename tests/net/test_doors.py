"""A process without a free file descriptor says so once, and lets clients in when it has some."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from embedq.net.doors import AGAIN_S
from embedq.net.listener import Listener
from tests.brim import BRIM
from tests.processes import kill, line_of

FULL = (
    BRIM
    + """
import asyncio, sys, time
from collections import Counter
from embedq import Broker

def until(true):
    while not true():
        time.sleep(0.01)  # the test ends us

asyncio.constants.ACCEPT_RETRY_DELAY = 0.01
broker = Broker(":memory:")  # serves no other process, which would tell of itself
broker.queue("q")
broker.start()
listeners = [broker.listen("sspq://127.0.0.1:0?queue=q") for _ in range(2)]
tried = Counter()
loop = broker._listening._network.loop
before = loop.get_exception_handler() or type(loop).default_exception_handler

def count(loop, context):
    if "socket" in context:
        tried[context["socket"].fileno()] += 1
    before(loop, context)

loop.set_exception_handler(count)
taken = brim()
print(*(each.url for each in listeners), flush=True)
until(lambda: len(tried) == 2 and min(tried.values()) > 5)
if sys.argv[1] == "goes on":
    for each in taken:
        os.close(each)
    until(lambda: all(each.stats.accepted for each in listeners))
broker.stop()
"""
)


@contextmanager
def full(end: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", FULL, end]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            kill(process)


@pytest.mark.parametrize("end", ["goes on", "stops"])
def test_a_process_without_a_descriptor_tells_so_once_for_each_listener(end):
    with full(end) as process, ExitStack() as clients:
        urls = line_of(process).split()
        for url in urls:
            port = int(url.partition("?")[0].rpartition(":")[2])
            clients.enter_context(socket.create_connection(("127.0.0.1", port)))
        _, told = process.communicate(timeout=60)
    assert process.returncode == 0, told
    lines = told.splitlines()
    assert len(lines) == len(urls), told
    for url in urls:
        (line,) = [line for line in lines if line.startswith(url)]
        assert "Too many open files" in line
        assert "(`ulimit -n`, LimitNOFILE=)" in line


# --- how often, and what else there is -----------------------------------------------------------


@pytest.fixture
def listener(listen) -> Listener:
    inner = listen().inner
    assert inner is not None
    return inner


def fail(listener: Listener, **context: object) -> None:
    """Let the loop hear of a failure."""
    network = listener._network

    async def call() -> None:
        network.loop.call_exception_handler({"message": "it failed", **context})

    network.run(call())


def no_room(listener: Listener, why: int = errno.EMFILE) -> None:
    sock = listener._site._bound[0]
    fail(listener, exception=OSError(why, os.strerror(why)), socket=sock)


def test_it_is_told_again_when_it_still_is_so_after_a_while(listener, clock, caplog):
    for _ in range(3):
        no_room(listener)
        clock.advance(AGAIN_S / 2 - 1)
    assert len(caplog.records) == 1
    clock.advance(10)
    no_room(listener)
    assert len(caplog.records) == 2
    assert {record.levelname for record in caplog.records} == {"WARNING"}


@pytest.mark.parametrize(
    ("why", "hint"), [(errno.ENFILE, "this machine"), (errno.ENOMEM, "memory")]
)
def test_what_there_is_too_little_of_is_told(listener, caplog, why, hint):
    no_room(listener, why)
    (record,) = caplog.records
    assert os.strerror(why) in record.message
    assert hint in record.message


def test_other_failures_are_told_as_by_any_loop(listener, caplog):
    fail(listener, exception=ValueError("of a callback"))
    no_room(listener, errno.EPERM)
    with socket.socket() as foreign:
        fail(listener, exception=OSError(errno.EMFILE, "of another"), socket=foreign)
    fail(listener)
    assert [record.name for record in caplog.records] == ["asyncio"] * 4
    assert "of a callback" in caplog.text
