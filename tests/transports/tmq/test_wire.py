"""The TMQ wire: preamble, Hello, byte order, limits, drops, faults, and time."""

import random
from collections import Counter

import pytest

from embedq_transports.tmq.frames import (
    BIG_CLIENT,
    BIG_SERVER,
    LITTLE,
    PING,
    PREAMBLE,
    Content,
    Frame,
    Kind,
    encode_frame,
)
from embedq_transports.tmq.hello import Hello, read_hello
from embedq_transports.tmq.limits import TMQ_LIMITS, TmqLimits
from embedq_transports.tmq.wire import (
    ClientWire,
    Dropped,
    Fault,
    FaultCode,
    Greeted,
    LoggedIn,
    Received,
    ServerWire,
)
from tests.transports import wire_checks
from tests.transports.tmq.vectors import BY_NAME, VECTORS, hello

HELLO = BY_NAME["V06"].data
BIG_HELLO = encode_frame(BY_NAME["V06"].frame, BIG_CLIENT)
SMALL = TmqLimits(payload_bytes=300, hello_bytes=200)
# A frame that the wire keeps whole at most: header, extended length, three ids, payload.
SMALL_BOUND = 8 + 8 + 3 * 255 + 300


def fault(events) -> Fault:
    assert isinstance(events[-1], Fault)
    return events[-1]


def test_a_session_gives_its_events_in_order():
    wire = ServerWire()
    data = PREAMBLE + HELLO + BY_NAME["V14"].data + BY_NAME["V23"].data + BY_NAME["V04"].data
    assert wire.feed(data) == [
        Greeted(),
        LoggedIn(Hello("CONNECT", "/", (("client-id", "c1"),)), BY_NAME["V06"].frame),
        Received(BY_NAME["V14"].frame),
        Received(BY_NAME["V23"].frame),
        Received(BY_NAME["V04"].frame),
    ]
    assert wire.end() == []
    assert wire.dialect == LITTLE


def test_a_client_that_waits_is_greeted_before_its_hello():
    wire = ServerWire()
    assert wire.feed(PREAMBLE[:4]) == []
    assert wire.feed(PREAMBLE[4:]) == [Greeted()]
    assert isinstance(wire.feed(HELLO)[0], LoggedIn)


@pytest.mark.parametrize("given", [b"TMQ/1.02", b"TMQ/1.00", b"TMQP/2.0", b"TMQ/2"])
def test_another_version_is_told_ours(given):
    found = fault(ServerWire().feed(given))
    assert (found.code, found.answer) == (FaultCode.OTHER_VERSION, PREAMBLE)


@pytest.mark.parametrize("given", [b"tmq/1.01", b"GET / HTTP/1.1", b"\0", b"TM/", b"MMQP|"])
def test_another_protocol_is_told_nothing(given):
    wire = ServerWire()
    found = fault(wire.feed(given))
    assert (found.code, found.answer) == (FaultCode.BAD_PREAMBLE, b"")
    assert wire.closed
    assert wire.feed(PREAMBLE) == wire.end() == []


def test_the_byte_order_is_told_from_the_hello():
    for data, dialect in ((HELLO, LITTLE), (BIG_HELLO, BIG_SERVER)):
        wire = ServerWire()
        wire.feed(PREAMBLE + data)
        assert wire.dialect == dialect
    wire.feed(encode_frame(BY_NAME["V14"].frame, BIG_CLIENT))
    assert wire.encode(BY_NAME["V10"].frame).hex() == "901002000200ca0073316331"


@pytest.mark.parametrize(
    ("order", "good", "bad"),
    [
        ("little", HELLO, BIG_HELLO),
        ("big", BIG_HELLO, HELLO),
    ],
)
def test_a_fixed_byte_order_refuses_the_other(order, good, bad):
    assert isinstance(ServerWire(order=order).feed(PREAMBLE + good)[-1], LoggedIn)
    assert fault(ServerWire(order=order).feed(PREAMBLE + bad)).code == FaultCode.NOT_HELLO


def test_hello_of_eight_bytes_in_either_order_is_read():
    for text in ("9010000000650000", "9010000000006500"):
        event = ServerWire().feed(PREAMBLE + bytes.fromhex(text))[-1]
        assert isinstance(event, LoggedIn)
        assert event.hello == Hello()
        assert event.client_id == b""


@pytest.mark.parametrize("first", [
    BY_NAME["V02"].data, BY_NAME["V14"].data, BY_NAME["V23"].data,
    bytes.fromhex("9000000000650000"),  # a Hello that has no hop left
    bytes.fromhex("11100000006500ff"),  # not a Server frame: its length does not matter
], ids=["ping", "join", "push", "ttl 0", "long"])  # fmt: skip
def test_anything_but_a_hello_is_answered_400(first):
    found = fault(ServerWire().feed(PREAMBLE + first))
    assert (found.code, found.status) == (FaultCode.NOT_HELLO, Content.BAD_REQUEST)


