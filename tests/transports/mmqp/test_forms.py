"""How the forms of MMQP requests are told apart: by the next byte, a pause or the end."""

import pytest
from msgspec.structs import replace

from embedq_transports.mmqp.faults import Fault, FaultCode
from embedq_transports.mmqp.limits import MMQP_LIMITS, MmqpLimits
from embedq_transports.mmqp.requests import GroupPoll, Ping, Poll, Send, encode_request
from embedq_transports.mmqp.wire import ServerWire
from tests.transports.mmqp.vectors import NOBODY, QUEUE1, M, P, hexed

SEND = hexed(f"{M} {NOBODY} {QUEUE1}")
POLL = hexed(f"{P} {NOBODY} {QUEUE1}")
A = b"\x01\x01a"
B = b"\x01\x01b"
FOUR = Send("queue1", b"a")
FIVE = Send("queue1", b"b", "a")
NEXT = POLL + b"\xff"
LAST = Poll("queue1", 255)
SMALL = MmqpLimits(body_bytes=400, text_bytes=20, http_bytes=60)


def count(number) -> Poll:
    return Poll("queue1", number)


BAD = Fault(FaultCode.BAD_MAGIC, "the first bytes are neither MMQP nor an HTTP GET")
#: What may stand behind a count of these numbers without becoming a group.
JUNK = [
    *((number, b"\n") for number in range(9)),  # what `echo` leaves there
    *((number, b"\r\n") for number in range(9)),
    *((number, b"M") for number in range(9)),  # a request may begin so, and does not
    *((number, b"|\n") for number in range(1, 9)),
    *((number, b"|MMQ") for number in range(1, 9)),
    *((0, junk) for junk in (b"A", b"A\0", b"A|", b"\1a|0|", b"MMQX", b"x" * 9_999)),
    *((1, junk) for junk in (b"\x03mg", b"\x03mg1", b"\x03mg1x", b"\x03mg1MMQX", b"\x03mg1\n|0|")),
    *(
        (1, junk)
        for junk in (b"\1\xff", b"\1\xff\0", b"\1\xffx|", b"|" + b"x" * 125, b"\x03mg1MM")
    ),
    *((2, junk) for junk in (b"\1\0", b"\1\0" + b"g" * 256 + b"|0|", b"\xff" * 9_999)),
    (5, b"\n" * 5_000 + b"MMMQ"),
]


def waits(wire: ServerWire) -> bool:
    return wire.waits_for_quiet


def fault_of(data, limits=MMQP_LIMITS, *, end=False) -> Fault:
    wire = ServerWire(limits)
    events = wire.feed(data) + (wire.end() if end else [])
    assert isinstance(events[-1], Fault)
    assert wire.closed
    assert not wire.waits_for_quiet
    assert wire.feed(NEXT) == wire.quiet() == wire.end() == []
    return events[-1]


@pytest.mark.parametrize(("data", "expected"), [
    (SEND + A + b"\0", [FOUR]),
    (SEND + A + NEXT, [FOUR, LAST]),
    (SEND + A + b"\0" + NEXT, [FOUR, LAST]),
    (SEND + A + b"|" + B + b"\0", [FIVE]),
    (SEND + A + b"|" + B + b"|", [FIVE]),
    (SEND + A + b"|" + B + b"|\0" + NEXT, [FIVE, LAST]),
    (SEND + A + b"|" + B + NEXT, [FIVE, LAST]),
    (SEND + b"\0|" + B + b"\0", [Send("queue1", b"b", "")]),
    (SEND + A + b"|\0\0", [Send("queue1", b"", "a")]),
    (SEND + b"\x02\x00\x01a\0", [FOUR]),
    (POLL + b"\x09", [count(9)]),
    (POLL + b"\x09|\0" + NEXT, [count(9), LAST]),
    (POLL + b"\x30", [count(48)]),
    *((POLL + bytes((number, 0)), [count(number)]) for number in range(9)),
    *((POLL + bytes((number,)) + b"|" + NEXT, [count(number), LAST]) for number in range(9)),
    *((POLL + bytes((number,)) + NEXT, [count(number), LAST]) for number in range(9)),
    (POLL + b"\x01|\0", [count(1)]),
    (POLL + A + b"\0", [count(1)]),
    (POLL + A + b"\0" + NEXT, [count(1), LAST]),
    (POLL + A + NEXT, [count(1), LAST]),
    (POLL + b"\x02\0\x01", [count(2), BAD]),  # not its shortest coding
    (POLL + A + b"|0|", [GroupPoll("queue1", "a")]),
    (POLL + A + b"|0" + NEXT, [GroupPoll("queue1", "a"), LAST]),
    (POLL + A + b"|\0|\0" + NEXT, [GroupPoll("queue1", "a", ""), LAST]),
    (POLL + A + b"|\x01\x010|", [GroupPoll("queue1", "a", "0")]),
    (POLL + A + b"|" + B + b"|", [GroupPoll("queue1", "a", "b")]),
    (POLL + b"\0|0|", [GroupPoll("queue1", "")]),
    (POLL + b"\0|\0|", [GroupPoll("queue1", "", "")]),
    (POLL + b"\0|" + B + b"|", [GroupPoll("queue1", "", "b")]),
    (b"GET / HTTP/1.0\r\n\r\n", [Ping()]),
    (b"GET /ping\n\nMMQP", [Ping()]),
    (NEXT + b"GET /ping\n\n", [LAST, Ping()]),
])  # fmt: skip
def test_these_bytes_need_no_pause(data, expected):
    wire = ServerWire()
    assert wire.feed(data) == expected
    assert not wire.waits_for_quiet
    assert wire.quiet() == wire.end() == []


