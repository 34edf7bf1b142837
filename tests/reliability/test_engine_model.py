"""The engine against a naive model: whatever is done, both deliver the same in the same order.

Knows: the machines, and the mistakes they must find.
Does not know: how machine, engine or model work.
"""

from __future__ import annotations

import heapq
import logging
import os

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from embedq.broker import direct, engine as engine_room
from embedq.broker.changes import NewGroup
from embedq.broker.direct import Handing, PutMessages
from embedq.broker.engine import Engine
from embedq.broker.intake import row_of
from embedq.broker.leases import Lease
from embedq.broker.ready import ReadyIndex
from embedq.broker.settling import Settle
from embedq.broker.state import GroupState
from embedq.broker.timeline import Timeline
from embedq.broker.waiting import Waiters
from embedq.errors import EmbedqError
from embedq.storage import tail
from tests.reliability.engine_machine import EngineMachine
from tests.reliability.shown_ways import WAYS, show
from tests.reliability.waiting_machine import Roomy, WaitingMachine

pytestmark = pytest.mark.reliability

#: All of it with EMBEDQ_TEST_LONG=1; a run of the whole suite has not the time: there the machine
#: is shown the way to a mistake that chance takes more than some seconds to find.
LONG = bool(os.environ.get("EMBEDQ_TEST_LONG"))
RUNS = settings(max_examples=100 if LONG else 40, stateful_step_count=50)

#: What chance does not find in half a minute, and one of these not in three.
TOO_RARE = {"a retry has no priority", "the next of a key never moves"}


@pytest.fixture(autouse=True)
def silence():
    """Thousands of dead letters would be logged, and kept by pytest."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("machine", [EngineMachine, WaitingMachine, Roomy])
def test_engine_and_model_agree(machine):
    run_state_machine_as_test(machine, settings=RUNS)


# ------------------------------------------------------------- mistakes the machines must find


def _every_lease_counts(task):
    task._valid = list(task._leases)
    return task.ops() if task._valid else ()


def _early_pop(timeline, now):
    return heapq.heappop(timeline.heap)[1] if timeline.heap else None


def _count_one_less(lease, attempt):
    return ENTRY_AT(lease, attempt - 1)


def _forget_priority(lease, attempt):
    entry = ENTRY_AT(lease, attempt)
    entry.priority = 0
    return entry


def _overtake(index, first, count):
    PUT_PLAIN(index, first, count)
    index.streams[0].head.rotate(count > 1)


def _only_plain(index, now):
    head = index.streams[0].head
    return head.popleft() if head else None


def _blame_nobody(index, seq, entry):
    entry.crashes -= 1
    SUSPECT(index, seq, entry)


def _no_window(draft, now):
    return ROW_OF(draft, now)._replace(dedup_until=now)


def _from_the_beginning(task):
    task._op.floor = 0
    return (task._op,)


def _settle_twice(group, count, removed):
    COUNT_SETTLED(group, count + (removed < count), removed)


def _all_at_once(put, group, now):
    return range(len(put.op.rows))


def _offer_it_too(handing, put, positions, now):
    starts = SHARE(handing, put, positions, now)
    handing.positions = ()
    return starts


def _old_place(index, _due, seq, entry):
    index.give_back(seq, entry)


def _last_in_first_out(priority, place):
    return DUE_OF(priority, 10**15 - place)


def _just_leave(desk, waiters, waiter):
    waiters.leave(waiter)


SHARE, DUE_OF = Handing.share, tail.due_of
ENTRY_AT, PUT_PLAIN, SUSPECT = Lease.entry_at, ReadyIndex.put_plain, ReadyIndex.suspect
ROW_OF, COUNT_SETTLED = row_of, GroupState.count_settled

MISTAKES = {
    "a stale token counts": (Settle, "prepare", _every_lease_counts),
    "a message is ready before its time": (Timeline, "pop_due", _early_pop),
    "an attempt is forgotten": (Lease, "entry_at", _count_one_less),
    "a retry has no priority": (Lease, "entry_at", _forget_priority),
    "the last of a batch comes first": (ReadyIndex, "put_plain", _overtake),
    "the next of a key never moves": (Engine, "key_settled", lambda *_: None),
    "the short way overlooks what is not plain": (ReadyIndex, "take_plain", _only_plain),
    "a crash does not count": (ReadyIndex, "suspect", _blame_nobody),
    "a dedup key is forgotten": (engine_room, "row_of", _no_window),
    "a settlement counts twice": (GroupState, "count_settled", _settle_twice),
    "what is given back is lost": (ReadyIndex, "give_back", lambda *_: None),
    "a group begins too early": (NewGroup, "prepare", _from_the_beginning),
    "a put overtakes what waits": (direct, "is_next", lambda _, group, now: bool(group.waiters)),
    "what is handed over is offered, too": (Handing, "share", _offer_it_too),
    "two of a key are handed over": (PutMessages, "_fitting", _all_at_once),
    "who leaves keeps what it was handed": (direct, "leave", _just_leave),
    "the tail is the old place": (ReadyIndex, "to_tail", _old_place),
    "the tail is turned round": (tail, "due_of", _last_in_first_out),
    "nobody hears of a put": (Waiters, "wake", lambda waiters, count=1: None),
}


#: The first examples do, and how a failure could be told more simply is of no interest.
HUNT = settings(
    max_examples=500,
    stateful_step_count=50,
    phases=[Phase.generate],
    report_multiple_bugs=False,
    derandomize=True,
    database=None,
)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_machine_finds_a_mistake(monkeypatch, mistake):
    where, name, wrong = MISTAKES[mistake]
    monkeypatch.setattr(where, name, wrong)
    is_shown = mistake in WAYS and (mistake in TOO_RARE or not LONG)
    with pytest.raises((AssertionError, EmbedqError, LookupError)):
        show(mistake) if is_shown else run_state_machine_as_test(Roomy, settings=HUNT)


@pytest.mark.parametrize("mistake", WAYS)
def test_the_way_that_the_machine_is_shown_is_sound_without_the_mistake(mistake):
    show(mistake)