@pytest.mark.parametrize(("properties", "source", "client_id"), [
    (b"\r\nClient-Id: c1 \r\n", b"", b"c1"),
    (b"NONE /\r\nClient-Name: x\r\n", b"src", b"src"),
    (b"CONNECT /\r\nClient-Id: \r\n", b"", b""),
    (b"client-ID:a\nClient-Id: b\rX", b"src", b"b"),
    (b"Client-Id: \xff\xfe\n", b"", b"\xff\xfe"),
])  # fmt: skip
def test_a_client_has_the_id_it_names(properties, source, client_id):
    data = encode_frame(hello(b"", source, properties))
    event = ServerWire().feed(PREAMBLE + data)[-1]
    assert isinstance(event, LoggedIn)
    assert event.client_id == client_id


@pytest.mark.parametrize(("payload", "expected"), [
    (b"", Hello()),
    (b"CONNECT /a\r\nA: b\r\n", Hello("CONNECT", "/a", (("a", "b"),))),
    (b"A: b", Hello("", "", (("a", "b"),))),
    (b" x\nA:b:c", Hello("", "", (("a", "b:c"),))),
    (b"GET http://x\nA:1", Hello("", "", (("get http", "//x"), ("a", "1")))),
    (b"NONE /\rno colon\r\n\r\nT:\n", Hello("NONE", "/", (("t", ""),))),
    (b"C /\nK: 1\nk: 2\n", Hello("C", "/", (("k", "2"),))),
])  # fmt: skip
def test_hello_text_is_read_leniently(payload, expected):
    assert read_hello(payload) == expected


def test_frames_without_a_hop_or_a_meaning_are_dropped_by_a_server():
    wire = ServerWire()
    wire.feed(PREAMBLE + HELLO)
    assert wire.feed(BY_NAME["V48"].data) == [Dropped(BY_NAME["V48"].frame, "ttl")]
    silent_ping = Frame(Kind.PING, ttl=0)
    assert wire.feed(wire.encode(silent_ping)) == [Dropped(silent_ping, "ttl")]
    for kind in (Kind.OTHER, Kind.REDIRECT, 0x2A, 0x3F):
        assert wire.feed(wire.encode(Frame(kind))) == [Dropped(Frame(kind), "type")]
    assert wire.feed(bytes.fromhex("0910000000000000")) == [Received(Frame(Kind.PING))]
    assert wire.feed(encode_frame(PING)) == [Received(PING)]


def test_a_client_receives_unknown_types_too():
    wire = ClientWire()
    assert wire.feed(PREAMBLE + encode_frame(Frame(0x3F))) == [Greeted(), Received(Frame(0x3F))]
    assert fault(ClientWire().feed(b"TMQ/1.02")).answer == b""


def test_a_payload_at_the_limit_is_read_and_one_more_is_a_fault_before_it_comes():
    wire = ServerWire(SMALL)
    wire.feed(PREAMBLE + HELLO)
    push = Frame(Kind.CHANNEL, 1, b"m1", b"c1", b"ch", bytes(300))
    assert wire.feed(encode_frame(push)) == [Received(push)]
    data = encode_frame(Frame(Kind.CHANNEL, 1, b"m1", b"c1", b"ch", bytes(301)))
    found = fault(wire.feed(data[:-301]))
    assert found.code == FaultCode.TOO_LARGE
    assert found.status == Content.LIMIT_EXCEEDED
    assert found.request == Frame(Kind.CHANNEL, 1, b"m1", b"c1", b"ch")
    assert "301 bytes" in found.text


def test_a_length_that_no_frame_has_is_too_large_for_either_end():
    wire = ServerWire(SMALL)
    wire.feed(PREAMBLE + HELLO)
    found = fault(wire.feed(bytes.fromhex("11100000000100ff") + b"\xff" * 8))
    assert (found.code, found.request) == (FaultCode.TOO_LARGE, Frame(Kind.CHANNEL, 1))
    reader = ClientWire(SMALL)
    found = fault(reader.feed(PREAMBLE + bytes.fromhex("11100000000100ff") + b"\xff" * 8))
    assert (found.code, found.status, found.request) == (FaultCode.TOO_LARGE, 0, None)


def test_a_hello_at_its_limit_is_read_and_one_more_answered_400():
    frame = hello(b"", b"", bytes(200))
    assert isinstance(ServerWire(SMALL).feed(PREAMBLE + encode_frame(frame))[-1], LoggedIn)
    frame = hello(b"", b"", bytes(201))
    found = fault(ServerWire(SMALL).feed(PREAMBLE + encode_frame(frame)[:-201]))
    assert (found.code, found.status) == (FaultCode.TOO_LARGE, Content.BAD_REQUEST)
    assert TMQ_LIMITS.hello_bytes < TMQ_LIMITS.payload_bytes


