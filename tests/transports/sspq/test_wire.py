"""The SSPQ wire: vectors both ways, every cut, faults, limits, damage, time."""

import random
import struct
from collections import Counter

import pytest
from hypothesis import given, strategies as st

from embedq.errors import InvalidOption, LimitExceeded
from embedq_transports.sspq import wire as sspq
from embedq_transports.sspq.wire import (
    ENDLESS,
    HEADER_BYTES,
    WIRE_LIMITS,
    ClientWire,
    Confirm,
    DeadReceive,
    Event,
    Fault,
    FaultCode,
    NoReceive,
    Packet,
    PacketType,
    Receive,
    Send,
    ServerWire,
    Unknown,
    WireLimits,
    attempts_allowed,
    encode,
    raw,
    retries_left,
)
from tests.transports import wire_checks
from tests.transports.sspq.vectors import BY_NAME, VECTORS, Vector

IDS = [vector.name for vector in VECTORS]
SEEDS = [vector.data for vector in VECTORS if len(vector.data) < 1_000]
EVENTS = (Send, Receive, Confirm, DeadReceive, NoReceive, Unknown, Fault)
SMALL = WireLimits(payload_bytes=100)

payloads = st.binary(max_size=300)
sends = st.builds(Send, payloads, st.integers(0, 255))
from_client = st.one_of(sends, st.sampled_from([Receive(), Confirm(), DeadReceive()]))
from_server = st.one_of(sends, st.just(NoReceive()))


def coded(events: list[Event]) -> list[Event | FaultCode]:
    return [event.code if isinstance(event, Fault) else event for event in events]


def only_fault(events: list[Event]) -> Fault:
    (fault,) = events
    assert isinstance(fault, Fault)
    return fault


def wire_for(vector: Vector) -> ClientWire | ServerWire:
    return ClientWire() if vector.from_server else ServerWire()


# --------------------------------------------------------------------------- vectors


@pytest.mark.parametrize("vector", VECTORS, ids=IDS)
def test_a_vector_is_read(vector):
    wire = wire_for(vector)
    events = [event for piece in vector.pieces for event in wire.feed(piece)]
    assert coded([*events, *wire.end()]) == vector.events


@pytest.mark.parametrize("vector", [v for v in VECTORS if v.canonical], ids=lambda v: v.name)
def test_a_vector_is_written(vector):
    assert b"".join(encode(packet) for packet in vector.events) == vector.data


def test_the_vectors_are_all_here():
    assert len(VECTORS) == len(BY_NAME) == 30
    assert Counter(vector.canonical for vector in VECTORS) == {True: 20, False: 10}
    assert Counter(vector.from_server for vector in VECTORS) == {True: 5, False: 25}
    seen = {event for vector in VECTORS for event in vector.events if isinstance(event, FaultCode)}
    assert seen == set(FaultCode)


