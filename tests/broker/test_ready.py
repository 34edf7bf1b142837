"""The ready index hands out the right messages in the right order, within its bounds."""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from embedq.broker.entry import Entry
from embedq.broker.ready import LEVELS, ReadyIndex
from embedq.broker.timeline import Timeline
from embedq.storage import tail
from embedq.storage.rows import Chunk, DueChunk, Waiting
from tests.broker.ready_machine import ReadyMachine

NOW = 100
SETTINGS = settings(
    max_examples=40, stateful_step_count=40, suppress_health_check=[HealthCheck.too_slow]
)


def nothing(_key: str, _after: int) -> Waiting | None:
    return None


def waiting(seq: int, priority: int = 0, key: str | None = None, due: int | None = None):
    return Waiting(seq, priority, key, due, None, None)


def live(
    head_max: int = 10, find_key: Callable[[str, int], Waiting | None] = nothing
) -> ReadyIndex:
    """Return an index that has looked at an empty store."""
    index = ReadyIndex(0, head_max=head_max, find_key=find_key)
    while (wanted := index.hungry(1, NOW)) is not None:
        if isinstance(wanted, Timeline):
            index.load_due(wanted, DueChunk([], wanted.request(), complete=True), index_error)
        else:
            index.load(wanted, Chunk([], [], 0), 0, index_error)
    assert index.take(1, NOW) == ([], [], [])
    return index


def index_error(found: Waiting) -> None:
    raise AssertionError(f"{found} is in an empty chunk")


def take(index: ReadyIndex, most: int = 100, now: int = NOW) -> list[int]:
    fresh, others, order = index.take(most, now)
    if order:
        assert sorted(order) == sorted([*fresh, *(seq for seq, _ in others)])
    return order or fresh


def row(index: ReadyIndex, seq: int, priority: int = 0, due: int | None = None, key=None) -> None:
    index.put_row(seq, priority, due, key, None, NOW)


# -------------------------------------------------------------------------------- order


def test_a_new_index_asks_for_times_first_then_for_every_priority_from_the_top() -> None:
    index = ReadyIndex(5, head_max=10, find_key=nothing)
    asked: list[object] = []
    while (wanted := index.hungry(1, NOW)) is not None:
        asked.append(wanted)
        if isinstance(wanted, Timeline):
            index.load_due(wanted, DueChunk([], wanted.request(), complete=True), index_error)
        else:
            assert index.streams[wanted].after == 5
            index.load(wanted, Chunk([], [], 5), 5, index_error)
            index.take(1, NOW)
    assert asked == [index.delayed, index.retries, index.tail, *range(LEVELS - 1, -1, -1)]


def test_plain_messages_come_in_the_order_of_their_puts() -> None:
    index = live()
    index.put_plain(1, 1)
    index.put_plain(2, 3)
    assert index.take(3, NOW) == ([1, 2, 3], [], [])
    assert take(index) == [4]
    assert take(index) == []


def test_higher_priorities_come_first_and_in_one_claim_with_lower_ones() -> None:
    index = live()
    index.put_plain(1, 2)
    row(index, 3, priority=5)
    row(index, 4, priority=9)
    row(index, 5, priority=5)
    assert take(index, 4) == [4, 3, 5, 1]
    row(index, 6, priority=1)
    assert take(index) == [6, 2]


def test_what_comes_back_goes_to_its_old_place() -> None:
    index = live()
    index.put_plain(1, 4)
    row(index, 5, priority=3)
    assert take(index, 4) == [5, 1, 2, 3]
    index.give_back(3, Entry())
    index.give_back(5, Entry(3))
    index.give_back(1, Entry())
    assert index.has_ready
    assert take(index) == [5, 1, 3, 4]


def test_a_taken_message_of_some_priority_brings_what_it_needs_to_come_back() -> None:
    index = live()
    row(index, 1, priority=4)
    fresh, ((seq, entry),), order = index.take(1, NOW)
    assert (fresh, seq, order) == ([], 1, [1])
    assert (entry.priority, entry.attempt, entry.key) == (4, 0, None)


