"""What MMQP servers write, and how our client reads it: error lines, limits, broken answers."""

import pytest

from embedq_transports.mmqp import answers
from embedq_transports.mmqp.client import (
    BadAnswer,
    ClientWire,
    EndOfRecords,
    ErrorLine,
    Pong,
    Silence,
)
from embedq_transports.mmqp.limits import MmqpLimits
from embedq_transports.mmqp.strings import Code
from tests.transports import wire_checks

RECORD = answers.Record(b"abc", "main", 5, 6, 7, b"i" * 64)
ONE = answers.encode_records([RECORD])
NONE = answers.encode_records([])


@pytest.mark.parametrize("code", Code)
@pytest.mark.parametrize(("detail", "written"), [
    ("", ""), ("plain", "plain"), ("a|b\r\nc\0\x7f\x9f", "a b  c   "), ("é\udc80", "é "),
])  # fmt: skip
def test_an_error_line_has_no_bars_or_control_characters_of_others(code, detail, written):
    line = answers.encode_error(code, detail)
    line.decode()
    if code is Code.QUEUE_NOT_FOUND:
        written = detail.replace("\udc80", "?")
    assert line == f"MMQP|0.1|R|{code.value}|{written}|0".encode()
    assert wire_checks.whole(ClientWire, line) == [ErrorLine(code.value, written)]


def test_a_queue_name_with_bars_comes_back_as_it_came():
    line = answers.encode_error(Code.QUEUE_NOT_FOUND, "a|b|0")
    assert wire_checks.whole(ClientWire, line) == [ErrorLine("QUEUE_NOT_FOUND", "a|b|0")]


def test_nothing_and_the_end_is_the_sign_of_a_stored_message():
    wire = ClientWire()
    assert wire.end() == [Silence()]
    assert wire.end() == wire.feed(b"x") == []


def test_a_zero_ends_the_records_and_another_answer_may_follow():
    wire = ClientWire()
    assert wire.feed(ONE + NONE) == [RECORD, EndOfRecords(), EndOfRecords()]
    assert wire.end() == []
    assert wire_checks.whole(ClientWire, NONE + answers.PONG) == [EndOfRecords(), Pong()]


def test_an_id_is_cut_or_filled_and_a_count_stays_at_its_largest():
    made = answers.Record(b"", "g", 0, 0, 1 << 40, b"short")
    (found, _) = wire_checks.whole(ClientWire, answers.encode_records([made]))
    assert found == answers.Record(b"", "g", 0, 0, (1 << 32) - 1, b"short".ljust(64, b"\0"))
    other = answers.Record(b"", "g", 0, 0, 0, b"i" * 99)
    assert len(answers.encode_records([made])) == len(answers.encode_records([other]))


@pytest.mark.parametrize("data", [
    b"X", b"MMQP|0.2", b"HTTP/1.1 500", ONE[:-1], ONE[:20], NONE[:-1], answers.PONG + b"x",
    answers.PONG[:-1], b"MMQP|0.1|R|", b"MMQP|0.1|R|CODE|detail", b"MMQP|0.1|R|CODE",
    NONE[:-1] + b"\x09", NONE[:-1] + b"\x01\x05abcde", ONE.replace(b"\x03abc", b"\x04abc"),
    ONE.replace(b"\x03abc", b"\x02abc"), ONE.replace(b"abc", b"ab\xff"),
])  # fmt: skip
def test_anything_else_is_a_bad_answer(data):
    wire = ClientWire()
    events = wire.feed(data) + wire.end()
    assert isinstance(events[-1], BadAnswer)
    assert wire.feed(ONE) == wire.end() == []


def test_a_record_at_the_limit_is_read_and_one_more_is_not():
    size = len(ONE) - len(NONE) - 2
    assert wire_checks.whole(lambda: ClientWire(MmqpLimits(answer_bytes=size)), ONE)[0] == RECORD
    wire = ClientWire(MmqpLimits(answer_bytes=size - 1))
    (event,) = wire.feed(ONE[:13])
    assert isinstance(event, BadAnswer)
    assert f"{size} bytes, more than {size - 1}" in event.text


def test_an_error_line_at_the_limit_is_read_and_one_more_is_not():
    line = answers.encode_error(Code.QUEUE_FULL, "x" * 20)
    assert isinstance(
        wire_checks.whole(lambda: ClientWire(MmqpLimits(http_bytes=len(line))), line)[0],
        ErrorLine,
    )
    (event,) = ClientWire(MmqpLimits(http_bytes=len(line) - 1)).feed(line)
    assert isinstance(event, BadAnswer)
