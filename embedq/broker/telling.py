"""Events about one message: made only as far as somebody wants them.

Knows: that an id costs a hash, and an error must be decoded.
Does not know: when something happens, who listens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from embedq.broker.state import GroupState
from embedq.lifecycle import Reason
from embedq.message import ErrorInfo

if TYPE_CHECKING:
    from embedq.broker.engine import Engine
    from embedq.storage.ops import Bury

_END: Final = "\n"
_TEXT_CHARS: Final = 200


def tell(engine: Engine, name: str, group: GroupState, seq: int, **fields: object) -> None:
    """Emit an event about a message in a group. The lock may be held."""
    events = engine.events
    queue = group.queue.name
    if events.wanted(name):
        ident = engine.ids.encode(seq)
        events.emit(name, times=1, queue=queue, group=group.name, id=ident, seq=seq, **fields)
    else:
        events.add(name, queue)


def tell_dead(engine: Engine, group: GroupState, op: Bury) -> None:
    """Emit that a message is dead. The lock may be held."""
    detail = op.detail
    if op.reason is Reason.MAX_ATTEMPTS and op.error is not None and engine.events.wanted("dead"):
        # Its detail only counts attempts, and what each of them met is told below the level of
        # warnings: without the last one nobody would see why.
        error = ErrorInfo.decode(op.error)
        detail = f"{detail}: {error.type}: {error.message.partition(_END)[0][:_TEXT_CHARS]}"
    tell(engine, "dead", group, op.seq, reason=str(op.reason), detail=detail)


def name_of(error: bytes | None) -> str:
    """Return the type of a stored error, for the text of an event."""
    return "no error given" if error is None else ErrorInfo.decode(error).type