@pytest.mark.parametrize("vector", VECTORS, ids=IDS)
def test_a_vector_cut_anywhere_is_the_same(vector):
    whole = wire_checks.whole(lambda: wire_for(vector), vector.data)
    step = max(1, len(vector.data) // 300)
    for cut in range(0, len(vector.data), step):
        assert wire_checks.split(lambda: wire_for(vector), vector.data, [cut]) == whole
    if len(vector.data) < 1_000:
        every = range(len(vector.data))
        assert wire_checks.split(lambda: wire_for(vector), vector.data, every) == whole


# --------------------------------------------------------------------------- reading


def test_the_junk_of_a_request_is_skipped_before_it_counts():
    wire = ServerWire()
    assert wire.feed(raw(PacketType.RECEIVE, 7, b"junk")[:-1]) == []
    assert wire.pending
    assert wire.feed(b"k" + encode(Confirm())) == [Receive(), Confirm()]
    assert not wire.pending


def test_a_request_that_ends_inside_its_junk_does_not_count():
    wire = ServerWire()
    data = encode(Confirm()) + raw(PacketType.RECEIVE, 0, b"junk")
    assert wire.feed(data[:-1]) == [Confirm()]
    fault = only_fault(wire.end())
    assert (fault.code, fault.offset) == (FaultCode.TRUNCATED, HEADER_BYTES)


def test_junk_takes_no_memory():
    wire = ServerWire()
    wire.feed(raw(PacketType.RECEIVE, 0, bytes(1_000_000))[:-1])
    assert len(wire._rest) == 0


def test_an_unknown_type_is_skipped_with_its_payload():
    data = raw(0x91, 1, b"ping") + encode(Receive())
    assert ServerWire().feed(data) == [Unknown(0x91, 4), Receive()]


def test_a_client_takes_only_what_servers_send():
    data = encode(Receive()) + encode(NoReceive()) + encode(Send(b"x", 1))
    assert ClientWire().feed(data) == [Unknown(0xEC, 0), NoReceive(), Send(b"x", 1)]


def test_complete_packets_count_before_the_end():
    wire = ServerWire()
    assert wire.feed(BY_NAME["S18"].data + b"\x55") == [Send(b"a"), Send(b"b"), Receive()]
    assert coded(wire.end()) == [FaultCode.TRUNCATED]
    assert wire.end() == []
    assert wire.closed


def test_a_wrong_first_byte_is_a_fault_before_the_second():
    wire = ServerWire()
    assert only_fault(wire.feed(b"G")) == Fault(
        FaultCode.MAGIC, 0, "a packet begins with 55 99, not with 47"
    )
    assert wire.feed(encode(Receive())) == wire.end() == []
    assert coded(ServerWire().feed(b"\x55\x98")) == [FaultCode.MAGIC]


def test_a_fault_says_where_and_keeps_what_arrived():
    wire = ServerWire()
    events = wire.feed(encode(Send(b"abc")) + encode(Receive()) + b"GET /" + bytes(100))
    assert events[:2] == [Send(b"abc"), Receive()]
    assert isinstance(events[2], Fault)
    assert events[2].offset == 19
    assert wire.evidence == b"GET /" + bytes(59)
    assert not wire.pending


@pytest.mark.parametrize("name", ["S30", "S34"])
def test_a_size_that_looks_like_a_known_mistake_is_explained(name):
    fault = only_fault(ServerWire().feed(BY_NAME[name].data))
    assert "10-byte header" in fault.text
    assert "least significant byte first" in fault.text
    assert "10-byte" not in only_fault(ServerWire().feed(BY_NAME["S29"].data)).text


def test_a_payload_may_have_the_limit_and_not_a_byte_more():
    for kind in (PacketType.SEND, PacketType.RECEIVE, 0xFF):
        data = raw(kind, 0, bytes(101))
        assert len(ServerWire(SMALL).feed(raw(kind, 0, bytes(100)))) == 1
        assert coded(ServerWire(SMALL).feed(data[:HEADER_BYTES])) == [FaultCode.SIZE]
        assert ServerWire(SMALL).feed(data[: HEADER_BYTES - 1]) == []


def test_the_usual_limit_is_that_of_a_message():
    header = raw(PacketType.SEND, 3)[:4]
    largest = WIRE_LIMITS.payload_bytes
    assert ServerWire().feed(header + largest.to_bytes(4, "big")) == []
    above = ServerWire().feed(header + (largest + 1).to_bytes(4, "big"))
    assert coded(above) == [FaultCode.SIZE]


def test_an_announced_payload_takes_no_memory():
    wire = ServerWire()
    wire.feed(raw(PacketType.SEND, 3)[:4] + (16 << 20).to_bytes(4, "big") + b"abc")
    assert len(wire._rest) == HEADER_BYTES + 3


def test_bytearrays_and_views_are_read_and_not_kept():
    data = bytearray(encode(Send(b"hello", 3)))
    wire = ServerWire()
    assert wire.feed(memoryview(data)[:4]) == []
    rest = data[4:]
    (event,) = wire.feed(rest)
    rest[:] = bytes(len(rest))
    assert event == Send(b"hello", 3)


# --------------------------------------------------------------------------- writing


def test_a_packet_is_one_piece_of_bytes():
    packet = encode(Send(b"x" * 200_000, 1))
    assert len(packet) == HEADER_BYTES + 200_000


@pytest.mark.parametrize("retries", [-1, 256])
def test_a_retry_byte_is_a_byte(retries):
    with pytest.raises(InvalidOption, match="retry byte"):
        encode(Send(b"", retries))
    with pytest.raises(InvalidOption, match="type"):
        raw(retries)


def test_a_payload_beyond_the_size_field_is_refused():
    class Huge(bytes):
        def __len__(self):
            return 1 << 32

    with pytest.raises(LimitExceeded, match="4096 MiB"):
        encode(Send(Huge()))


def test_retries_are_what_is_left_after_a_delivery():
    assert [attempts_allowed(retries) for retries in (0, 3, 254, 255)] == [1, 4, 255, None]
    assert [retries_left(attempts_allowed(2), attempt) for attempt in (1, 2, 3)] == [2, 1, 0]
    assert retries_left(None, 1_000) == ENDLESS
    assert retries_left(255, 1) == 254
    # Put from elsewhere: the wire has no room for more, and never says endless by mistake.
    assert retries_left(300, 1) == 254
    assert retries_left(2, 5) == 0


@given(st.integers(0, 254))
def test_the_first_delivery_carries_the_byte_of_the_sender(retries):
    assert retries_left(attempts_allowed(retries), 1) == retries


# --------------------------------------------------------------------------- round trip, damage


@given(st.lists(from_client), st.data())
def test_what_is_written_is_read_again_however_it_is_cut(packets, data):
    stream = b"".join(encode(packet) for packet in packets)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=6))
    assert wire_checks.split(ServerWire, stream, cuts) == packets


