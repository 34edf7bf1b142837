"""The MMQP wire under splits, damage and single bytes; round trips; planted bugs."""

import random
import weakref
from collections import Counter

import pytest
from hypothesis import Phase, given, settings, strategies as st

from embedq_transports.mmqp import answers, strings, wire as wire_module
from embedq_transports.mmqp.client import Answer, BadAnswer, ClientWire, EndOfRecords
from embedq_transports.mmqp.faults import Fault, FaultCode
from embedq_transports.mmqp.limits import MmqpLimits
from embedq_transports.mmqp.requests import GroupPoll, Ping, Poll, Send, encode_request
from embedq_transports.mmqp.wire import ServerWire
from tests.transports import wire_checks
from tests.transports.mmqp.vectors import FROM_CLIENT, FROM_SERVER

SMALL = MmqpLimits(body_bytes=300, text_bytes=20, http_bytes=70, answer_bytes=420)
# A string that is kept whole at most, with its length.
SMALL_BOUND = 300 + 9

POLL = encode_request(Poll("q", 1))[:-1]
TEXTS = st.text(max_size=10)
REQUESTS = st.one_of(
    st.builds(
        Send,
        queue=TEXTS,
        body=st.text(max_size=30).map(str.encode),
        group=st.none() | TEXTS,
        user=TEXTS,
        password=TEXTS,
    ),
    st.builds(Poll, queue=TEXTS, count=st.integers(0, 255), user=TEXTS, password=TEXTS),
    st.builds(
        GroupPoll,
        queue=TEXTS,
        group=TEXTS,
        second=st.none() | TEXTS,
        user=TEXTS,
        password=TEXTS,
    ),
)
ZEROS = st.sampled_from([0, 255, 256, 65_535, 65_536])


def check_round_trip(request, *, text_version=False) -> None:
    data = encode_request(request, text_version=text_version)
    assert wire_checks.whole(ServerWire, data) == [request]


@given(REQUESTS, st.booleans())
def test_a_request_is_read_as_it_was_written(request, text_version):
    check_round_trip(request, text_version=text_version)


@given(ZEROS)
def test_a_body_of_any_size_is_read_as_it_was_written(zeros):
    check_round_trip(Send("q", bytes(zeros), "g"))
    check_round_trip(Send("q", bytes(zeros)))


@given(st.lists(REQUESTS, max_size=5))
def test_requests_in_one_stream_are_read_one_after_the_other(requests):
    data = b"".join(map(encode_request, requests))
    assert wire_checks.whole(ServerWire, data) == requests


RECORDS = st.builds(
    answers.Record,
    body=st.text(max_size=200).map(str.encode),
    group=TEXTS,
    received=st.integers(0, 1 << 64),
    available=st.integers(0, 1 << 64),
    receive_count=st.integers(0, (1 << 32) - 1),
    message_id=st.binary(min_size=64, max_size=64),
)


@given(st.lists(RECORDS, max_size=4))
def test_records_are_read_as_they_were_written(records):
    data = answers.encode_records(records)
    assert wire_checks.whole(ClientWire, data) == [*records, EndOfRecords()]


def test_a_swapped_byte_order_is_caught(monkeypatch):
    def little(size):
        count = (size.bit_length() + 7) // 8
        return bytes((count,)) + size.to_bytes(count, "little")

    monkeypatch.setattr(strings, "encode_size", little)

    @settings(database=None, phases=[Phase.generate], report_multiple_bugs=False)
    @given(ZEROS)
    def round_trip(zeros):
        check_round_trip(Send("q", bytes(zeros), "g"))

    with pytest.raises(AssertionError):
        round_trip()


SHORT = [vector.data for vector in FROM_CLIENT if len(vector.data) < 300]
# What stands behind a count, with and without a request behind it.
BEHIND = [
    b"\x02\n",
    b"\x00A",
    b"\x01\x03mg1\0",
    b"\x01\x03mg1",
    b"\x01\x50" + SHORT[0] + b"x" * 30,
]
BEHIND = [POLL + each + more for each in BEHIND for more in (b"", b"MM", SHORT[0], SHORT[0] * 3)]
STREAMS = [
    *SHORT,
    *BEHIND,
    b"".join(vector.data for vector in FROM_CLIENT[:6]),
    SHORT[9] + SHORT[0],
]
SERVED = [vector.data for vector in FROM_SERVER]


def check_splits(make, streams) -> None:
    rng = random.Random(5)
    for data in streams:
        expected = wire_checks.whole(make, data)
        assert wire_checks.split(make, data, range(1, len(data))) == expected
        for _ in range(20):
            assert wire_checks.split(make, data, wire_checks.cuts_of(data, rng)) == expected


def test_any_split_gives_the_same_events():
    check_splits(ServerWire, STREAMS)
    check_splits(lambda: ServerWire(SMALL), STREAMS)
    check_splits(ClientWire, SERVED)
    check_splits(lambda: ClientWire(SMALL), SERVED)