@pytest.mark.parametrize("left", ["89ff0000", "1110000002010002636841", "11100000020100fd", ""])
def test_an_end_within_a_frame_is_told_once(left):
    wire = ServerWire()
    wire.feed(PREAMBLE + HELLO)
    wire.feed(bytes.fromhex(left))
    events = wire.end()
    assert len(events) == bool(left)
    assert not left or fault(events).code == FaultCode.TRUNCATED
    assert wire.end() == []


SEEDS = [vector.data for vector in VECTORS if len(vector.data) < 300]
SESSIONS = [
    PREAMBLE + HELLO + b"".join(SEEDS),
    PREAMBLE + BIG_HELLO + b"".join(encode_frame(v.frame, BIG_CLIENT) for v in VECTORS[:20]),
    PREAMBLE + HELLO + BY_NAME["V14"].data + BY_NAME["V23"].data,
    PREAMBLE + BIG_HELLO + encode_frame(BY_NAME["V32"].frame, BIG_CLIENT),
    PREAMBLE + HELLO + bytes.fromhex("11100000020100fd05006368") + b"A" * 5 + BY_NAME["V41"].data,
    # Long enough to show a reader that believes a damaged length.
    PREAMBLE + HELLO + bytes.fromhex("11100000020100fd05006368") + BY_NAME["V40"].data * 8,
]


def check_splits(make) -> None:
    rng = random.Random(5)
    for data in SESSIONS:
        expected = wire_checks.whole(make, data)
        assert wire_checks.split(make, data, range(1, len(data))) == expected
        for _ in range(50):
            assert wire_checks.split(make, data, wire_checks.cuts_of(data, rng)) == expected


def test_any_split_gives_the_same_events():
    check_splits(ServerWire)
    check_splits(lambda: ServerWire(SMALL))


def check_mutants(make, count, seed) -> Counter[str]:
    """Feed damaged sessions: documented events only, bounded memory, the same when split."""
    rng = random.Random(seed)
    seen: Counter[str] = Counter()
    for data in wire_checks.mutated(SESSIONS[2:], count, seed):
        wire = make()
        events = wire.feed(data)
        assert wire._frames.waiting <= SMALL_BOUND
        events += wire.end()
        for event in events[:-1]:
            assert isinstance(event, (Greeted, LoggedIn, Received, Dropped))
        last = events[-1] if events else None
        if isinstance(last, Fault):
            assert wire.closed
            assert last.answer in {b"", PREAMBLE}
            limit = last.request is not None
            assert last.status in ({Content.LIMIT_EXCEEDED} if limit else {0, Content.BAD_REQUEST})
            assert not limit or last.code is FaultCode.TOO_LARGE
        seen[last.code if isinstance(last, Fault) else type(last).__name__] += 1
        assert wire_checks.split(make, data, wire_checks.cuts_of(data, rng)) == events
    return seen


def test_twenty_thousand_damaged_sessions_have_only_documented_outcomes():
    seen = check_mutants(lambda: ServerWire(SMALL), 20_000, seed=20260)
    assert set(FaultCode) <= set(seen)
    assert seen.total() == 20_000
    assert seen["Received"] > 100


class Forgetful(ServerWire):
    """Takes every read for whole frames: what is left of one is lost."""

    def feed(self, data):
        events = super().feed(data)
        self._frames.buffer.clear()
        return events


class Rereading(ServerWire):
    """Goes through all it has at each read, often enough to show."""

    def feed(self, data):
        events = super().feed(data)
        for _ in range(4):
            self._frames.buffer.hex()
        return events


def test_a_reader_without_a_length_check_is_caught():
    unlimited = TmqLimits(payload_bytes=1 << 62, hello_bytes=1 << 62)
    with pytest.raises(AssertionError):
        check_mutants(lambda: ServerWire(unlimited), 20_000, seed=20260)


def test_a_reader_that_needs_whole_frames_is_caught():
    with pytest.raises(AssertionError):
        check_splits(Forgetful)


def growth(make, times=3) -> float:
    """Compare the time per byte of a frame eight times as long, one byte at a time."""
    begin = PREAMBLE + HELLO
    short, long = (
        wire_checks.seconds_per_byte(
            make, begin + encode_frame(Frame(Kind.CHANNEL, 1, payload=bytes(size))), times
        )
        for size in (4_000, 32_000)
    )
    return long / short


def test_one_byte_at_a_time_takes_linear_time():
    assert growth(ServerWire) < 3
    assert growth(Rereading, times=1) > 3
