"""The life cycle table.

Knows: the properties that hold for every row.
Does not know: the code that moves messages.
"""

import pytest
from hypothesis import given, strategies as st

from embedq.errors import UsageError
from embedq.lifecycle import (
    FINAL,
    TRANSITIONS,
    Event,
    Outcome,
    Reason,
    State,
    transition,
)

STATES = [None, *State]
CLOSED = {State.ACKED, State.DEAD, State.EXPIRED}


def test_a_state_and_an_event_have_one_row():
    keys = [(row.source, row.event) for row in TRANSITIONS]
    assert len(set(keys)) == len(keys)


def test_every_event_and_every_state_is_used():
    assert {row.event for row in TRANSITIONS} == set(Event)
    assert {row.source for row in TRANSITIONS} == set(STATES)
    assert {row.target for row in TRANSITIONS} == set(STATES)


def test_every_message_can_leave():
    leaving: set[State | None] = {None}
    for _ in STATES:
        leaving |= {row.source for row in TRANSITIONS if row.target in leaving}
    assert leaving == set(STATES)


def test_only_the_end_of_a_lease_counts_an_attempt():
    counting = [row for row in TRANSITIONS if row.counts_attempt]
    assert counting
    assert all(row.source is State.LEASED and row.outcome is not None for row in counting)
    assert not transition(State.LEASED, Event.RELEASE).counts_attempt


def test_a_final_outcome_ends_the_message_and_another_one_does_not():
    for row in TRANSITIONS:
        if row.outcome is not None:
            ends = row.target is None or row.target in CLOSED
            assert row.outcome.is_final == ends, row


def test_a_message_that_is_over_never_becomes_deliverable_again():
    for row in TRANSITIONS:
        if row.source in CLOSED:
            assert row.target is None


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("event", Event)
def test_what_is_not_in_the_table_is_refused(state, event):
    rows = [row for row in TRANSITIONS if (row.source, row.event) == (state, event)]
    if rows:
        assert transition(state, event).target is rows[0].target
        assert rows[0].note
    else:
        with pytest.raises(UsageError, match="cannot happen to") as caught:
            transition(state, event)
        assert caught.value.details == {"state": state, "event": event}


@given(st.lists(st.sampled_from(Event), max_size=60))
def test_no_sequence_of_events_leaves_the_states(events):
    state = None
    for event in events:
        try:
            state = transition(state, event).target
        except UsageError:
            continue
        assert state is None or state in State


def test_stored_numbers_and_texts_never_change():
    assert FINAL == 10
    assert {outcome.name: outcome.value for outcome in Outcome} == {
        "FAILED": 1,
        "TIMED_OUT": 2,
        "CRASHED": 3,
        "ACKED": 10,
        "DEAD": 11,
        "EXPIRED": 12,
        "CANCELLED": 13,
    }
    assert {reason.value for reason in Reason} == {
        "max_attempts",
        "rejected",
        "expired",
        "corrupt",
        "crashed",
        "undecodable",
        "age",
        "moved",
    }
