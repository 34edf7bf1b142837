"""The tail: the operation that puts a message behind all that wait, and the place it gets.

Knows: how priority and place become one number, and that it looks like a time long ago.
Does not know: who is put there and why, rows, the ready index.

A place is a seq of its own, taken when the message was given back: it lies behind everything that
was put before and before everything put later. It is kept where the time of a retry would be
(`delivery.due`), below 0, so that it costs no column, no index and no row that must be removed;
an earlier embedq takes it for a retry whose time has come. See docs/decisions/0018.
"""

from __future__ import annotations

from typing import Final

import msgspec

from embedq.lifecycle import Outcome
from embedq.limits import LIMITS
from embedq.storage.ops import Op

_PLACE_BITS: Final = 56
_PLACE_MASK: Final = (1 << _PLACE_BITS) - 1
_BASE: Final = -(1 << 62)

#: Before every place there is, as a position (due, seq); damaged ones included.
START: Final = (-(1 << 63), -1)


def due_of(priority: int, place: int) -> int:
    """Return what is stored: it sorts by priority, the highest first, and then by place."""
    return _BASE + ((LIMITS.priority_max - priority) << _PLACE_BITS | place)


def priority_of(due: int) -> int:
    """Return the priority inside a stored place."""
    level = LIMITS.priority_max - ((due - _BASE) >> _PLACE_BITS)
    return min(max(level, 0), LIMITS.priority_max)  # of a damaged one it must be a priority, too


def place_of(due: int) -> int:
    """Return the place inside a stored place; it compares with seqs."""
    return (due - _BASE) & _PLACE_MASK


def is_place(due: int | None) -> bool:
    """Whether what is stored is a place and no time."""
    return due is not None and due < 0


class ToTail(Op, msgspec.Struct):
    """Close an open delivery and put its message behind all that wait now, at a place of its own.

    With `outcome` it counts, as with `Fail`; None: as if it had never started, as with `Release`.
    Of several in one commit the earlier ones are before the later ones. For messages without
    ordering key. Changes nothing if this attempt is not open.
    Out: `due`, the place as stored (`due_of`), None if nothing was changed.
    """

    group: int
    seq: int
    attempt: int
    priority: int
    ended: int
    outcome: Outcome | None = None
    error: bytes | None = None
    due: int | None = None


class SetExpiry(Op, msgspec.Struct):
    """Change when a message expires, for every group; None is never.

    The one column of a message that changes: for protocols that give back with a new time to live.
    Out: `found`, whether it was there.
    """

    queue: int
    seq: int
    expires: int | None
    found: bool = False
