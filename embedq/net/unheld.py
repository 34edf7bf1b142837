"""Settle a message that no client of a listener here holds: through the office, which blocks.

Knows: how an ending is told to the office.
Does not know: who asks, the loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from embedq.broker.endings import DONE, Ending, Rejected, Released

if TYPE_CHECKING:
    from embedq.broker.office import Office


def settle_unheld(office: Office, queue: str, group: str, seq: int, ending: Ending) -> None:
    """Settle it on another thread than the loop's. Raises what Office.settle_by_id does."""
    how, why = _words(ending)
    by = (ending.by,) if isinstance(ending, Rejected) else ()
    office.settle_by_id(queue, group, seq, how, why, *by)


def _words(ending: Ending) -> tuple[str, str]:
    """Return an ending as the office takes it."""
    if ending == DONE:
        return "ack", ""
    if isinstance(ending, Rejected):
        return "reject", ending.detail
    return "release" if isinstance(ending, Released) else "nack", ""