@pytest.mark.parametrize(("data", "expected"), [
    (SEND + A, FOUR),
    (SEND + A + b"|" + B, FIVE),
    *((POLL + bytes((number,)), count(number)) for number in range(9)),
    *((POLL + bytes((number,)) + b"|", count(number)) for number in range(9)),
    (b"GET /ping HTTP/1.1\r\n", Ping()),
])  # fmt: skip
def test_these_bytes_are_complete_after_a_pause_or_at_the_end(data, expected):
    for finish in (ServerWire.quiet, ServerWire.end):
        wire = ServerWire()
        assert wire.feed(data) == []
        assert waits(wire)
        assert finish(wire) == [expected]
        assert not waits(wire)
        assert wire.quiet() == wire.end() == []


@pytest.mark.parametrize("data", [
    b"", b"MM", SEND, SEND + b"\x01", SEND + A + b"|", SEND + A + b"|\x01\x05b", POLL,
    POLL + A + b"|", POLL + A + b"|\x01", POLL + b"\0|MM", NEXT + b"MMQ",
])  # fmt: skip
def test_a_pause_changes_nothing_where_more_must_come(data):
    wire = ServerWire()
    wire.feed(data)
    assert not wire.waits_for_quiet
    assert wire.quiet() == []
    events = wire.end()
    assert len(events) == bool(data)
    assert not data or events[0] == Fault(
        FaultCode.TRUNCATED, "the connection ended within a request"
    )


@pytest.mark.parametrize(("number", "junk"), JUNK)
def test_what_stands_behind_a_count_and_is_no_group_is_ignored(number, junk):
    for finish in (ServerWire.quiet, ServerWire.end):
        for pieces in ([junk], [junk[at : at + 1] for at in range(len(junk))]):
            wire = ServerWire()
            assert wire.feed(POLL + bytes((number,))) == []
            assert [wire.feed(piece) for piece in pieces] == [[]] * len(pieces)
            assert waits(wire)
            assert wire.pending
            assert len(wire._buffer) < 300, "what is ignored is not kept"
            assert finish(wire) == [count(number)]
            assert not waits(wire)


@pytest.mark.parametrize(("number", "junk"), JUNK)
def test_a_request_behind_what_is_ignored_is_not_lost(number, junk):
    # It would look stored: the list of the poll is followed by an orderly end.
    wire = ServerWire()
    events = wire.feed(POLL + bytes((number,)) + junk + b"\n" + NEXT * 9)
    assert events + wire.end() == [count(number), *[LAST] * 9]


def test_what_may_begin_the_next_request_is_kept_over_the_pause_behind_a_count():
    for junk in (b"", b"\n", b"\x03mg", b"\x03mg1"):
        wire = ServerWire()
        assert wire.feed(POLL + b"\x01" + junk + NEXT[:3]) == []
        assert wire.quiet() == [count(1)]
        assert wire.feed(NEXT[3:]) == [LAST]


