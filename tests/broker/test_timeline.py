"""A timeline knows how far memory reaches, and never says that it has what it has not."""

import pytest
from hypothesis import Phase, given, settings, strategies as st

from embedq.broker.timeline import START, Timeline


def bounded(most: int = 2, *waiting: tuple[int, int]) -> Timeline:
    """Return a timeline that has read an empty store, and what came since."""
    timeline = Timeline(most)
    timeline.loaded(timeline.request(), complete=True)
    for due, seq in waiting:
        assert timeline.covers(due, seq)
        timeline.add(due, seq)
    return timeline


def test_a_new_timeline_covers_nothing_and_must_be_loaded_at_once() -> None:
    timeline = Timeline(2)
    assert not timeline.covers(0, 0)
    assert timeline.needs_load(0)
    assert timeline.next_due() == 0
    assert timeline.request() == START


def test_messages_come_in_the_order_of_their_times_then_of_their_seqs() -> None:
    timeline = bounded(9, (20, 1), (10, 7), (10, 3), (30, 2))
    assert [timeline.pop_due(20) for _ in range(4)] == [3, 7, 1, None]
    assert timeline.next_due() == 30
    assert timeline.pop_due(29) is None
    assert timeline.pop_due(30) == 2
    assert timeline.next_due() is None


def test_beyond_twice_its_bound_the_farthest_are_left_to_the_store() -> None:
    timeline = bounded(2, (10, 1), (40, 4), (20, 2), (30, 3))
    assert timeline.complete
    assert timeline.add(25, 5) == [5, 3, 4]
    assert (timeline.after, timeline.complete) == ((20, 2), False)
    assert timeline.covers(20, 2)
    assert not timeline.covers(20, 3)


def test_the_rest_is_loaded_when_its_time_comes_and_memory_has_run_empty() -> None:
    timeline = bounded(1, (10, 1), (20, 2), (30, 3))
    assert not timeline.needs_load(99)  # something is here
    assert timeline.pop_due(10) == 1
    assert not timeline.needs_load(9)
    assert timeline.needs_load(10)
    assert timeline.next_due() == 10
    timeline.loaded((20, 2), complete=False)
    assert not timeline.needs_load(19)
    timeline.loaded((30, 3), complete=True)
    assert not timeline.needs_load(99)


def test_an_unbounded_timeline_keeps_everything() -> None:
    timeline = Timeline(None)
    assert not timeline.needs_load(99)
    assert [far for seq in range(1000) for far in timeline.add(seq, seq)] == []
    assert timeline.covers(10**9, 1)


def test_a_chunk_counts_only_up_to_what_was_stored_while_it_was_read() -> None:
    timeline = Timeline(9)
    timeline.request()
    timeline.pass_by(30, 7)
    timeline.pass_by(20, 5)
    timeline.pass_by(25, 6)
    timeline.loaded((40, 4), complete=True)
    assert (timeline.after, timeline.complete) == ((20, 4), False)
    assert timeline.request() == (20, 4)
    timeline.loaded((40, 4), complete=True)
    assert timeline.complete


def test_what_was_stored_beyond_a_chunk_only_says_that_more_is_there() -> None:
    timeline = Timeline(9)
    timeline.request()
    timeline.pass_by(50, 5)
    timeline.loaded((40, 4), complete=True)
    assert (timeline.after, timeline.complete) == ((40, 4), False)


def test_what_was_stored_before_the_request_is_in_the_chunk() -> None:
    timeline = Timeline(9)
    timeline.pass_by(20, 5)
    timeline.request()
    timeline.loaded((40, 4), complete=True)
    assert timeline.complete


def test_a_discarded_message_does_not_come() -> None:
    timeline = bounded(9, (10, 1), (10, 2), (20, 3))
    timeline.discard(1)
    timeline.discard(8)
    assert [timeline.pop_due(99) for _ in range(3)] == [2, 3, None]


Positions = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 99)), unique_by=lambda p: p[1])


def play(
    kind: type[Timeline],
    stored: list[tuple[int, int]],
    added: list[tuple[int, int]],
    most: int,
    chunk: int,
) -> None:
    """Read chunks while others are added; in the end each message has come once, in time."""
    added = [(due, seq + 100) for due, seq in added]
    everything = sorted([*stored, *added])
    store, timeline, came = sorted(stored), kind(most), []
    now = 0
    while now < 12:
        if timeline.needs_load(now):
            after = timeline.request()
            found = [position for position in store if position > after]
            if added:  # stored while the chunk is on its way
                position = added.pop()
                store = sorted([*store, position])
                if timeline.covers(*position):
                    timeline.add(*position)
                else:
                    timeline.pass_by(*position)
            last = found[:chunk][-1] if found else after
            timeline.loaded(last, complete=len(found) <= chunk)
            for position in found[:chunk]:
                if timeline.covers(*position):
                    timeline.add(*position)
        elif (seq := timeline.pop_due(now)) is not None:
            came.append(seq)
            assert seq > 100 or (now, seq) in stored  # those from the beginning come in time
            store = [position for position in store if position[1] != seq]
        else:
            due = timeline.next_due()
            assert due is None or due > now
            now += 1
    left = {seq for _, seq in added}
    assert sorted([*came, *left]) == sorted(seq for _, seq in everything)
    assert len(timeline.heap) <= 2 * most


drawn = given(stored=Positions, added=Positions, most=st.integers(1, 4), chunk=st.integers(1, 3))


@drawn
def test_nothing_is_lost_between_memory_and_store(stored, added, most: int, chunk: int) -> None:
    play(Timeline, stored, added, most, chunk)


class Forgetful(Timeline):
    """Does not note what went by while a chunk was read."""

    def pass_by(self, due: int, seq: int) -> None:
        pass


def test_the_play_notices_a_timeline_that_forgets() -> None:
    @settings(database=None, derandomize=True, phases=[Phase.generate])
    @drawn
    def forgotten(stored, added, most: int, chunk: int) -> None:
        play(Forgetful, stored, added, most, chunk)

    with pytest.raises(AssertionError):
        forgotten()