def check_mutants(make, seeds, count, seed) -> Counter[str]:
    """Feed damaged streams: documented events only, bounded memory, the same when split."""
    rng = random.Random(seed)
    seen: Counter[str] = Counter()
    for data in wire_checks.mutated(seeds, count, seed):
        wire = make()
        events = wire.feed(data)
        assert len(wire._buffer) <= SMALL_BOUND
        events += wire.end()
        for event in events[:-1]:
            assert isinstance(event, (Send, Poll, GroupPoll))
        last = events[-1] if events else None
        if isinstance(last, Fault):
            assert last.answer == b"" or last.answer.startswith(answers.ERROR)
            last.answer.decode()
        seen[last.code if isinstance(last, Fault) else type(last).__name__] += 1
        cuts = wire_checks.cuts_of(data, rng)
        assert wire_checks.split(make, data, cuts) == events
        check_pauses(make(), data, cuts[0])
    return seen


def check_pauses(wire: ServerWire, data: bytes, cut: int) -> None:
    """Pause in the middle: a pause completes a request where one waits, and breaks nothing."""
    events = wire.feed(data[:cut])
    waited = wire.waits_for_quiet
    paused = wire.quiet()
    assert bool(paused) == waited
    assert not wire.waits_for_quiet
    events += [*paused, *wire.feed(data[cut:]), *wire.quiet(), *wire.end()]
    for event in events[:-1]:
        assert isinstance(event, (Send, Poll, GroupPoll))
    assert not wire.waits_for_quiet


# Long enough to show a reader that believes a damaged length.
SEEDS = [*SHORT, *BEHIND, encode_request(Send("q", b"x" * 255)) + SHORT[0] * 10]


def test_twenty_thousand_damaged_streams_have_only_documented_outcomes():
    seen = check_mutants(lambda: ServerWire(SMALL), SEEDS, 20_000, seed=20260)
    assert seen.total() == 20_000
    assert set(FaultCode) <= set(seen)
    assert min(seen["Send"], seen["Poll"], seen["GroupPoll"], seen["Ping"]) > 50


def test_damaged_answers_have_only_documented_outcomes():
    rng = random.Random(3)
    seen: Counter[str] = Counter()
    for data in wire_checks.mutated(SERVED, 5_000, 20261):
        events = wire_checks.whole(lambda: ClientWire(SMALL), data)
        assert all(isinstance(event, Answer) for event in events)
        assert BadAnswer not in map(type, events[:-1])
        seen[type(events[-1]).__name__] += 1
        cuts = wire_checks.cuts_of(data, rng)
        assert wire_checks.split(lambda: ClientWire(SMALL), data, cuts) == events
    assert min(seen["BadAnswer"], seen["EndOfRecords"], seen["ErrorLine"]) > 50


class Forgetful(ServerWire):
    """Takes every read for whole requests, as the original did."""

    def feed(self, data):
        events = super().feed(data)
        self._buffer.clear()
        self._at = 0
        return events


class Rereading(ServerWire):
    """Goes through all it has at each read, often enough to show."""

    def feed(self, data):
        events = super().feed(data)
        for _ in range(4):
            self._buffer.hex()
        return events


def test_a_reader_that_needs_whole_requests_is_caught():
    with pytest.raises(AssertionError):
        check_splits(Forgetful, STREAMS)


def test_a_reader_without_a_length_check_is_caught(monkeypatch):
    def trusting(buffer, at, _most, what):
        return strings.find_string(buffer, at, 1 << 64, what)

    monkeypatch.setattr(wire_module, "find_string", trusting)
    with pytest.raises(AssertionError):
        check_mutants(lambda: ServerWire(SMALL), SEEDS, 20_000, seed=20260)


def growth(make, encode, times=3, size=2_000) -> float:
    """Compare the time per byte of eight times as many bytes, one byte at a time."""
    short, long = (
        wire_checks.seconds_per_byte(make, encode(size), times) for size in (size, 8 * size)
    )
    return long / short


def test_one_byte_at_a_time_takes_linear_time():
    def one(size):
        return encode_request(Send("q", bytes(size), "g"))

    def many(size):
        return encode_request(Send("q", b"x", "g")) * (size // 60)

    assert growth(ServerWire, one) < 3
    assert growth(ServerWire, many) < 3
    assert growth(lambda: ServerWire(MmqpLimits(http_bytes=1 << 20)), b"GET ".ljust) < 3
    # Behind a count everything is ignored, but a request.
    assert growth(ServerWire, lambda size: POLL + b"\x05" + b"\n" * size) < 3
    assert growth(ServerWire, lambda size: POLL + b"\x01" + b"M" * size) < 3
    assert growth(Rereading, one, times=1, size=4_000) > 3


def test_a_pong_of_ours_needs_no_pause():
    assert encode_request(Ping()) == FROM_CLIENT[16].data


@pytest.mark.parametrize("size", [0, 5, 20])
def test_a_wire_that_is_over_is_freed_with_what_was_incomplete(size):
    wire = ServerWire(SMALL)
    wire.feed(encode_request(Send("q", b"x" * 20, "main"))[:size])
    gone = weakref.ref(wire)
    with wire_checks.no_collector():
        wire.end()
        assert not wire.pending
        assert wire.feed(b"MMQP") == wire.end() == []
        del wire
        assert gone() is None
