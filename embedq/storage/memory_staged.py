"""What staging and publishing change in a store in memory.

Knows: the same as memory_ops, for the operations of staged.py.
Does not know: what is true of tables (memory_state), batches.
"""

from __future__ import annotations

from zlib import crc32

from embedq.errors import StageLost
from embedq.storage import staged
from embedq.storage.memory_ops import apply
from embedq.storage.memory_state import State


@apply.register
def _(op: staged.Stage, state: State) -> None:
    key = (op.sink, op.token, op.number)
    if key not in state.stages:
        row = staged.StageRow(*key, op.queue, op.messages, len(op.chunk), op.at)
        state.stages[key] = (row, op.chunk)


@apply.register
def _(op: staged.Publish, state: State) -> None:
    op.begin()
    for part in op.parts:
        for number in range(part.chunks):
            found = state.stages.get((op.record.name, part.token, number))
            if found is None:
                raise StageLost(f"chunk {number} that task {part.token} staged is gone")
            put = op.puts(found[1], crc32(found[1]), part.token)
            apply(put, state)
            op.took(put)
    apply(staged.Unstage(op.record.name), state)
    state.sinks[op.record.queue, op.record.name] = op.record


@apply.register
def _(op: staged.Unstage, state: State) -> None:
    gone = [
        key
        for key in state.stages
        if key[0] == op.sink and (op.tokens is None or key[1] in op.tokens)
    ]
    for key in gone:
        del state.stages[key]
    op.removed = len(gone)


@apply.register
def _(op: staged.ForgetSinks, state: State) -> None:
    over = [key for key, row in state.sinks.items() if row.expires <= op.now]
    for key in over:
        del state.sinks[key]
    op.removed = len(over)
