"""Frames: every one survives the wire, garbage is refused, neighbours understand each other."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest
from hypothesis import given, strategies as st

from embedq.ipc import frames
from embedq.storage.rows import Row, Stored

INTS = st.integers(-(1 << 63), (1 << 63) - 1)
ROW = Row(0, 1 << 31, 9, 1, None, "key", None, b"\x80", b"body", "dedup", 1 << 50)
STORED = Stored(1, 2, 3, 4, 5, 6, None, 8, "key", None, None, bytes(range(256)))
LEASE = frames.WireLease(1, 2, -1, 30_000, 0, suspect=True, message=STORED)
ENDING = frames.WireEnding(1, 2, 3, 2, b"\x90", 5, 3, "rejected", "why \U0001f980", "ann")
TOKEN = frames.Token(1, 2, 1 << 62)

REQUESTS: list[frames.Requests] = [
    frames.Hello([1, 2], bytes(16), "näme", 7),
    frames.Hello([1], bytes(16), "", 7, 3, [frames.Held(1, 2, 3, started=True)], "/m", bytes(16)),
    frames.Put(1, 2, 3, [b"", b"x" * 1000], 4),
    frames.PutRows(1, 2, [ROW, ROW], None, 5),
    frames.Exchange(1, []),
    frames.Exchange(1, [ENDING, ENDING], 2, 3, None, 4, keep=True, seen=5),
    frames.Cancel(1),
    frames.Extend(1, TOKEN, 2),
    frames.Keep(TOKEN, on=False),
    frames.Call(1, "verb", msgspec.Raw(b"\x92\x01\x02")),
    frames.Listen(["a", "b"]),
    frames.Bye(1),
]
ANSWERS: list[frames.Answers] = [
    frames.Welcome(1, 2, 3, 4, bytes(16), 5, [(0, 9)], 6),
    frames.Stored_(1, 2),
    frames.Receipts(1, [2, 3], [1]),
    frames.Exchanged(1, [LEASE, LEASE], [0]),
    frames.Done(1),
    frames.Result(1, msgspec.Raw(b"\xc0")),
    frames.Progress(1, 2, 3),
    frames.Failed(1, "code", "message", None, {"a": [1, None, "x"]}),
    frames.Told("dead", 1.5, {"queue": "q", "seq": 7}),
    frames.Lost([1, 2]),
    frames.Leaving("why"),
    frames.Refused("code", "message", [1]),
]


def is_same(one: object, other: object) -> bool:
    """Compare by bytes: what is raw has no equality."""
    return msgspec.msgpack.encode(one) == msgspec.msgpack.encode(other)


def test_every_frame_is_tried_here() -> None:
    assert {type(each) for each in REQUESTS} == set(get_args(frames.Requests))
    assert {type(each) for each in ANSWERS} == set(get_args(frames.Answers))


def test_frames_survive_the_wire_alone_and_together() -> None:
    for requests in [REQUESTS, *[[each] for each in REQUESTS], []]:
        found = frames.decode_requests(frames.encode(requests))
        assert [type(each) for each in found] == [type(each) for each in requests]
        assert is_same(found, requests)
    for answers in [ANSWERS, *[[each] for each in ANSWERS], []]:
        back = frames.decode_answers(frames.encode(answers))
        assert [type(each) for each in back] == [type(each) for each in answers]
        assert is_same(back, answers)


@given(st.lists(st.tuples(INTS, INTS, st.lists(st.binary(), max_size=5), INTS), max_size=5))
def test_any_puts_survive_the_wire(puts: list[tuple[int, int, list[bytes], int]]) -> None:
    requests = [frames.Put(n, queue, 0, bodies, seen) for n, queue, bodies, seen in puts]
    assert frames.decode_requests(frames.encode(requests)) == requests


@given(st.binary(max_size=200))
def test_garbage_is_refused_or_understood_and_nothing_else(data: bytes) -> None:
    for decode in (frames.decode_requests, frames.decode_answers):
        try:
            found = decode(data)
        except frames.ProtocolError:
            continue
        assert isinstance(found, list)


@given(st.sampled_from(REQUESTS), st.integers(0, 1 << 20), st.binary(max_size=3))
def test_a_damaged_message_is_refused_or_understood(
    request: frames.Requests, at: int, what: bytes
) -> None:
    message = frames.encode([request])
    at %= len(message)
    for rest in (b"", message[at + 1 :]):
        try:
            found = frames.decode_requests(message[:at] + what + rest)
        except frames.ProtocolError:
            continue
        assert all(isinstance(each, frames.Request) for each in found)


@pytest.mark.parametrize(
    "data", [b"\x91" * 100_000, b"\xdd\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"", b"\x90\x90"]
)
def test_nesting_huge_lengths_and_leftovers_are_refused_at_once(data: bytes) -> None:
    with pytest.raises(frames.ProtocolError) as caught:
        frames.decode_requests(data)
    assert caught.value.code == "protocol_error"


def test_a_newer_neighbour_may_add_fields_at_the_end() -> None:
    newer = msgspec.msgpack.encode([[2, 1, 7, 0, [b"x"], 3, "new", 4]])
    assert frames.decode_requests(newer) == [frames.Put(1, 7, 0, [b"x"], 3)]
    older = msgspec.msgpack.encode([[2, 1, 7, 0, [b"x"]]])
    assert frames.decode_requests(older) == [frames.Put(1, 7, 0, [b"x"])]


def test_no_two_frames_have_the_same_number() -> None:
    asked = msgspec.msgpack.decode(frames.encode(REQUESTS))
    assert len({frame[0] for frame in asked}) == len(get_args(frames.Requests))
    told = msgspec.msgpack.decode(frames.encode(ANSWERS))
    assert len({frame[0] for frame in told}) == len(get_args(frames.Answers))
