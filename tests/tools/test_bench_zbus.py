"""The benchmark of zbus compares what belongs together, runs, and sees what is slow.

No test here asserts how fast anything is.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest
from websockets.frames import Frame
from websockets.protocol import SERVER, Protocol, State

import bench
import bench_listener_plan as plan
import bench_listener_sides as sides
import bench_listeners
import bench_zbus
import bench_zbus_bytes as zbus
from bench_listener_wires import TEXT, ZBUS, ZBUS_HTTP
from tests.docs import markdown

TINY = replace(plan.QUICK, slot_s=0.02, backlog=1_000, idle=8, active=4, active_s=0.1)


def test_every_row_names_cells_that_are_run_in_turns() -> None:
    groups = [set(group) for group in bench_zbus.groups(bench_zbus.KEYS, 1_000)]
    for row in bench_zbus.ROWS:
        assert any({row.cell, row.against} <= group for group in groups), row.title
    assert bench_zbus.groups(["memory"], 1_000) == []


def test_a_frame_of_a_client_is_read_by_a_reader_that_is_not_its_own() -> None:
    for text in (b"x", b"y" * 1_000):
        protocol = Protocol(SERVER, state=State.OPEN)
        protocol.receive_data(zbus.frame(text))
        (found,) = protocol.events_received()
        assert isinstance(found, Frame)
        assert found.data == text


def test_frames_are_found_whatever_the_cuts() -> None:
    frames = b"\x81\x01a" + b"\x81\x7e\x01\x00" + b"b" * 256 + b"\x81\x00"
    data = b"HTTP/1.1 101 x\r\n\r\n" + frames
    for size in (1, 2, 7, len(data)):
        reader = zbus.Frames()
        found = [
            payload
            for at in range(0, len(data), size)
            for payload in reader.feed(data[at : at + size])
        ]
        assert found == [b"a", b"b" * 256, b""]


def test_a_window_is_opened_again_once_at_half_of_it() -> None:
    consumer = zbus.Subscriber("q", "c")

    def push(left: int) -> bytes:
        text = b'{"headers":{"window":"%d"}}' % left
        return consumer.came(bytes((0x81, len(text))) + text, over=False)

    assert consumer.came(b"HTTP/1.1 101 x\r\n\r\n", over=False) == b""
    assert [bool(push(left)) for left in (99, 51, 50, 49, 48, 99, 50)] == [
        *(False, False, True, False, False, False, True)
    ]


def test_clients_that_wait_for_each_answer_have_everything_stored(tmp_path: Path) -> None:
    with closing(bench_zbus.asking(tmp_path)) as cell:
        cell.run_for(0.02)
        assert cell.end()[bench_zbus.WAITED].rate > 0


@pytest.mark.parametrize(
    ("what", "verb", "wire"), [("http", "ask", ZBUS_HTTP), ("echo", "echo", ZBUS)]
)
def test_clients_of_a_bare_library_are_answered(what, verb, wire) -> None:
    with closing(bench_zbus.bare("a", what, verb, wire, 2)) as cell:
        cell.run_for(0.1)
        assert cell.end()["a"].rate > 0


def test_a_server_that_refuses_what_is_put_ends_the_benchmark() -> None:
    with closing(bench_zbus.Bare("echo")) as server, ExitStack() as stack:
        client = sides.client_program("ask", ZBUS_HTTP, server.port, 1)
        stack.callback(client.close)
        with pytest.raises(RuntimeError, match="has ended"):
            client.ask(0.02)


def test_subscribers_are_pushed_what_there_is(tmp_path: Path) -> None:
    with closing(sides.listener_takes("a", tmp_path, ZBUS, 2, 1_000)) as cell:
        cell.run_for(0.1)
        assert cell.end()["a"].rate > 0


if os.environ.get("EMBEDQ_TEST_LONG"):  # that of another protocol is always looked for

    def test_a_planted_slowdown_of_puts_over_http_is_seen(tmp_path: Path) -> None:
        # Under a heavy load one attempt may be all noise; what is planted is there every time.
        planted_s = bench_listeners.PLANTED_S
        looked = (bench_zbus.look_for(tmp_path, TINY, planted_s, 1) for _ in range(3))
        assert any(seen for _, _, _, seen in looked)


def test_the_page_has_room_for_the_tables() -> None:
    page = (markdown.ROOT / "docs" / "performance-zbus.md").read_text(encoding="utf-8")
    assert "new" in bench.insert(page, "new\n")
    assert len(TEXT) == 1_024