def test_before_a_lower_priority_has_its_turn_the_store_is_asked_for_the_higher_one() -> None:
    index = live(head_max=1)
    row(index, 1, priority=5)
    row(index, 2, priority=5)  # no room: it is left to the store
    index.put_plain(3, 1)
    assert take(index) == [1]
    assert index.hungry(1, NOW) == 5
    index.load(5, Chunk([2], [], 2), 3, index_error)
    assert index.hungry(1, NOW) is None
    assert index.hungry(2, NOW) == 5  # there may be more of it
    index.load(5, Chunk([], [], 3), 3, index_error)
    assert take(index, 2) == [2, 3]


def test_what_comes_back_from_beyond_what_was_loaded_waits_for_those_before_it() -> None:
    index = live(head_max=2)
    index.put_plain(1, 2)
    assert take(index) == [1, 2]
    index.put_plain(3, 3)  # too many: from here on the store has them
    index.give_back(2, Entry())
    assert index.hungry(1, NOW) is None
    assert take(index, 1) == [2]
    index.load(0, Chunk([3], [], 3), 5, index_error)
    index.give_back(5, Entry())
    assert take(index, 1) == [3]
    assert index.hungry(1, NOW) == 0


# ------------------------------------------------------------------------------- bounds


def test_a_head_that_is_full_leaves_the_rest_to_the_store() -> None:
    index = live(head_max=3)
    index.put_plain(1, 3)
    index.put_plain(4, 1)
    row(index, 5)
    stream = index.streams[0]
    assert (list(stream.head), stream.live, stream.after) == ([1, 2, 3], False, 3)
    assert index.hungry(3, NOW) is None
    assert index.hungry(4, NOW) == 0


def test_a_put_of_more_than_a_head_holds_goes_to_the_store_whole() -> None:
    index = live(head_max=3)
    index.put_plain(1, 4)
    stream = index.streams[0]
    assert (list(stream.head), stream.live, stream.after) == ([], False, 0)


def test_a_stream_is_live_again_when_a_chunk_reaches_the_last_message() -> None:
    index = live(head_max=2)
    index.put_plain(1, 5)
    index.load(0, Chunk([1, 2], [], 2), 5, index_error)
    index.put_plain(6, 1)
    assert list(index.streams[0].head) == [1, 2]
    index.load(0, Chunk([3, 4, 5, 6], [], 6), 6, index_error)
    index.put_plain(7, 1)
    assert take(index) == [1, 2, 3, 4, 5, 6]  # 7 found the head full
    assert index.hungry(1, NOW) == 0


def test_a_chunk_does_not_bring_what_memory_has() -> None:
    index = live(head_max=1)
    index.put_plain(1, 3)
    index.give_back(2, Entry())  # it was leased when everything was read again
    index.load(0, Chunk([1, 2, 3], [], 3), 3, index_error)
    assert take(index) == [1, 2, 3]


def test_what_is_settled_while_a_chunk_is_read_does_not_come_with_it() -> None:
    index = live(head_max=1)
    index.put_plain(1, 3)
    index.begin_load()
    assert index.discard(2) is None
    index.load(0, Chunk([1, 2], [waiting(3)], 3), 3, lambda w: index.give_back(w.seq, Entry()))
    assert take(index) == [1, 3]
    index.begin_load()
    index.discard(4)
    timeline = index.delayed = Timeline(1)
    chunk = DueChunk([waiting(4, due=5), waiting(5, due=6)], (6, 5), complete=False)
    index.load_due(timeline, chunk, lambda w: index.give_back(w.seq, Entry()))
    assert take(index) == [5]


# -------------------------------------------------------------------------------- times


def test_a_delayed_message_comes_when_its_time_has_come() -> None:
    index = live()
    row(index, 1, due=NOW + 5, priority=2)
    index.put_plain(2, 1)
    assert index.next_due() == NOW + 5
    assert not index.promote(NOW + 4)
    assert take(index, 1, NOW + 4) == [2]
    assert take(index, 1, NOW + 5) == [1]
    assert index.next_due() is None


def test_a_retry_waits_and_then_has_its_old_place() -> None:
    index = live()
    index.put_plain(1, 3)
    assert take(index, 2) == [1, 2]
    index.retry_at(NOW + 5, 1, Entry(0, 1))
    assert not any(index.returned)
    assert index.promote(NOW + 5) == 1
    assert take(index, 9, NOW + 5) == [1, 3]


