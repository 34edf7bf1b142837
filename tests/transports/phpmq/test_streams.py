"""Whole PHPMQ connections: nine forms told apart, round trips, damage, planted bugs, time."""

import random
from collections import Counter

import pytest
from hypothesis import given, strategies as st

from embedq_transports.phpmq.wire import (
    WIRE_LIMITS,
    Ack,
    ClientWire,
    Consume,
    DeadLetter,
    Dispatch,
    Fault,
    FaultCode,
    Form,
    Message,
    Publish,
    Receipt,
    Requeue,
    ServerWire,
    WireLimits,
    decoder,
    encode,
    encoder,
)
from embedq_transports.phpmq.wire.form import form_of
from tests.transports import wire_checks
from tests.transports.phpmq import test_wire
from tests.transports.phpmq.vectors import BY_NAME, VECTORS

FORMS = [Form(width, separator) for width in (32, 35, 36) for separator in (b"", b"\n", b"\r\n")]
SMALL = WireLimits(name_bytes=60, content_bytes=100, id_bytes=40)
EVENTS = (Publish, Consume, Dispatch, Ack, Requeue, Receipt, DeadLetter, Fault)
SEEDS = [vector.data for vector in VECTORS if len(vector.data) < 1_000] + [
    encode(message, form)
    for form in FORMS
    for message in (Publish(b"0003", b"7", 5), Requeue(b"q", b"abc", 3), Ack(b"P02", b"1"))
]

names = st.binary(max_size=255) | st.text("P0123456789\r\n", max_size=50).map(str.encode)
contents = st.binary(max_size=300) | st.sampled_from([b"", b"\r\n", b"P0", b"H0100102"])
ids = st.binary(min_size=1, max_size=255)
ttls = st.integers(0, WIRE_LIMITS.ttl_max_s)
maybe_ttls = st.none() | ttls
from_client = st.one_of(
    st.builds(Publish, names, contents, maybe_ttls),
    st.builds(Consume, names, st.integers(0, WIRE_LIMITS.window_max)),
    st.builds(Ack, names, ids),
    st.builds(Requeue, names, ids, ttls),
    st.builds(DeadLetter, names, ids),
)
from_server = st.one_of(
    st.builds(Dispatch, names, contents, ids, maybe_ttls), st.builds(Receipt, names, ids)
)


@given(st.sampled_from(FORMS), st.lists(from_client, min_size=1, max_size=4), st.data())
def test_what_is_written_is_read_again_however_it_is_cut(form, messages, data):
    stream = b"".join(encode(message, form) for message in messages)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=6))
    assert wire_checks.split(ServerWire, stream, cuts) == messages
    wire = ServerWire()
    wire.feed(stream)
    assert wire.form == form


@given(st.sampled_from(FORMS), st.lists(from_server, max_size=4))
def test_what_a_server_writes_its_client_reads(form, messages):
    stream = b"".join(encode(message, form) for message in messages)
    assert wire_checks.whole(lambda: ClientWire(form=form), stream) == messages


# --------------------------------------------------------------------------- telling forms apart


def name_of(rng: random.Random) -> bytes:
    length = rng.choice((0, 1, 1, 2, 3, 5, 9, 10, 40, 99, 255))
    match rng.randrange(4):
        case 0:
            return bytes(rng.choices(b"0123456789", k=length))
        case 1:
            return bytes(rng.choices(b"P0P1P2", k=length))
        case 2:
            return bytes(rng.choices(b"\r\nP0", k=length))
        case _:
            return rng.randbytes(length)


def message_of(rng: random.Random) -> Message:
    name = name_of(rng)
    content = rng.choice((b"", name_of(rng), b"7" * rng.randrange(1_200)))
    id = name_of(rng) or b"1"
    match rng.randrange(5):
        case 0:
            return Publish(name, content, rng.choice((None, None, 0, 60)))
        case 1:
            return Consume(name, rng.randrange(1_000))
        case 2:
            return Ack(name, id)
        case 3:
            return Requeue(name, id, rng.randrange(100))
        case _:
            return DeadLetter(name, id)


def count_misread(connections: int, seed: int) -> Counter[Form]:
    """Count the connections of odd names whose messages or form are read wrongly."""
    rng = random.Random(seed)
    misread: Counter[Form] = Counter()
    for _ in range(connections):
        form = rng.choice(FORMS)
        messages = [message_of(rng) for _ in range(rng.randint(1, 3))]
        stream = b"".join(encode(message, form) for message in messages)
        if rng.random() < 0.5:
            stream = stream.removesuffix(form.separator)
        wire = ServerWire()
        cut = rng.randrange(len(stream))
        events = [*wire.feed(stream[:cut]), *wire.feed(stream[cut:]), *wire.end()]
        misread[form] += events != messages or wire.form != form
    return misread


def test_no_connection_of_any_form_is_misread():
    misread = count_misread(5_000, seed=1)
    assert set(misread) == set(FORMS)
    assert +misread == {}


def test_a_detector_that_always_says_36_is_caught(monkeypatch):
    def hasty(data, position, separator, message, limits):
        form = form_of(data, position, separator, message, limits)
        return Form(36, separator) if form and form.width == 35 else form

    monkeypatch.setattr(decoder, "form_of", hasty)
    assert {form.width for form in +count_misread(300, seed=1)} == {35}


