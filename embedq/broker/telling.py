"""Events about one message: made only as far as somebody wants them.

Knows: that an id costs a hash, and an error must be decoded.
Does not know: when something happens, who listens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from embedq.broker.state import GroupState
from embedq.message import ErrorInfo

if TYPE_CHECKING:
    from embedq.broker.engine import Engine


def tell(engine: Engine, name: str, group: GroupState, seq: int, **fields: object) -> None:
    """Emit an event about a message in a group. The lock may be held."""
    events = engine.events
    queue = group.queue.name
    if events.wanted(name):
        ident = engine.ids.encode(seq)
        events.emit(name, times=1, queue=queue, group=group.name, id=ident, seq=seq, **fields)
    else:
        events.add(name, queue)


def name_of(error: bytes | None) -> str:
    """Return the type of a stored error, for the text of an event."""
    return "no error given" if error is None else ErrorInfo.decode(error).type
