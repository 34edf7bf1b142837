"""Faults of a host that the chaos must see. They are planted in application processes only.

Knows: what each breaks. Does not know: how it is noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from embedq.ipc import place
from embedq.ipc.serving import Serving
from embedq.ipc.session import Session


def forgetful() -> None:
    """A host that forgets at its takeover what the clients of the last one hold."""
    place.sessions_left = lambda *_: set()


def blind() -> None:
    """A host that does not read what the clients of the last one have noted before they died."""
    freeze = Session.freeze

    def frozen(session: Session) -> None:
        if session.expected:
            session._words = []
        freeze(session)

    setattr(Session, "freeze", frozen)  # noqa: B010  # no other way is typed


def early() -> None:
    """A host that answers an ack before it is committed."""
    settled = Serving._settled

    async def answered(serving: Serving, pairs: Sequence[Any], stale: list[int]) -> None:
        loop = serving._loop
        loop.call_later(0.1, lambda: loop.create_task(settled(serving, pairs, list(stale))))

    setattr(Serving, "_settled", answered)  # noqa: B010  # as above


FAULTS: Final[dict[str, Callable[[], None]]] = {
    "forgetful": forgetful,
    "blind": blind,
    "early": early,
}


def plant(fault: str) -> None:
    """Break this process. Nothing happens without a name."""
    if fault:
        FAULTS[fault]()
