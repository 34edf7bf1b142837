"""One socket to one host: who wakes it, and how the end of the host shows."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from embedq.ipc import frames
from embedq.ipc.line import Line
from tests.ipc.scripted import ScriptedHost, hello, until

Wake = tuple[socket.socket, socket.socket]


@pytest.fixture
def wake() -> Iterator[Wake]:
    ends = socket.socketpair()
    yield ends
    for end in ends:
        end.close()


def gone(line: Line) -> bool:
    line.poll(0.05)
    return line.is_gone


def test_messages_go_to_and_fro(tmp_path: Path, wake: Wake) -> None:
    with ScriptedHost(tmp_path) as host, Line(host.endpoint, 1 << 20, wake[1]) as line:
        line.send(frames.encode([hello()]))
        host.welcome()
        assert line.poll(10) is False
        (data,) = line.received()
        assert isinstance(frames.decode_answers(data)[0], frames.Welcome)
        assert line.received() == []


def test_who_wants_to_send_wakes_it(tmp_path: Path, wake: Wake) -> None:
    with ScriptedHost(tmp_path) as host, Line(host.endpoint, 1 << 20, wake[1]) as line:
        assert line.poll(0.01) is False
        wake[0].send(b"\0")
        assert line.poll(10) is True


def test_the_end_of_the_host_shows(tmp_path: Path, wake: Wake) -> None:
    with ScriptedHost(tmp_path) as host, Line(host.endpoint, 1 << 20, wake[1]) as line:
        line.send(frames.encode([hello()]))
        host.welcome()
        assert not gone(line)
        host.end()
        until(lambda: gone(line))


def test_an_address_where_nobody_is_shows_at_once(tmp_path: Path, wake: Wake) -> None:
    with Line(f"ipc://{tmp_path}/nobody", 1 << 20, wake[1]) as line:
        until(lambda: gone(line))


def test_a_message_that_is_too_large_ends_the_connection(tmp_path: Path, wake: Wake) -> None:
    with ScriptedHost(tmp_path) as host, Line(host.endpoint, 1_000, wake[1]) as line:
        line.send(frames.encode([hello()]))
        host.get(frames.Hello)
        host.raw(bytes(2_000))
        until(lambda: gone(line))
        assert line.received() == []


def test_a_host_that_ends_between_the_look_and_the_message_keeps_nobody(
    tmp_path: Path, wake: Wake
) -> None:
    with ScriptedHost(tmp_path) as host, Line(host.endpoint, 1 << 20, wake[1]) as line:
        line.send(frames.encode([hello()]))
        host.welcome()
        assert line.can_send
        host.end()

        def sent() -> bool:
            line.send(b"lost with the host")  # nobody has asked the monitor: it must find out
            return line.is_gone

        until(sent)


def test_a_greeting_to_a_host_that_is_gone_keeps_nobody(tmp_path: Path, wake: Wake) -> None:
    with Line(f"ipc://{tmp_path}/nobody", 1 << 20, wake[1]) as line:
        until(lambda: line._monitor.poll(0))
        line.send(frames.encode([hello()]))
        until(lambda: gone(line))
