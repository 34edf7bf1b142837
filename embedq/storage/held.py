"""Operations about groups that are positions: messages wait for a reader who says how far it is.

Knows: what each needs and what the store writes back into it.
Does not know: how a store does it (apply_held.py, memory_held.py), who reads, when.

Such a group has no deliveries: its floor is its position, and all above it is held.
"""

from __future__ import annotations

import msgspec

from embedq.storage.ops import DeclareGroup, Op


class Hold(Op, msgspec.Struct):
    """Make the group that an operation before has declared a position.

    `hold_ms`: how long a message may be held for it, 0: without a bound.
    """

    declared: DeclareGroup
    hold_ms: int


class Unhold(Op, msgspec.Struct):
    """Forget that a group was a position: it was removed in the same commit."""

    group: int


class Advance(Op, msgspec.Struct):
    """Move a position up to `floor`; it never moves back. Needs a group that is one.

    In a queue that does not retain, what every group has settled leaves. Out: `passed`, how many
    messages it has moved over; `removed`, how many of the queue left.
    """

    group: int
    floor: int
    passed: int = 0
    removed: int = 0


class Lapse(Op, msgspec.Struct):
    """Remove messages that only positions have settled, and that were put before `cutoff`.

    For queues that retain: nothing closes there when a position moves on. Looks at (after, upto];
    whatever was delivered to somebody stays for `Retire`. Out: `removed`.
    """

    queue: int
    after: int
    upto: int
    cutoff: int
    removed: int = 0