def test_due_messages_are_loaded_however_many_others_wait_for_a_later_time() -> None:
    index = live(head_max=2)
    for seq in range(1, 5):
        index.retry_at(NOW + 900, seq, Entry(0, 1))
    index.delayed = Timeline(2)
    assert index.hungry(1, NOW) is index.delayed


def test_no_more_is_loaded_while_enough_is_ready() -> None:
    index = live(head_max=2)
    index.give_back(1, Entry())
    index.give_back(2, Entry())
    index.delayed = Timeline(2)
    assert index.hungry(1, NOW) is None
    assert take(index, 1) == [1]
    assert index.hungry(1, NOW) is index.delayed


def test_a_time_is_forgotten_when_its_message_is_taken_out() -> None:
    index = live()
    row(index, 1, due=NOW + 5)
    row(index, 2, due=NOW + 6, key="k")
    assert index.discard(1) is None
    assert index.next_due() == NOW + 6
    assert index.discard(2) == "k"
    assert index.next_due() is None
    assert not index.entries


# --------------------------------------------------------------------------------- keys


def test_of_a_key_one_message_moves() -> None:
    index = live()
    row(index, 1, key="a")
    row(index, 2, key="a")
    row(index, 3, key="b")
    assert take(index) == [1, 3]
    assert index.open_key("a") is None  # one moves already


def test_when_it_is_settled_the_next_one_is_looked_for_behind_it() -> None:
    asked: list[tuple[str, int]] = []

    def find(key: str, after: int) -> Waiting | None:
        asked.append((key, after))
        return waiting(after + 1, key=key) if after < 2 else None

    index = live(find_key=find)
    row(index, 1, key="a")
    assert index.close_key("a", 7) is None  # that one did not move
    found = index.close_key("a", 1)
    assert found is not None
    assert (found.seq, index.keys) == (2, {"a": 2})
    assert index.close_key("a", 2) is None
    assert (asked, index.keys) == ([("a", 1), ("a", 2)], {})


def test_a_message_of_a_key_does_not_overtake_one_that_was_not_loaded_yet() -> None:
    index = live(head_max=1)
    index.put_plain(1, 2)
    row(index, 3, key="a")  # in the store: its stream is not live
    row(index, 4, key="a", priority=5)
    assert index.keys == {}
    assert index.hungry(1, NOW) == 5  # loading asks the store who is the first


def test_a_key_is_not_stuck_however_many_wait_for_their_times() -> None:
    index = live(head_max=2)
    for seq in range(1, 100):
        row(index, seq, due=NOW + seq, key=f"key {seq}")
    assert take(index, 100, NOW + 100) == list(range(1, 100))


# ----------------------------------------------------------------------------- suspects


def test_suspects_are_handed_out_one_at_a_time_and_first() -> None:
    index = live()
    index.put_plain(1, 1)
    index.suspect(5, Entry(0, 1, 1))
    index.suspect(3, Entry(0, 1, 1))
    fresh, others, order = index.take(9, NOW)
    assert (fresh, [seq for seq, _ in others], order) == ([1], [3], [3, 1])
    assert others[0][1].suspect
    assert (index.has_ready, take(index)) == (False, [])
    index.suspect_out = False
    assert take(index) == [5]


# ------------------------------------------------------------------------------ the tail


def test_what_is_at_the_tail_comes_behind_what_waited_and_before_what_came_later() -> None:
    index = live()
    index.put_plain(1, 3)
    assert take(index, 1) == [1]
    index.to_tail(tail.due_of(0, 4), 1, Entry(0, 1))
    index.put_plain(5, 1)
    assert index.has_ready
    assert index.take_plain(NOW) is None
    assert take(index) == [2, 3, 1, 5]


def test_a_higher_priority_at_the_tail_comes_first() -> None:
    index = live()
    row(index, 1, priority=7)
    index.put_plain(2, 1)
    assert take(index, 1) == [1]
    index.to_tail(tail.due_of(7, 3), 1, Entry(7, 1))
    assert take(index) == [1, 2]


