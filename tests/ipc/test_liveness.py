"""Which connection is whose: every order in which a monitor and messages can be read."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from embedq.ipc.liveness import (
    Connections,
    came_before,
    has_ended,
    peer_of,
    watch_process,
)


def test_the_owner_of_a_closed_connection_is_named() -> None:
    connections: Connections[str] = Connections()
    assert connections.accepted(5) is None
    assert connections.claim(5, "a") == (True, None)
    assert len(connections) == 1
    assert connections.closed(5) == "a"
    assert connections.closed(5) is None
    assert len(connections) == 0


def test_a_message_of_a_closed_connection_is_known_as_one() -> None:
    connections: Connections[str] = Connections()
    connections.accepted(5)
    connections.closed(5)
    assert connections.claim(5, "late") == (False, None)


def test_a_descriptor_that_is_used_again_is_another_connection() -> None:
    connections: Connections[str] = Connections()
    connections.accepted(5)
    connections.claim(5, "a")
    assert connections.closed(5) == "a"
    connections.accepted(5)
    assert connections.claim(5, "b") == (True, None)
    assert connections.closed(5) == "b"


def test_the_end_of_a_connection_follows_from_the_next_one() -> None:
    connections: Connections[str] = Connections()
    connections.accepted(5)
    connections.claim(5, "a")
    assert connections.accepted(5) == "a"


def test_a_late_message_gives_the_connection_up_to_its_true_owner() -> None:
    connections: Connections[str] = Connections()
    connections.accepted(5)
    connections.closed(5)
    connections.accepted(5)
    assert connections.claim(5, "late") == (True, None)
    assert connections.claim(5, "true") == (True, "late")
    assert connections.closed(5) == "true"


def test_a_late_message_takes_nothing_from_an_owner_that_connected_after_its_sender() -> None:
    connections: Connections[int] = Connections(lambda a, b: a < b)
    connections.accepted(5)
    connections.closed(5)
    connections.accepted(5)
    assert connections.claim(5, 2) == (True, None)
    assert connections.claim(5, 1) == (False, None)
    assert connections.claim(5, 2) == (True, None)
    assert connections.claim(5, 3) == (True, 2)
    assert connections.closed(5) == 3


@pytest.mark.parametrize(
    ("address", "other", "before"),
    [
        (b"l\0\0\0\0\1", b"l\0\0\0\0\2", True),
        (b"l\0\0\0\0\2", b"l\0\0\0\0\1", False),
        (b"l\0\0\0\0\1", b"l\0\0\0\0\1", False),
        (b"l\0\xff\xff\xff\xff", b"l\0\0\0\0\0", True),
        (b"l\0\0\0\0\0", b"l\0\xff\xff\xff\xff", False),
        (b"l\0\0\0\0\1", b"r\0\0\0\0\2", False),
        (b"lown-1", b"lown-2", False),
        (b"l\0\0\0\0\1", b"lown", False),
    ],
)
def test_addresses_that_were_counted_tell_who_connected_first(
    address: bytes, other: bytes, *, before: bool
) -> None:
    assert came_before(address, other) is before


def test_an_owner_has_one_connection_and_may_leave_it() -> None:
    connections: Connections[str] = Connections()
    for fd in (5, 6):
        connections.accepted(fd)
        assert connections.claim(fd, "a") == (True, None)
    assert connections.closed(5) is None
    connections.release("a")
    connections.release("a")
    assert connections.closed(6) is None


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["accepted", "closed", "claim", "release"]),
            st.integers(3, 6),
            st.sampled_from("abcd"),
        ),
        max_size=60,
    )
)
def test_whoever_is_said_to_be_connected_is_told_when_that_ends(
    steps: list[tuple[str, int, str]],
) -> None:
    connections: Connections[str] = Connections()
    connected: set[str] = set()
    for act, fd, owner in steps:
        gone: str | None = None
        if act == "accepted":
            gone = connections.accepted(fd)
        elif act == "closed":
            gone = connections.closed(fd)
        elif act == "release":
            connections.release(owner)
            connected.discard(owner)
        else:
            connected.discard(owner)
            is_open, gone = connections.claim(fd, owner)
            if is_open:
                connected.add(owner)
        if gone is not None:
            assert gone in connected
            connected.remove(gone)
    ended = {connections.closed(fd) for fd in range(3, 7)} - {None}
    assert ended == connected


def test_the_kernel_names_the_other_end() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        expected = os.getpid() if sys.platform == "linux" else None
        assert peer_of(ours.fileno()) == expected
    assert peer_of(100_000) is None
    with Path(os.devnull).open() as file:
        assert peer_of(file.fileno()) is None


def test_the_end_of_a_process_is_noticed() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    watch = watch_process(child.pid)
    try:
        if watch is not None:
            assert not has_ended(watch)
        child.kill()
        child.communicate()
        if watch is not None:
            assert has_ended(watch)
        assert watch_process(child.pid) is None
    finally:
        child.kill()
        child.communicate()
        if watch is not None:
            os.close(watch)
