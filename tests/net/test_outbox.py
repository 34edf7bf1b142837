"""What a connection has to send: in order, small pieces together, large ones not copied."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

from embedq.net.outbox import Outbox

LARGE = bytes(70_000)


class Transport:
    """Takes everything, and notes each piece as it came."""

    def __init__(self) -> None:
        self.pieces: list[Any] = []

    def set_write_buffer_limits(self, high: int) -> None:
        """Nothing waits here."""

    def write(self, data: object) -> None:
        self.pieces.append(data)

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False


def sent(*parts: bytes) -> list[Any]:
    transport, left = Transport(), list[int]()
    outbox = Outbox(cast("Any", transport))

    def note(number: int, gone: bool) -> None:  # noqa: FBT001  # what Left says
        assert gone
        left.append(number)

    for number, part in enumerate(parts):
        outbox.add(part, partial(note, number))
    assert outbox.unsent == outbox.written == sum(map(len, parts))
    outbox.flush()
    assert left == list(range(len(parts)))
    assert b"".join(transport.pieces) == b"".join(parts)
    return transport.pieces


def test_small_pieces_are_sent_together():
    assert sent(b"a", b"b", b"c") == [b"abc"]


def test_a_large_piece_is_sent_as_it_is_and_the_small_ones_around_it_together():
    first, large, last = sent(b"a", b"b", LARGE, b"c", b"d")
    assert (first, last) == (b"ab", b"cd")
    assert large.obj is LARGE


def test_large_pieces_keep_their_order():
    other = bytes(80_000)
    pieces = sent(LARGE, b"a", other)
    assert [getattr(each, "obj", each) for each in pieces] == [LARGE, b"a", other]


def test_many_small_pieces_may_be_much_together():
    assert len(sent(*[b"x" * 1_000] * 100)) == 1


def test_who_waits_for_what_went_before_sends_nothing():
    assert sent(b"a", b"", b"b") == [b"ab"]
    assert sent(b"") == []
