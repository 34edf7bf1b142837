"""What giving a message back at the tail changes in a store in memory.

Knows: the same as memory_ops, for the operations of tail.py.
Does not know: what is true of tables (memory_state), batches.
"""

from __future__ import annotations

from embedq.lifecycle import Outcome
from embedq.storage import tail
from embedq.storage.memory_ops import apply, closed
from embedq.storage.memory_state import State
from embedq.storage.rows import DeliveryRow


@apply.register
def _(op: tail.ToTail, state: State) -> None:
    row = state.open_row(op.group, op.seq)
    op.due = None
    if row is None or row.attempt != op.attempt:
        return
    state.last_seq += 1
    op.due = tail.due_of(op.priority, state.last_seq)
    queue = state.messages[op.seq].queue
    if op.outcome is not None:
        ended = closed(state, row, queue, op.ended, op.outcome)
        crashes = row.crashes + (op.outcome == Outcome.CRASHED)
        state.put_row(ended._replace(due=op.due, error=op.error, crashes=crashes))
        return
    state.set_rows(op.seq, [r for r in state.deliveries[op.seq] if r is not row])
    left = state.latest(op.group, op.seq)
    if left is None:
        nobody = (0, state.epoch, 0, 0, None, op.ended, op.ended)
        left = DeliveryRow(op.seq, op.group, *nobody, None, None, None, None)
    state.put_row(left._replace(due=op.due))


@apply.register
def _(op: tail.SetExpiry, state: State) -> None:
    message = state.messages.get(op.seq)
    op.found = message is not None and message.queue == op.queue
    if message is not None and op.found:
        state.messages[op.seq] = message._replace(expires=op.expires)