@given(st.lists(from_server))
def test_what_a_server_writes_its_client_reads(packets):
    stream = b"".join(encode(packet) for packet in packets)
    assert wire_checks.whole(ClientWire, stream) == packets


def damage(make, count: int, seed: int) -> Counter[str]:
    """Feed damaged vectors whole and cut, and count what came out."""
    rng = random.Random(seed)
    outcomes: Counter[str] = Counter()
    for data in wire_checks.mutated(SEEDS, count, seed):
        wire = make()
        events = wire.feed(data)
        assert len(wire._rest) < HEADER_BYTES + SMALL.payload_bytes
        events += wire.end()
        assert wire_checks.split(make, data, wire_checks.cuts_of(data, rng)) == events
        assert all(type(event) in EVENTS for event in events)
        assert sum(isinstance(event, Fault) for event in events[:-1]) == 0
        for event in events:
            if isinstance(event, Send):
                assert len(event.payload) <= SMALL.payload_bytes
        assert len(wire._rest) == 0
        outcomes.update(str(event) for event in coded(events[-1:]) if isinstance(event, FaultCode))
    return outcomes


def test_damaged_streams_have_documented_outcomes_only():
    outcomes = damage(lambda: ServerWire(SMALL), 20_000, seed=5)
    assert set(outcomes) == set(FaultCode)
    damage(lambda: ClientWire(SMALL), 2_000, seed=6)


def test_a_wire_without_a_length_check_is_caught():
    def unchecked():
        wire = ServerWire(SMALL)
        wire._limit = 1 << 40
        return wire

    with pytest.raises(AssertionError):
        damage(unchecked, 1_000, seed=5)


def test_a_wire_that_forgets_what_it_holds_is_caught():
    class Forgetful(ServerWire):
        def feed(self, data):
            self._rest.clear()
            return super().feed(data)

    with pytest.raises(AssertionError):
        damage(lambda: Forgetful(SMALL), 1_000, seed=5)


def test_the_other_byte_order_is_caught(monkeypatch):
    # It agrees with itself, so that only the vectors tell.
    monkeypatch.setattr(sspq, "_HEADER", struct.Struct("<2sBBI"))
    assert ServerWire().feed(encode(Send(b"hello", 3))) == [Send(b"hello", 3)]
    with pytest.raises(AssertionError):
        test_a_vector_is_written(BY_NAME["S01"])
    with pytest.raises(AssertionError):
        test_a_vector_is_read(BY_NAME["S01"])


def test_one_byte_at_a_time_costs_the_same_for_a_long_packet():
    short = wire_checks.seconds_per_byte(ServerWire, encode(Send(bytes(10_000))))
    long = wire_checks.seconds_per_byte(ServerWire, encode(Send(bytes(200_000))))
    assert long < 3 * short


def test_every_packet_type_has_a_packet():
    packets: list[Packet] = [Send(b""), Receive(), Confirm(), DeadReceive(), NoReceive()]
    assert {encode(packet)[2] for packet in packets} == set(PacketType)
