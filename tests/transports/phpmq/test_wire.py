"""The PHPMQ wire: vectors both ways, every cut, separators, faults, limits, numbers."""

import hashlib
from collections import Counter

import pytest

from embedq.errors import InvalidOption, LimitExceeded
from embedq_transports.phpmq.wire import (
    WIRE_LIMITS,
    Ack,
    ClientWire,
    Consume,
    DeadLetter,
    Dispatch,
    Event,
    Fault,
    FaultCode,
    Form,
    Message,
    Publish,
    Receipt,
    Requeue,
    ServerWire,
    WireLimits,
    encode,
    seconds_left,
)
from tests.transports import wire_checks
from tests.transports.phpmq.vectors import (
    BIG,
    BY_NAME,
    ID,
    V45_HEADER,
    V45_SHA256,
    VECTORS,
    Vector,
)

IDS = [vector.name for vector in VECTORS]
CANONICAL = [vector for vector in VECTORS if vector.canonical]
LF, CRLF = Form(36, b"\n"), Form(32, b"\r\n")
HEADER = b"H0100102P01%029d"


def coded(events: list[Event]) -> list[Event | FaultCode]:
    return [event.code if isinstance(event, Fault) else event for event in events]


def only_fault(events: list[Event]) -> Fault:
    (fault,) = events
    assert isinstance(fault, Fault)
    return fault


def wire_for(vector: Vector) -> ClientWire | ServerWire:
    return ClientWire(form=vector.form or Form()) if vector.from_server else ServerWire()


# --------------------------------------------------------------------------- vectors


@pytest.mark.parametrize("vector", VECTORS, ids=IDS)
def test_a_vector_is_read(vector):
    wire = wire_for(vector)
    events = [event for piece in vector.pieces for event in wire.feed(piece)]
    assert coded([*events, *wire.end()]) == vector.events
    assert wire.form == vector.form


@pytest.mark.parametrize("vector", CANONICAL, ids=lambda vector: vector.name)
def test_a_vector_is_written(vector):
    written = b"".join(encode(message, vector.form) for message in vector.events)
    assert written == vector.data


def test_the_vector_of_five_mebibytes_is_read_and_written():
    written = encode(Publish(b"Big", BIG))
    assert written.startswith(V45_HEADER)
    assert hashlib.sha256(written).hexdigest() == V45_SHA256
    assert ServerWire().feed(written) == [Publish(b"Big", BIG)]


def test_the_vectors_are_all_here():
    assert len(VECTORS) == len(BY_NAME) == 31
    assert len(CANONICAL) == 21
    assert sum(vector.from_server for vector in VECTORS) == 3
    forms = Counter(vector.form for vector in VECTORS)
    assert forms[None] == 5
    assert set(forms) == {None, Form(), Form(35), Form(36), LF, Form(36, b"\r\n")}


@pytest.mark.parametrize("vector", VECTORS, ids=IDS)
def test_a_vector_cut_anywhere_is_the_same(vector):
    whole = wire_checks.whole(lambda: wire_for(vector), vector.data)
    for cut in range(min(400, len(vector.data))):
        assert wire_checks.split(lambda: wire_for(vector), vector.data, [cut]) == whole
    if len(vector.data) < 1_000:
        every = range(len(vector.data))
        assert wire_checks.split(lambda: wire_for(vector), vector.data, every) == whole


# --------------------------------------------------------------------------- reading


@pytest.mark.parametrize("form", [Form(), Form(35), LF, CRLF, Form(32, b"\n")])
def test_all_messages_of_a_client_are_read_in_its_form(form):
    messages: list[Message] = [
        Publish(b"Foo", b"H0100102P01\r\n"),
        Publish(b"Foo", b"", 60),
        Consume(b"Foo", 5),
        Ack(b"Foo", ID),
        Requeue(b"Foo", ID, 7),
        DeadLetter(b"Foo", b"x"),
    ]
    wire = ServerWire()
    assert wire.feed(b"".join(encode(message, form) for message in messages)) == messages
    assert wire.form == form
    assert not wire.pending


@pytest.mark.parametrize(
    ("message", "knows"),
    [
        (Publish(b"q", b""), False),
        (Publish(b"q", b"", 0), True),
        (Consume(b"q", 1), False),
        (Ack(b"q", b"1"), False),
        (Requeue(b"q", b"1"), True),
        (DeadLetter(b"q", b"1"), True),
    ],
)
def test_a_client_of_2018_shows_itself(message, knows):
    wire = ServerWire()
    wire.feed(encode(message) + encode(Ack(b"q", b"2")))
    assert wire.speaks_ttl is knows


def test_packages_may_come_in_any_order_in_any_message():
    data = b"H0100503P05" + b"%029d" % 1 + b"9P03" + b"%029d" % 2 + b"ab"
    data += b"P01" + b"%029d" % 1 + b"q"
    assert ServerWire().feed(data) == [Requeue(b"q", b"ab", 9)]


