"""What the operations about sessions change, on plain dicts.

Knows: sessions, their tokens, the answers that are kept with them.
Does not know: every other operation (memory_ops.py).
"""

from __future__ import annotations

from embedq.storage import ops
from embedq.storage.departed import RemoveSessions
from embedq.storage.memory_ops import apply
from embedq.storage.memory_state import SessionRow, State


@apply.register
def _(op: ops.OpenSession, state: State) -> None:
    known = None
    if op.token is not None:
        _forget(state, op.opened)
        known = next((id_ for id_, row in state.sessions.items() if row.token == op.token), None)
    if known is None:
        op.id, op.requests = state.new_id(), b""
        row = SessionRow(op.name, state.epoch, op.opened, op.token, idle=True)
        state.sessions[op.id] = row
    else:
        earlier = state.sessions[known]
        op.id, op.requests = known, earlier.requests
        row = SessionRow(op.name, state.epoch, op.opened, op.token, op.requests)
        idle = earlier.idle and earlier.epoch == state.epoch
        state.sessions[known] = row._replace(idle=idle)


def _forget(state: State, now: int) -> None:
    for id_, row in list(state.sessions.items()):
        if row.token is not None and ops.is_forgotten(row.epoch, row.opened, state.epoch, now):
            state.sessions[id_] = SessionRow(row.name, row.epoch, row.opened)


@apply.register
def _(op: ops.Remember, state: State) -> None:
    row = state.sessions.get(op.session)
    if row is not None and row.token is not None:
        state.sessions[op.session] = row._replace(requests=op.encode())


@apply.register
def _(op: ops.CloseSession, state: State) -> None:
    row = state.sessions.get(op.session)
    if row is not None and row.idle and row.epoch == state.epoch:
        del state.sessions[op.session]
    elif row is not None:
        state.sessions[op.session] = row._replace(token=None, requests=b"", epoch=0)


@apply.register
def _(op: RemoveSessions, state: State) -> None:
    gone = closed(state).intersection(op.sessions)
    for id_ in gone:
        del state.sessions[id_]
    op.removed = len(gone)


def closed(state: State) -> set[int]:
    """Answer `Store.closed_sessions`."""
    return {
        id_ for id_, row in state.sessions.items() if row.token is None and row.epoch < state.epoch
    }


@apply.register
def _(op: ops.Reissue, state: State) -> None:
    for seq, group, attempt, counter in op.deliveries:
        row = state.open_row(group, seq)
        if row is not None and row.attempt == attempt:
            state.put_row(row._replace(epoch=state.epoch, counter=counter))
