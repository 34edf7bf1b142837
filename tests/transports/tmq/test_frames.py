"""TMQ frames: the golden vectors both ways, both byte orders, lengths at every boundary."""

import hashlib

import pytest
from hypothesis import Phase, given, settings, strategies as st
from msgspec.structs import replace

from embedq.errors import LimitExceeded
from embedq_transports.tmq.frames import (
    BIG_CLIENT,
    BIG_SERVER,
    LITTLE,
    PREAMBLE,
    Dialect,
    Frame,
    Kind,
    Order,
    encode_frame,
)
from embedq_transports.tmq.limits import TmqLimits
from embedq_transports.tmq.wire import ClientWire, Dropped, LoggedIn, Received, ServerWire
from tests.transports.tmq.vectors import (
    BY_NAME,
    DIGESTS,
    PREAMBLE_HEX,
    READ_ONLY,
    VECTORS,
    Vector,
    hexed,
)

HELLO = {"little": BY_NAME["V06"].data, "big": encode_frame(BY_NAME["V06"].frame, BIG_CLIENT)}
LARGE = TmqLimits(payload_bytes=1 << 20)


def logged_in(order: str = "little") -> ServerWire:
    wire = ServerWire(LARGE)
    assert isinstance(wire.feed(PREAMBLE + HELLO[order])[-1], LoggedIn)
    return wire


def client(order: Order = "little") -> ClientWire:
    wire = ClientWire(LARGE, order=order)
    wire.feed(PREAMBLE)
    return wire


def only_frame(events) -> Frame:
    (event,) = events
    assert isinstance(event, (Received, Dropped, LoggedIn))
    return event.frame


def test_there_are_38_vectors_and_each_has_the_digest_of_the_specification():
    found = {vector.name: vector.data for vector in VECTORS} | {"V01": hexed(PREAMBLE_HEX)}
    assert len(found) == len(DIGESTS) == 38
    assert {name: hashlib.sha256(data).hexdigest()[:12] for name, data in found.items()} == DIGESTS
    assert hexed(PREAMBLE_HEX) == PREAMBLE


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.name)
def test_a_vector_is_what_its_frame_encodes_to(vector: Vector):
    assert encode_frame(vector.frame) == vector.data


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.name)
def test_a_vector_is_read_as_its_frame_by_both_ends(vector: Vector):
    assert only_frame(client().feed(vector.data)) == vector.frame
    assert only_frame(logged_in().feed(vector.data)) == vector.frame


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.name)
def test_the_old_byte_order_swaps_the_content_type(vector: Vector):
    data = bytearray(vector.data)
    data[5:7] = data[5:7][::-1]
    if len(vector.frame.payload) < 253:
        assert encode_frame(vector.frame, BIG_SERVER) == encode_frame(vector.frame, BIG_CLIENT)
        assert encode_frame(vector.frame, BIG_SERVER) == data
    # A server writes the length to such a client little-endian, and reads it big-endian.
    assert only_frame(client("big").feed(encode_frame(vector.frame, BIG_SERVER))) == vector.frame
    assert only_frame(logged_in("big").feed(encode_frame(vector.frame, BIG_CLIENT))) == (
        vector.frame
    )


@pytest.mark.parametrize(("what", "text", "frame"), READ_ONLY, ids=[row[0] for row in READ_ONLY])
def test_a_length_in_a_longer_form_than_needed_is_read(what, text, frame):
    assert only_frame(logged_in().feed(hexed(text))) == frame
    assert encode_frame(frame) != hexed(text)


@pytest.mark.parametrize(
    ("length", "little", "big"),
    [
        (0, "00", "00"),
        (252, "fc", "fc"),
        (253, "fdfd00", "fd00fd"),
        (65535, "fdffff", "fdffff"),
        (65536, "fe00000100", "fe00010000"),
    ],
)
def test_the_shortest_form_of_a_length_is_written(length, little, big):
    frame = Frame(Kind.CHANNEL, 1, payload=bytes(length))
    for dialect, text in ((LITTLE, little), (BIG_SERVER, little), (BIG_CLIENT, big)):
        data = encode_frame(frame, dialect)
        assert data[7 : len(data) - length].hex() == text


def test_a_client_of_the_old_order_reads_300_and_70000_bytes():
    for length in (300, 70_000):
        frame = Frame(Kind.CHANNEL, 258, b"m", target=b"ch", payload=b"x" * length)
        assert only_frame(client("big").feed(encode_frame(frame, BIG_SERVER))) == frame


@pytest.mark.parametrize("field", ["message_id", "source", "target"])
def test_an_id_of_255_bytes_is_written_and_one_more_refused(field):
    frame = Frame(Kind.CHANNEL)
    assert encode_frame(replace(frame, **{field: b"x" * 255}))
    with pytest.raises(LimitExceeded, match="256 bytes, more than 255"):
        encode_frame(replace(frame, **{field: b"x" * 256}))


@pytest.mark.parametrize(
    "changed", [{"kind": 64}, {"kind": -1}, {"content_type": 65536}, {"ttl": -1}]
)
def test_a_number_that_does_not_fit_is_refused(changed):
    with pytest.raises(LimitExceeded, match="is not within"):
        encode_frame(replace(Frame(Kind.CHANNEL), **changed))


def test_a_ttl_above_63_is_sent_as_63():
    assert encode_frame(Frame(Kind.CHANNEL, ttl=1000))[1] == 63


IDS = st.binary(max_size=12) | st.just(b"i" * 255)
FRAMES = st.builds(
    Frame,
    kind=st.integers(0, 63),
    content_type=st.integers(0, 65535),
    message_id=IDS,
    source=IDS,
    target=IDS,
    payload=st.binary(max_size=40),
    first_acquirer=st.booleans(),
    priority=st.booleans(),
    response_required=st.booleans(),
    acknowledge=st.booleans(),
    ttl=st.integers(0, 63),
)


# Drawn apart from the frame, so that a failure is printed in a few lines.
ZEROS = st.just(0) | st.sampled_from([*range(250, 260), 300, 65_535, 65_536])


def check_round_trip(frame: Frame, writer: Dialect, reader: ClientWire | ServerWire) -> None:
    assert only_frame(reader.feed(encode_frame(frame, writer))) == frame


@given(FRAMES, ZEROS, st.sampled_from(["little", "big"]))
def test_what_either_end_writes_is_what_the_other_reads(frame, zeros, order):
    frame = replace(frame, payload=frame.payload + bytes(zeros))
    to_server, to_client = (BIG_CLIENT, BIG_SERVER) if order == "big" else (LITTLE, LITTLE)
    check_round_trip(frame, to_server, logged_in(order))
    check_round_trip(frame, to_client, client(order))


@pytest.mark.parametrize(
    "planted", [Dialect("big", "little", "little"), Dialect("little", "little", "big")]
)
def test_a_swapped_byte_order_is_caught(planted):
    @settings(database=None, phases=[Phase.generate], report_multiple_bugs=False)
    @given(FRAMES, ZEROS)
    def round_trip(frame, zeros):
        frame = replace(frame, payload=frame.payload + bytes(zeros))
        check_round_trip(frame, planted, logged_in())

    # Lengths read the wrong way round are too large, or wait for bytes that never come.
    with pytest.raises((AssertionError, ValueError)):
        round_trip()