@pytest.mark.parametrize("finish", [ServerWire.quiet, ServerWire.end])
def test_requests_within_what_might_have_become_a_group_are_complete_with_the_count(finish):
    wire = ServerWire()
    assert wire.feed(POLL + b"\x01\xfa" + POLL + b"\x09" + POLL + b"\x02\n" + SEND + A) == []
    assert finish(wire) == [count(1), count(9), count(2), FOUR]
    assert not waits(wire)


@pytest.mark.parametrize("behind", [b"|", b"|\0", b"|\x01a", b"|x"])
def test_with_its_bar_a_group_is_one(behind):
    wire = ServerWire()
    events = wire.feed(POLL + A + behind)
    assert not any(isinstance(event, Poll) for event in events + wire.quiet() + wire.end())


def test_what_may_begin_the_next_request_is_kept_over_the_pause():
    wire = ServerWire()
    assert wire.feed(SEND + A + NEXT[:2]) == []
    assert wire.quiet() == [FOUR]
    assert wire.feed(NEXT[2:]) == [LAST]


def test_a_byte_after_the_pause_begins_a_request():
    wire = ServerWire()
    wire.feed(SEND + A)
    assert wire.quiet() == [FOUR]
    assert wire.feed(NEXT) == [LAST]


@pytest.mark.parametrize(("data", "code"), [
    (b"X", FaultCode.BAD_MAGIC),
    (b"MMQX", FaultCode.BAD_MAGIC),
    (b"GEM", FaultCode.BAD_MAGIC),
    (b"get ", FaultCode.BAD_MAGIC),
    (NEXT + b"\0\0", FaultCode.BAD_MAGIC),
    (NEXT + b"\0|", FaultCode.BAD_MAGIC),
])  # fmt: skip
def test_another_protocol_is_not_answered(data, code):
    found = fault_of(data)
    assert (found.code, found.answer) == (code, b"")


@pytest.mark.parametrize(("data", "code"), [
    (b"MMQP?", FaultCode.BAD_REQUEST),
    (b"MMQP|\0|", FaultCode.BAD_REQUEST),
    (b"MMQP|\0.\x01.", FaultCode.BAD_REQUEST),
    (b"MMQP|\0.\x01|Mx", FaultCode.BAD_REQUEST),
    (b"MMQP|\x01", FaultCode.BAD_VERSION),
    (b"MMQP|1.1", FaultCode.BAD_VERSION),
    (b"MMQP|\0.\0", FaultCode.BAD_VERSION),
    (b"MMQP|\0.1", FaultCode.BAD_VERSION),
    (b"MMQP|0.2", FaultCode.BAD_VERSION),
    (b"MMQP|0.1|m|", FaultCode.UNKNOWN_COMMAND),
    (b"MMQP|0.1|R|", FaultCode.UNKNOWN_COMMAND),
    (b"MMQP|0.1|\xff|", FaultCode.UNKNOWN_COMMAND),
    (b"MMQP|0.1|M|\x09", FaultCode.BAD_REQUEST),
    (b"MMQP|0.1|M|\0|", FaultCode.BAD_REQUEST),
    (b"MMQP|0.1|M|\0:\0:", FaultCode.BAD_REQUEST),
    (b"MMQP|0.1|M|\0:\0|\0:", FaultCode.BAD_REQUEST),
    (b"MMQP|0.1|M|\x01\x01\xff:", FaultCode.BAD_REQUEST),
    (SEND + A + b"x", FaultCode.BAD_REQUEST),
    (SEND + A + b"MMQX", FaultCode.BAD_REQUEST),
    (SEND + A + b"|" + B + b"x", FaultCode.BAD_REQUEST),
    (SEND + A + b"|\x01\x01\xff", FaultCode.BAD_REQUEST),
    (POLL + A + b"|x", FaultCode.BAD_REQUEST),
    (POLL + b"\0|\x09", FaultCode.BAD_REQUEST),
    (POLL + b"\x01\x01\xff|", FaultCode.BAD_REQUEST),
    (POLL + A + b"|\x02\x01\x00", FaultCode.TOO_LARGE),
])  # fmt: skip
def test_a_broken_rule_is_answered_by_name_and_takes_nothing_out(data, code):
    found = fault_of(data)
    assert found.code == code
    assert found.answer.startswith(b"MMQP|0.1|R|" + code.name.encode() + b"|")
    assert found.answer.endswith(b"|0")
    assert found.answer.count(b"|") == 5
    found.answer.decode()


