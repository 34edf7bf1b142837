"""What positions change in a store in memory.

Knows: the same as memory_ops, for the operations of held.py.
Does not know: what is true of tables (memory_state), batches.
"""

from __future__ import annotations

from dataclasses import replace

from embedq.storage import held
from embedq.storage.memory_ops import apply
from embedq.storage.memory_state import State


@apply.register
def _(op: held.Hold, state: State) -> None:
    row = op.declared.row
    if row is not None:
        state.groups[row.id] = replace(state.groups[row.id], hold_ms=op.hold_ms)
        op.declared.row = replace(state.groups[row.id])


@apply.register
def _(op: held.Unhold, state: State) -> None:
    """Nothing is kept apart from the group itself."""


@apply.register
def _(op: held.Advance, state: State) -> None:
    op.passed = op.removed = 0
    group = state.groups.get(op.group)
    if group is None or op.floor <= group.floor:
        return
    passed = [
        seq
        for seq, message in state.messages.items()
        if message.queue == group.queue and group.floor < seq <= op.floor
    ]
    op.passed = len(passed)
    state.groups[op.group] = replace(group, floor=op.floor)
    if state.is_retained(group.queue):
        return
    for seq in passed:
        if not state.unsettled(seq):
            state.remove(seq)
            op.removed += 1


@apply.register
def _(op: held.Lapse, state: State) -> None:
    over = [
        seq
        for seq, message in state.messages.items()
        if message.queue == op.queue and op.after < seq <= op.upto
        if message.put_at < op.cutoff and not state.deliveries.get(seq)
        if not state.unsettled(seq)
    ]
    for seq in over:
        state.remove(seq)
    op.removed = len(over)
