"""Load waiting messages from the store into the ready index of a group.

Knows: what a loaded message was up to before, and what may have changed since it was read.
Does not know: SQL, who will get the message.

Chunks are read outside the writer's lock and taken in under it. What changed in between hardly
concerns them: a message beyond what memory has seen moves only through here. The exceptions are
noted (times that were passed by, messages settled by id) or looked up again under the lock (keys,
deliveries opened since this epoch began).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from embedq.broker import outsiders
from embedq.broker.entry import Entry
from embedq.broker.state import GroupState
from embedq.broker.telling import tell
from embedq.broker.timeline import Timeline
from embedq.lifecycle import Outcome
from embedq.storage import reentry
from embedq.storage.port import Load, LoadDue
from embedq.storage.rows import Touched, Waiting

if TYPE_CHECKING:
    from embedq.broker.engine import Engine


def feed(engine: Engine, group: GroupState, hungry: int | Timeline, most: int) -> None:
    """Load the next chunk of what `ReadyIndex.hungry(most)` named. Called without the lock."""
    reentry.check(group.loader, group.loading)
    with group.loader, group.loading:
        if isinstance(hungry, Timeline):
            _feed_timeline(engine, group, hungry)
        else:
            _feed_stream(engine, group, hungry, most)


def _feed_stream(engine: Engine, group: GroupState, level: int, most: int) -> None:
    index = group.index
    with engine.writer.entry, engine.writer.lock:
        engine.writer.settle()
        if engine.writer.change(lambda: index.hungry(most, engine.now_ms())) != level:
            return  # somebody else has loaded it while we waited
        stream = index.streams[level]
        generation = index.generation
        index.begin_load()
        last = group.queue.last
        request = Load(group.id, level, stream.after, last, engine.load_chunk)
    chunk = engine.store.load(request)
    with engine.writer.entry, engine.writer.lock:
        engine.writer.settle()
        if index.generation != generation:
            return
        one = partial(admit, engine, group, now=engine.now_ms())
        engine.writer.change(lambda: index.load(level, chunk, group.queue.last, one))


def _feed_timeline(engine: Engine, group: GroupState, timeline: Timeline) -> None:
    index = group.index
    with engine.writer.entry, engine.writer.lock:
        engine.writer.settle()
        if timeline not in {index.delayed, index.retries, index.tail} or timeline.complete:
            return
        generation = index.generation
        after = timeline.request()
        index.begin_load()
        late, tails = timeline is not index.delayed, timeline is index.tail
        request = LoadDue(group.id, late, after, engine.load_chunk, tails)
    chunk = engine.store.load_due(request)
    with engine.writer.entry, engine.writer.lock:
        engine.writer.settle()
        if index.generation != generation or timeline.after != after or timeline.complete:
            return
        one = partial(admit, engine, group, now=engine.now_ms())
        engine.writer.change(lambda: index.load_due(timeline, chunk, one))


def admit(engine: Engine, group: GroupState, waiting: Waiting, now: int) -> None:
    """Put a message that was read from the store where it belongs. The lock is held."""
    index = group.index
    if waiting.key is not None:
        head = index.open_key(waiting.key)
        if head is not None:
            waiting = head
        elif waiting.key in index.keys or group.id not in engine.store.unsettled(waiting.seq):
            return  # another message of the key moves; this one is found when that is settled
        else:
            waiting = waiting._replace(key=None)  # damaged: the store does not find it by its key
    if waiting.seq in group.leases or waiting.seq in index.entries:
        return
    entry = Entry(waiting.priority, key=waiting.key, max_attempts=waiting.max_attempts)
    touched = waiting.touched
    if touched is None or not touched.open:
        if touched is not None:
            entry.attempt, entry.crashes = touched.attempt, touched.crashes
        if touched is not None and touched.crashed:
            index.suspect(waiting.seq, entry)  # its worker died, in this epoch or an earlier one
        else:
            index.place(waiting, entry, now)
    elif touched.epoch != engine.store.epoch:
        heirs = engine.inheritance
        if heirs is not None and heirs.adopt(engine, group, waiting, entry):
            return
        _admit_left_open(engine, group, waiting, touched, entry, now)
    else:
        _admit_orphan(engine, group, touched, entry)


def _admit_left_open(
    engine: Engine, group: GroupState, waiting: Waiting, touched: Touched, entry: Entry, now: int
) -> None:
    """Take back what was being delivered when its host died: that was an attempt."""
    outsiders.found_open(engine, group, touched, entry)
    attempt, crashes = entry.attempt, entry.crashes
    if not crashes:
        group.index.place(waiting, entry, now)
        tell(engine, "lease_expired", group, waiting.seq, attempt=attempt)
        return
    # Perhaps its fault, this time or an earlier one from which it was not done yet.
    group.index.suspect(waiting.seq, entry)
    if entry.left_as is not Outcome.CRASHED:
        tell(engine, "lease_expired", group, waiting.seq, attempt=attempt)
        return
    wanted = engine.events.wanted("crashed_delivery")
    cause = engine.end_of(touched.epoch) if wanted else ""
    told = (engine, "crashed_delivery", group, waiting.seq)
    tell(*told, attempt=attempt, crashes=crashes, cause=cause)
    tell(engine, "suspect", group, waiting.seq, crashes=crashes)


def _admit_orphan(engine: Engine, group: GroupState, touched: Touched, entry: Entry) -> None:
    """Take back a delivery that nobody holds: the claim was interrupted after its commit."""
    latest = engine.store.latest(group.id, touched.seq)
    if latest is None or latest.ended is not None:
        return  # settled or failed since it was read; whoever did that has placed it
    entry.attempt, entry.crashes = latest.attempt - 1, latest.crashes
    group.index.give_back(touched.seq, entry)


def key_settled(engine: Engine, group: GroupState, key: str, seq: int) -> None:
    """The message of a key that moved is settled: let the next one move. The lock is held."""
    head = group.index.close_key(key, seq)
    if head is None:
        return
    del group.index.keys[key]  # `admit` opens it again, for the same message
    admit(engine, group, head, engine.now_ms())
    if group.waiters:
        group.waiters.wake()
        engine.upkeep.expect(group.index.next_due())