@pytest.mark.parametrize("width", [32, 35, 36])
def test_the_width_of_a_bare_first_message_needs_no_byte_that_does_not_come(width):
    # Each name begins with what the other widths would take for digits or for a package.
    for name in (b"", b"5", b"0003", b"P02", b"000P02", b"9" * 255, b"0" * 35, b"P02" + b"0" * 32):
        for message in (Publish(name, b"7"), Publish(name, b"", 0), Consume(name, 5)):
            wire = ServerWire()
            assert wire.feed(encode(message, Form(width))) == [message]
            assert wire.form == Form(width)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("length", [0, 3, 10, 700, 999])
def test_a_first_message_that_begins_with_its_content_shows_its_form_too(form, length):
    content = b"7" * length
    package = b"P%02d%0*d%s%s"
    digits, separator = form.width - 3, form.separator
    data = separator.join(
        (
            b"H0100102",
            package % (2, digits, length, separator, content),
            package % (1, digits, 1, separator, b"q"),
            b"",
        )
    )
    wire = ServerWire(limits=WireLimits(name_bytes=60))
    assert wire.feed(data) == [Publish(b"q", content)]
    assert wire.form == form


def test_a_name_made_to_look_like_a_package_hurts_only_who_made_it():
    name = b"4bc" + b"P02" + b"0" * 31 + b"1" + b"zz"
    assert len(name) == 40
    wire = ServerWire()
    events = wire.feed(encode(Publish(name, b"x"), Form(36)))
    assert wire.form == Form(35)
    assert isinstance(events[-1], Fault)
    told = ServerWire(form=Form(36))
    assert told.feed(encode(Publish(name, b"x"), Form(36))) == [Publish(name, b"x")]


def test_a_name_beyond_the_limit_is_a_fault_in_every_form():
    for form in FORMS:
        data = encode(Publish(b"n" * 256, b""), form, WireLimits(name_bytes=999))
        (event,) = ServerWire().feed(data)
        assert isinstance(event, Fault)
        assert event.code in {FaultCode.LENGTH, FaultCode.PACKAGE}


# --------------------------------------------------------------------------- damage


def damage(make, count: int, seed: int) -> Counter[FaultCode]:
    """Feed damaged streams whole and cut, and count the faults."""
    rng = random.Random(seed)
    faults: Counter[FaultCode] = Counter()
    for data in wire_checks.mutated(SEEDS, count, seed):
        wire = make()
        events = wire.feed(data)
        assert len(wire._rest) < 1_200
        events += wire.end()
        assert wire_checks.split(make, data, wire_checks.cuts_of(data, rng)) == events
        for event in events:
            assert type(event) in EVENTS
            if isinstance(event, Publish | Dispatch):
                assert len(event.content) <= SMALL.content_bytes
            if isinstance(event, Fault):
                assert event is events[-1]
                faults[event.code] += 1
            else:
                assert len(event.queue) <= SMALL.name_bytes
        assert len(wire._rest) == 0
    return faults


def test_damaged_streams_have_documented_outcomes_only():
    faults = damage(lambda: ServerWire(limits=SMALL), 20_000, seed=7)
    assert set(faults) == set(FaultCode)
    damage(lambda: ClientWire(limits=SMALL), 2_000, seed=8)


def test_a_wire_without_a_length_check_is_caught():
    SEEDS.append(encode(Publish(b"q", bytes(101))))

    def unchecked():
        wire = ServerWire(limits=SMALL)
        wire._longest = dict.fromkeys(wire._longest, 1 << 40)
        return wire

    try:
        with pytest.raises(AssertionError):
            damage(unchecked, 2_000, seed=7)
    finally:
        SEEDS.pop()


def test_a_wire_that_forgets_what_it_holds_is_caught():
    class Forgetful(ServerWire):
        def feed(self, data):
            self._rest.clear()
            return super().feed(data)

    with pytest.raises(AssertionError):
        damage(lambda: Forgetful(limits=SMALL), 1_000, seed=7)


def test_lengths_with_their_digits_reversed_are_caught(monkeypatch):
    def write(kind, digits, length):
        return b"P%02d" % kind + (b"%0*d" % (digits, length))[::-1]

    def read(head):
        return int(head[1:3]), int(head[:2:-1])

    monkeypatch.setattr(encoder, "_package_header", write)
    monkeypatch.setattr(decoder, "_read", read)
    # Such ends agree with each other, so that only the vectors tell.
    message = Publish(b"Foo", b"Hello World")
    assert ServerWire(form=Form()).feed(encode(message)) == [message]
    with pytest.raises(AssertionError):
        test_wire.test_a_vector_is_written(BY_NAME["V01"])
    with pytest.raises(AssertionError):
        test_wire.test_a_vector_is_read(BY_NAME["V01"])


@pytest.mark.parametrize("form", [Form(), Form(36, b"\r\n")])
def test_one_byte_at_a_time_costs_the_same_for_a_long_message(form):
    short = wire_checks.seconds_per_byte(ServerWire, encode(Publish(b"q", bytes(10_000)), form))
    long = wire_checks.seconds_per_byte(ServerWire, encode(Publish(b"q", bytes(200_000)), form))
    assert long < 3 * short


def test_many_line_breaks_cost_the_same_each():
    short = wire_checks.seconds_per_byte(ServerWire, b"\n" * 2_000)
    long = wire_checks.seconds_per_byte(ServerWire, b"\n" * 40_000)
    assert long < 3 * short
