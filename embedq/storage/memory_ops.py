"""What each operation of the store port changes, on plain dicts, for obviousness and not speed.

Knows: every rule about puts, deliveries, settlement, dead letters, groups and retention.
Does not know: batches, undoing, questions; an operation that raises may leave its state half done.
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from functools import singledispatch

import msgspec

from embedq.errors import InvalidOption
from embedq.lifecycle import Outcome
from embedq.limits import LIMITS
from embedq.message import AttemptRecord, ErrorInfo
from embedq.storage import ops
from embedq.storage.memory_state import State, is_final
from embedq.storage.rows import REDRIVEN_FROM, DeadRow, DeliveryRow, GroupRow, QueueRow, Stored


@singledispatch
def apply(op: ops.Op, _state: State) -> None:
    """Do one operation, setting its "out" fields; InvalidOption for something unknown."""
    raise InvalidOption(
        f"{type(op).__name__} is not an operation of the store port",
        hint="use the operations of embedq.storage.ops",
    )


# ------------------------------------------------------------------------------- puts


def _store(state: State, message: Stored) -> int:
    """Store a message under the next seq, whatever its own says."""
    state.last_seq += 1
    state.messages[state.last_seq] = message._replace(seq=state.last_seq)
    return state.last_seq


@apply.register
def _(op: ops.PutPlain, state: State) -> None:
    op.first = state.last_seq + 1
    for position in range(op.count):
        crc, body = op.items[2 * position], op.items[2 * position + 1]
        plain = (0, None, None, None, None, None)
        _store(state, Stored(0, op.queue, op.put_at, op.kind, int(crc), *plain, bytes(body)))


@apply.register
def _(op: ops.PutRows, state: State) -> None:
    op.seqs, op.stored = [], []
    for position, row in enumerate(op.rows):
        if row.dedup_key is not None:
            seq, until = state.dedup.get((op.queue, row.dedup_key), (0, 0))
            if until > op.put_at:
                op.seqs.append(seq)
                continue
        seq = _store(
            state,
            Stored(
                seq=0,
                queue=op.queue,
                put_at=op.put_at,
                kind=row.kind,
                crc=row.crc,
                priority=row.priority,
                due=row.due,
                expires=row.expires,
                key=row.key,
                max_attempts=row.max_attempts,
                headers=row.headers,
                body=row.body,
            ),
        )
        op.seqs.append(seq)
        op.stored.append(position)
        if row.dedup_key is not None:
            state.dedup[op.queue, row.dedup_key] = (seq, row.dedup_until)


@apply.register
def _(op: ops.Forget, state: State) -> None:
    over = [key for key, (_, until) in state.dedup.items() if until <= op.now]
    over.sort(key=lambda key: state.dedup[key][1])
    for key in over[: op.limit]:
        del state.dedup[key]
    op.removed = len(over[: op.limit])


# ------------------------------------------------------------------------- deliveries


@apply.register
def _(op: ops.Start, state: State) -> None:
    state.gives(op.session)
    deliveries = [*[ops.Again(seq, 1, 0) for seq in op.fresh_seqs()], *op.again]
    for position, again in enumerate(deliveries):
        seq, attempt, crashes = again[:3]
        message = state.messages.get(seq)
        if message is None:
            continue
        for earlier in state.rows_of(op.group, seq):
            if earlier.attempt < attempt:
                state.put_row(_left_behind(state, earlier, op.started, message.queue, again))
        counter = op.counter + position
        where = (seq, op.group, attempt, state.epoch, counter, crashes, op.session, op.started)
        state.put_row(DeliveryRow(*where, *(None,) * 5))
    seqs = [each.seq for each in deliveries]
    there = [state.messages[seq] for seq in seqs if seq in state.messages]
    op.messages = there if op.reads else None


def _left_behind(
    state: State, row: DeliveryRow, now: int, queue: int, again: ops.Again
) -> DeliveryRow:
    """Return a delivery as the start of the next one leaves it."""
    if row.ended is not None:
        return row._replace(due=None)
    crashes = row.crashes + (again.outcome == Outcome.CRASHED)
    counted = row._replace(due=None, crashes=crashes, error=again.words)
    return closed(state, counted, queue, now, again.outcome)


def closed(
    state: State, row: DeliveryRow, queue: int, ended: int, outcome: Outcome
) -> DeliveryRow:
    """Return an open delivery closed; in a retained queue it takes its place in the history."""
    number = state.closing_number(queue)
    return row._replace(ended=ended, outcome=int(outcome), closed=number)


@apply.register
def _(op: ops.Fail, state: State) -> None:
    row = state.open_row(op.group, op.seq)
    if row is not None and row.attempt == op.attempt:
        queue = state.messages[op.seq].queue
        row = closed(state, row, queue, op.ended, op.outcome)
        crashes = row.crashes + (op.outcome == Outcome.CRASHED)
        state.put_row(row._replace(due=op.due, error=op.error, crashes=crashes))


@apply.register
def _(op: ops.Release, state: State) -> None:
    for seq, attempt in op.deliveries:
        row = state.open_row(op.group, seq)
        if row is not None and row.attempt == attempt:
            state.set_rows(seq, [r for r in state.deliveries[seq] if r is not row])


# ------------------------------------------------------------------------- settlement


@apply.register
def _(op: ops.Ack, state: State) -> None:
    op.removed = 0
    for seq in op.seqs:
        row = state.open_row(op.group, seq)
        if row is not None:
            queue = state.messages[seq].queue
            state.put_row(closed(state, row, queue, op.ended, Outcome.ACKED))
            op.removed += _leave(state, seq)


def _leave(state: State, seq: int) -> int:
    """Remove a message that nobody needs any more; return how many left."""
    if state.is_retained(state.messages[seq].queue) or state.unsettled(seq):
        return 0
    state.remove(seq)
    return 1


@apply.register
def _(op: ops.Cancel, state: State) -> None:
    op.removed = []
    for seq in op.seqs:
        message = state.messages.get(seq)
        if message is not None and message.queue == op.queue:
            state.remove(seq)
            op.removed.append(seq)


@apply.register
def _(op: ops.Collect, state: State) -> None:
    op.removed = 0
    if not state.groups_of(op.queue):
        return
    for seq, message in list(state.messages.items()):
        if message.queue == op.queue and op.after < seq <= op.upto:
            op.removed += _leave(state, seq)


@apply.register
def _(op: ops.Retire, state: State) -> None:
    op.removed, op.reached = 0, None
    # All that one commit closed share a number: they are looked at together or not at all.
    for number in _closing_numbers(state, op):
        rows = [
            row
            for rows in state.deliveries.values()
            for row in rows
            if row.group == op.group and row.closed == number
        ]
        if any(row.ended is not None and row.ended >= op.cutoff for row in rows):
            break
        for row in rows:
            if is_final(row) and _is_over(state, row.seq, op.cutoff):
                state.remove(row.seq)
                op.removed += 1
        op.reached = number


def _is_over(state: State, seq: int, cutoff: int) -> bool:
    """Whether every group has settled a message, and long enough ago.

    A settlement from before the queue retained has no number; it keeps nothing, as it would
    never be looked at.
    """
    if state.unsettled(seq):
        return False
    settled = [row for row in state.deliveries.get(seq, ()) if is_final(row) and row.closed]
    return all(row.ended is not None and row.ended < cutoff for row in settled)


def _closing_numbers(state: State, op: ops.Retire) -> list[int]:
    """Return the numbers of the next `limit` closings of a group, each once."""
    numbers = sorted(
        row.closed
        for rows in state.deliveries.values()
        for row in rows
        if row.group == op.group and row.closed is not None and row.closed > op.after
    )
    return sorted(set(numbers[: op.limit]))


# ------------------------------------------------------------------------ dead letters


@apply.register
def _(op: ops.Bury, state: State) -> None:
    op.dead_id, op.removed = None, 0
    if op.group not in state.unsettled(op.seq):
        return
    message = state.messages[op.seq]
    rows = state.rows_of(op.group, op.seq)
    attempts = [row for row in rows if row.ended is not None and row.attempt]
    row = state.open_row(op.group, op.seq)
    if row is not None:
        attempts.append(row._replace(ended=op.ended, outcome=int(op.outcome), error=op.error))
    op.dead_id = state.new_id()
    state.dead[op.dead_id] = _dead_letter(op, op.dead_id, message, _records(state, attempts))
    for earlier in state.rows_of(op.group, op.seq):
        state.put_row(earlier._replace(due=None))
    if row is None:
        nobody = (0, state.epoch, 0, 0, None, op.ended)
        row = DeliveryRow(op.seq, op.group, *nobody, None, None, None, None, None)
    else:
        row = row._replace(error=op.error)
    state.put_row(closed(state, row, message.queue, op.ended, Outcome.DEAD))
    op.removed = _leave(state, op.seq)


def _records(state: State, attempts: list[DeliveryRow]) -> bytes:
    """Return what a dead letter keeps of its deliveries."""
    records = [
        AttemptRecord(
            row.attempt,
            row.started,
            row.ended,
            "" if row.session is None else state.session_name(row.session),
            None if row.outcome is None else Outcome(row.outcome),
            None if row.error is None else ErrorInfo.decode(row.error),
        )
        for row in attempts[-LIMITS.attempts_kept :]
    ]
    return msgspec.msgpack.encode(records)


def _dead_letter(op: ops.Bury, dead_id: int, message: Stored, attempts: bytes) -> DeadRow:
    return DeadRow(
        id=dead_id,
        seq=op.seq,
        group=op.group,
        queue=message.queue,
        died=op.ended,
        reason=str(op.reason),
        detail=op.detail,
        moved_by=op.moved_by,
        attempts=attempts,
        put_at=message.put_at,
        kind=message.kind,
        crc=message.crc,
        priority=message.priority,
        key=message.key,
        max_attempts=message.max_attempts,
        headers=message.headers,
        body=message.body,
    )


@apply.register
def _(op: ops.Redrive, state: State) -> None:
    op.seqs = []
    for dead_id, origin in zip(op.dead_ids, op.origins, strict=True):
        letter = state.dead.get(dead_id)
        if letter is None or letter.queue != op.queue:
            op.seqs.append(None)
            continue
        op.seqs.append(_store(state, _alive(letter, origin, op.put_at)))
        del state.dead[dead_id]


def _alive(letter: DeadRow, origin: str, now: int) -> Stored:
    """Return the message that a dead letter becomes."""
    headers: dict[str, str] = {}
    if letter.headers is not None:
        headers = msgspec.msgpack.decode(letter.headers, type=dict[str, str])
    encoded = msgspec.msgpack.encode({**headers, REDRIVEN_FROM: origin})
    return Stored(
        seq=0,
        queue=letter.queue,
        put_at=now,
        kind=letter.kind,
        crc=zlib.crc32(letter.body, zlib.crc32(encoded)),
        priority=letter.priority,
        due=None,
        expires=None,
        key=letter.key,
        max_attempts=letter.max_attempts,
        headers=encoded,
        body=letter.body,
    )


@apply.register
def _(op: ops.PurgeDead, state: State) -> None:
    op.removed = 0
    for dead_id in op.dead_ids:
        if dead_id in state.dead and state.dead[dead_id].queue == op.queue:
            del state.dead[dead_id]
            op.removed += 1


# -------------------------------------------------------------------------- catalogue


@apply.register
def _(op: ops.DeclareQueue, state: State) -> None:
    row = next((row for row in state.queues.values() if row.name == op.name), None)
    if row is None:
        row = QueueRow(state.new_id(), op.name, op.policy, False, 0, 0, 0)
    state.queues[row.id] = replace(row, policy=op.policy)
    op.row = replace(state.queues[row.id])


@apply.register
def _(op: ops.Pause, state: State) -> None:
    if op.queue in state.queues:
        state.queues[op.queue] = replace(state.queues[op.queue], paused=op.paused)


@apply.register
def _(op: ops.DeclareGroup, state: State) -> None:
    row = next((row for row in state.groups_of(op.queue) if row.name == op.name), None)
    if row is None:
        below = [m for m in state.messages.values() if m.queue == op.queue and m.seq <= op.floor]
        row = GroupRow(state.new_id(), op.queue, op.name, op.floor, len(below))
        state.groups[row.id] = row
    op.row = replace(row)


@apply.register
def _(op: ops.RemoveGroup, state: State) -> None:
    state.groups.pop(op.group, None)
    for seq, rows in list(state.deliveries.items()):
        state.set_rows(seq, [row for row in rows if row.group != op.group])


@apply.register
def _(op: ops.Save, state: State) -> None:
    for queue, stored, dead, last in op.queues:
        if queue in state.queues:
            state.queues[queue] = replace(state.queues[queue], stored=stored, dead=dead, last=last)
    for group, floor, settled in op.groups:
        if group in state.groups:
            _raise_floor(state, state.groups[group], floor, settled)


def _raise_floor(state: State, group: GroupRow, floor: int, settled: int) -> None:
    new = replace(group, floor=max(group.floor, floor), settled=settled)
    state.groups[group.id] = new
    if state.is_retained(group.queue):
        return
    for seq, rows in list(state.deliveries.items()):
        if group.floor < seq <= new.floor:
            state.set_rows(seq, [row for row in rows if row.group != group.id])