@pytest.mark.parametrize(("data", "what"), [
    (b"MMQP|0.1|M|\0|", "user name is 0x7c, not a colon"),
    (b"MMQP|0.1|M|\0:\0:", "password is 0x3a, not a bar"),
    (b"MMQP|0.1|P|\0:\0|\0\0", "queue name is 0x00, not a bar"),
])  # fmt: skip
def test_an_error_line_names_the_separator_that_is_missing_in_words(data, what):
    # A bar itself would be a space there, because it ends a field.
    expected = f"MMQP|0.1|R|BAD_REQUEST|the byte behind the {what}|0"
    assert fault_of(data).answer.decode() == expected


def test_the_text_version_is_read_too():
    for request in (FIVE, count(3), GroupPoll("queue1", "a")):
        data = encode_request(request, text_version=True)
        assert b"|0.1|" in data
        wire = ServerWire()
        assert wire.feed(data) + wire.end() == [request]


@pytest.mark.parametrize("field", ["user", "password", "queue", "group"])
def test_a_text_at_its_limit_is_read_and_one_more_refused(field):
    for request in (Send("", b"x", ""), GroupPoll("", "")):
        good = replace(request, **{field: "x" * 20})
        assert ServerWire(SMALL).feed(encode_request(good)) == [good]
        data = encode_request(replace(request, **{field: "x" * 21}))
        if field == "group" and isinstance(request, GroupPoll):
            wire = ServerWire(SMALL)  # what cannot be a group stands behind a count
            assert wire.feed(data) + wire.end() == [Poll("", 1)]
            continue
        found = fault_of(data, SMALL)
        assert found.code == FaultCode.TOO_LARGE
        assert "21 bytes, more than 20" in found.text


def test_a_body_at_its_limit_is_read_and_one_more_refused_before_it_comes():
    for group in (None, "g"):
        good = Send("q", b"x" * 400, group)
        assert ServerWire(SMALL).feed(encode_request(good)) == [good]
        data = encode_request(Send("q", b"x" * 401, group))
        assert fault_of(data[:-402], SMALL).code == FaultCode.TOO_LARGE
    assert MMQP_LIMITS.text_bytes == 255


def test_an_http_request_at_its_limit_is_read_and_one_more_refused_unanswered():
    good = b"GET " + b"x" * 52 + b"\r\n\r\n"
    assert len(good) == SMALL.http_bytes
    assert ServerWire(SMALL).feed(good) == [Ping()]
    assert ServerWire(SMALL).feed(NEXT + good) == [LAST, Ping()]
    found = fault_of(b"GET x" + good[4:], SMALL)
    assert (found.code, found.answer) == (FaultCode.TOO_LARGE, b"")


@pytest.mark.parametrize(("group", "any_group"), [("", True), ("0", True), ("00", False)])
def test_an_open_group_means_any(group, any_group):
    assert GroupPoll("q", group).any_group is any_group


def test_a_message_without_a_group_is_of_the_group_main():
    assert FOUR.ordering_group == Send("q", b"", "").ordering_group == "main"
    assert FIVE.ordering_group == "a"


def test_a_group_may_have_the_length_that_looks_like_a_bar_or_a_letter():
    for size in (77, 124):
        for first in "abcM":
            request = GroupPoll("q", first * size)
            assert ServerWire().feed(encode_request(request)) == [request]
    # Only this one is taken for a count and the next request: the rule of the specification.
    wire = ServerWire()
    assert wire.feed(encode_request(GroupPoll("q", "MQP" + "x" * 74)))[0] == Poll("q", 1)


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", b"GET /\n\n"])
def test_an_empty_line_that_comes_in_pieces_ends_the_request_at_its_last_byte(data):
    for cut in range(1, 5):
        wire = ServerWire()
        assert wire.feed(NEXT + data[:-cut]) == [LAST]
        pieces = [wire.feed(data[at : at + 1]) for at in range(len(data) - cut, len(data))]
        assert pieces == [[]] * (cut - 1) + [[Ping()]]