@pytest.mark.parametrize("breaks", [b"\n", b"\r\n", b"\r", b"\n\n\r\r"])
@pytest.mark.parametrize("form", [Form(), LF, CRLF])
def test_line_breaks_before_a_header_mean_nothing(breaks, form):
    data = encode(Ack(b"q", b"1"), form)
    wire = ServerWire()
    assert wire.feed(breaks + data + breaks + data + breaks) == [Ack(b"q", b"1")] * 2
    assert not wire.pending
    assert wire.end() == []


@pytest.mark.parametrize("form", [LF, CRLF])
def test_the_separator_after_a_content_may_be_missing(form):
    data = encode(Publish(b"q", b"x"), form)
    after_name = data.replace(b"q" + form.separator, b"q")
    at_the_end = data.removesuffix(form.separator)
    wire = ServerWire()
    events = wire.feed(after_name + at_the_end + data)
    assert events == [Publish(b"q", b"x")] * 3
    assert wire_checks.split(ServerWire, after_name + at_the_end, range(300)) == events[:2]


def test_a_message_counts_before_its_last_separator():
    assert ServerWire().feed(encode(Ack(b"q", b"1"), CRLF)[:-2]) == [Ack(b"q", b"1")]


def test_a_content_may_begin_with_line_breaks():
    for form in (Form(), Form(36), LF, CRLF):
        message = Publish(b"\nq", b"\r\n\r\nP01")
        assert ServerWire().feed(encode(message, form)) == [message]


def test_complete_messages_count_before_the_end():
    wire = ServerWire()
    assert wire.feed(BY_NAME["V22"].data + b"H01") == BY_NAME["V22"].events
    assert wire.pending
    fault = only_fault(wire.end())
    assert (fault.code, fault.offset) == (FaultCode.TRUNCATED, 307)
    assert wire.closed
    assert wire.feed(BY_NAME["V01"].data) == wire.end() == []


def test_a_fault_says_where_and_keeps_what_arrived():
    wire = ServerWire()
    events = wire.feed(BY_NAME["V02"].data + b"HEAD / HTTP/1.1\r\n" + bytes(100))
    assert events[0] == Consume(b"Foo", 5)
    fault = only_fault(events[1:])
    assert (fault.code, fault.offset) == (FaultCode.HEADER, 76)
    assert wire.evidence == b"HEAD / HTTP/1.1\r\n" + bytes(47)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"h", FaultCode.HEADER),
        (b"HE", FaultCode.HEADER),
        (b"H01001x2", FaultCode.HEADER),
        (b"H0000102", FaultCode.VERSION),
        (b"H0100702", FaultCode.TYPE),
        (b"H0100101", FaultCode.COUNT),
        (b"H0100203", FaultCode.COUNT),
        (b"H0100502", FaultCode.COUNT),
        (b"H0100102 ", FaultCode.FORM),
        (b"H0100102\rP", FaultCode.FORM),
        (b"H0100102\nX", FaultCode.PACKAGE),
        (b"H0100102\nP01" + b"0" * 40, FaultCode.FORM),
        (b"H0100102\nP01003\n", FaultCode.FORM),
        (b"H0100102P04" + b"0" * 28 + b"1", FaultCode.PACKAGE),
        (b"H0100102P01" + b"0" * 27 + b"+1", FaultCode.NUMBER),
        (b"H0100102P01" + b" " * 28 + b"1", FaultCode.NUMBER),
        (HEADER % 1 + b"qX", FaultCode.PACKAGE),
        (HEADER % 1 + b"q\n", FaultCode.PACKAGE),
        (HEADER % 1 + b"qP03" + b"%029d" % 1, FaultCode.PACKAGE),
        (b"H0100402P01%029dqP03%029d" % (1, 0), FaultCode.LENGTH),
        (b"H0100202P01%029dqP04%029d-1" % (1, 2), FaultCode.NUMBER),
        (b"H0100202P01%029dqP04%029d\xb2" % (1, 1), FaultCode.NUMBER),
    ],
)
def test_what_cannot_become_a_message_is_a_fault_at_once(data, code):
    assert coded(ServerWire().feed(data)) == [code]
    assert coded(wire_checks.split(ServerWire, data, range(len(data)))) == [code]


def test_another_width_or_separator_later_is_a_fault():
    first = BY_NAME["V01"].data
    for form in (Form(35), Form(36), LF, CRLF):
        events = ServerWire().feed(first + encode(Ack(b"q", b"1"), form))
        assert isinstance(events[-1], Fault)
        assert events[:-1] == [Publish(b"Foo", b"Hello World")]
    for form in (Form(), CRLF, Form(32, b"\n")):
        wire = ServerWire(form=LF)
        assert isinstance(wire.feed(encode(Ack(b"q", b"1"), form))[-1], Fault)