def test_what_the_tail_has_in_the_store_only_is_read_before_anything_is_taken() -> None:
    index = live(head_max=1)
    for seq in range(1, 4):
        index.to_tail(tail.due_of(0, 10 + seq), seq, Entry(0, 1))
    assert len(index.tail.heap) <= 2
    index.put_plain(20, 1)
    assert take(index) == [1]
    assert index.hungry(1, NOW) is index.tail


def test_a_damaged_place_is_a_place_of_some_priority() -> None:
    for due in (-1, -(1 << 63), tail.due_of(9, 0), tail.due_of(0, 1 << 55)):
        assert 0 <= tail.priority_of(due) <= 9
        index = live()
        index.to_tail(due, 1, Entry())
        assert take(index) == [1]


# -------------------------------------------------------------------------------- floor


def test_nothing_waits_up_to_the_floor() -> None:
    index = live()
    assert index.floor(9, None) == 9
    assert index.floor(9, 4) == 3
    index.put_plain(10, 2)
    assert index.floor(11, None) == 9
    take(index)
    index.retry_at(NOW + 5, 10, Entry())
    assert index.floor(11, 11) == 9


def test_where_memory_has_not_looked_the_floor_does_not_go() -> None:
    index = live(head_max=1)
    index.put_plain(1, 3)
    assert index.floor(3, None) == 0
    index.load(0, Chunk([], [], 2), 3, index_error)
    assert index.floor(3, None) == 2
    index.delayed = Timeline(1)
    assert index.floor(3, None) is None


# -------------------------------------------------------------------------- the short way


def test_the_short_way_takes_the_next_plain_message() -> None:
    index = live()
    index.put_plain(1, 2)
    assert [index.take_plain(NOW) for _ in range(3)] == [1, 2, None]


def _returned(index: ReadyIndex) -> None:
    index.give_back(1, Entry())


def _urgent(index: ReadyIndex) -> None:
    index.put_row(4, 5, None, None, None, NOW)


def _later(index: ReadyIndex) -> None:
    index.put_row(4, 0, NOW - 1, None, None, NOW)


def _keyed(index: ReadyIndex) -> None:
    index.put_row(4, 0, None, "k", None, NOW)


def _suspect(index: ReadyIndex) -> None:
    index.suspect(4, Entry())


def _retry_in_the_store(index: ReadyIndex) -> None:
    index.retries = Timeline(1)


@pytest.mark.parametrize(
    "arrive", [_returned, _urgent, _later, _keyed, _suspect, _retry_in_the_store]
)
def test_the_short_way_is_closed_when_something_else_is_about(
    arrive: Callable[[ReadyIndex], None],
) -> None:
    index = live()
    index.put_plain(2, 2)
    arrive(index)
    assert index.take_plain(NOW) is None
    assert list(index.streams[0].head)[:2] == [2, 3]


# -------------------------------------------------------------------------- the machine


def test_the_index_hands_out_what_it_must_whatever_happens() -> None:
    run_state_machine_as_test(ReadyMachine, settings=SETTINGS)


class ForgetsWhatPassed(ReadyIndex):
    """Believes a chunk that was read before a message was stored."""

    def _park(self, timeline: Timeline, due: int, seq: int, entry: Entry) -> None:
        if timeline.covers(due, seq):
            super()._park(timeline, due, seq, entry)


class BoundsKeys(ReadyIndex):
    """Leaves keyed messages to the store that nobody loads from there."""

    def reset(self, floor: int) -> None:
        super().reset(floor)
        self.held = Timeline(self._head_max)
        self.held.complete = True


class FloorsTooHigh(ReadyIndex):
    """Overlooks what waits for a time or came back."""

    def floor(self, last: int, leased: int | None) -> int | None:
        entries, self.entries = self.entries, {}
        try:
            return super().floor(last, leased)
        finally:
            self.entries = entries


@pytest.mark.parametrize("mutant", [ForgetsWhatPassed, BoundsKeys, FloorsTooHigh])
def test_the_machine_notices_a_mutant(mutant: type[ReadyIndex]) -> None:
    spoilt = type("Spoilt", (ReadyMachine,), {"index_type": mutant})
    search = settings(
        SETTINGS, max_examples=200, database=None, derandomize=True, phases=[Phase.generate]
    )
    with pytest.raises((AssertionError, KeyError)):
        run_state_machine_as_test(spoilt, settings=search)
