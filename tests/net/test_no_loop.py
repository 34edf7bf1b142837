"""A process that is short of descriptors when it begins to serve: an error that says so."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
from pathlib import Path

import pytest

from embedq.broker.host import open_engine
from embedq.errors import ListenFailed, StoreFailed
from embedq.ipc.server import Server
from embedq.net.network import Network


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> asyncio.AbstractEventLoop:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr("asyncio.runners.events.new_event_loop", refuse)


# A coroutine that nobody has awaited warns when it is collected, which fails the test.


def test_listeners_that_can_have_no_loop_say_why_and_leave_no_coroutine_behind() -> None:
    with open_engine(":memory:") as desk:
        with pytest.raises(ListenFailed, match="Too many open files") as caught:
            Network(desk)
        assert "ulimit -n" in str(caught.value)
        gc.collect()


def test_a_host_that_can_have_no_loop_says_why_and_leaves_no_coroutine_behind(
    tmp_path: Path,
) -> None:
    with open_engine(tmp_path / "q.db") as desk:
        with pytest.raises(StoreFailed, match="Too many open files"):
            Server(desk, tmp_path / "q.db").start()
        gc.collect()