def test_a_client_takes_only_what_servers_send():
    for message in (Publish(b"q", b""), Consume(b"q", 1), Ack(b"q", b"1"), Requeue(b"q", b"1")):
        assert not isinstance(ClientWire().feed(encode(message))[0], type(message))
    assert coded(ServerWire().feed(encode(Receipt(b"q", b"1")))) == [FaultCode.COUNT]


# --------------------------------------------------------------------------- limits, numbers


def test_every_limit_holds_on_both_sides():
    limits = WireLimits(name_bytes=5, content_bytes=7, id_bytes=3, number_digits=4)
    message: Message
    for message in (
        Publish(b"12345", b"1234567", 1234),
        Consume(b"q", 1234),
        Ack(b"q", b"123"),
    ):
        assert ServerWire(limits=limits).feed(encode(message)) == [message]
        assert encode(message, limits=limits) == encode(message)
    for message in (
        Publish(b"123456", b""),
        Publish(b"q", b"12345678"),
        Publish(b"q", b"", 12_345),
        Consume(b"q", 12_345),
        Ack(b"q", b"1234"),
    ):
        assert coded(ServerWire(limits=limits).feed(encode(message))) == [FaultCode.LENGTH]
        with pytest.raises((LimitExceeded, InvalidOption)):
            encode(message, limits=limits)


def test_a_length_beyond_its_limit_is_a_fault_before_its_content():
    largest = WIRE_LIMITS.content_bytes
    start = b"H0100102P01%029dqP02" % 1
    assert ServerWire().feed(start + b"%029d" % largest) == []
    assert coded(ServerWire().feed(start + b"%029d" % (largest + 1))) == [FaultCode.LENGTH]
    assert coded(ServerWire().feed(HEADER % 256)) == [FaultCode.LENGTH]


def test_an_announced_content_takes_no_memory():
    wire = ServerWire()
    wire.feed(b"H0100102P01%029dqP02%029dabc" % (1, WIRE_LIMITS.content_bytes))
    assert bytes(wire._rest) == b"abc"


def test_names_are_bounded_by_what_tells_the_widths_apart():
    assert WireLimits(name_bytes=999).name_bytes == 999
    for bad in (0, 1_000):
        with pytest.raises(InvalidOption, match="name_bytes"):
            WireLimits(name_bytes=bad)


@pytest.mark.parametrize(
    ("digits", "window"),
    [
        (b"", 0),
        (b"007", 7),
        (b"65535", 65_535),
        (b"65536", 65_535),
        (b"9" * 20, 65_535),
        (b"9" * 32, 65_535),
    ],
)
def test_a_window_is_read_as_the_original_meant_it(digits, window):
    data = b"H0100202P01%029dqP04%029d%s" % (1, len(digits), digits)
    assert ServerWire().feed(data) == [Consume(b"q", window)]


def test_a_time_to_live_is_bounded_and_may_be_empty():
    start = b"H0100103P01%029dqP02%029dP05" % (1, 0)
    assert ServerWire().feed(start + b"%029d" % 0) == [Publish(b"q", b"", 0)]
    far = ServerWire().feed(start + b"%029d%s" % (32, b"9" * 32))
    assert far == [Publish(b"q", b"", WIRE_LIMITS.ttl_max_s)]


@pytest.mark.parametrize(
    ("left_ms", "seconds"),
    [(None, 0), (-5, 1), (0, 1), (1, 1), (1_000, 1), (1_001, 2), (3_300_000, 3_300)],
)
def test_the_seconds_left_are_rounded_up_and_never_say_for_ever(left_ms, seconds):
    assert seconds_left(left_ms) == seconds


# --------------------------------------------------------------------------- writing


def test_numbers_below_zero_and_empty_ids_are_not_written():
    for message in (Consume(b"q", -1), Publish(b"q", b"", -1), Requeue(b"q", b"1", -1)):
        with pytest.raises(InvalidOption, match="-1"):
            encode(message)
    with pytest.raises(LimitExceeded, match="id"):
        encode(Ack(b"q", b""))


def test_a_dispatch_in_lines_ends_with_one_separator():
    assert encode(Dispatch(b"q", b"x\n", b"1"), LF).endswith(b"\n1\n")
    assert encode(Dispatch(b"q", b"x\n", b"1")).endswith(b"1")


def test_bytearrays_and_views_are_read_and_not_kept():
    data = bytearray(BY_NAME["V01"].data)
    wire = ServerWire()
    assert wire.feed(memoryview(data)[:50]) == []
    rest = data[50:]
    events = wire.feed(rest)
    rest[:] = bytes(len(rest))
    assert events == BY_NAME["V01"].events


def test_a_form_that_nobody_speaks_is_refused():
    for width, separator in ((33, b""), (32, b"\r")):
        with pytest.raises(InvalidOption, match="no PHPMQ form"):
            Form(width, separator)
