"""Deliveries whose worker died while a host lives: what a crash of the host would do to them.

Knows: that a crash is an attempt, may be the message's fault, and is retried one at a time (P5).
Does not know: processes, who noticed the death, how it is told in words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from embedq.broker import deaths, redaction
from embedq.broker.leases import Lease
from embedq.broker.settling import Settle
from embedq.broker.state import GroupState
from embedq.broker.telling import tell
from embedq.lifecycle import Outcome, Reason
from embedq.storage.ops import Bury, Fail, Op

if TYPE_CHECKING:
    from embedq.broker.desk import Desk
    from embedq.broker.engine import Engine
    from embedq.message import ErrorInfo


class Crashes(Settle):
    """The workers of these deliveries died: each message is suspected, or dead."""

    __slots__ = ("_cause", "_error", "_made")

    def __init__(
        self, engine: Engine, group: GroupState, leases: Sequence[Lease], cause: ErrorInfo
    ) -> None:
        super().__init__(engine, group, leases)
        self._cause = deaths.summary(cause)
        self._error = redaction.stored(cause, engine.redact)
        self._made: list[tuple[Lease, Fail | Bury]] = []

    def ops(self) -> Sequence[Op]:
        """Return a Fail, or a Bury for a message that has crashed too often."""
        now = self._engine.now_ms()
        self._made = [(lease, self._op(lease, now)) for lease in self._valid]
        return [op for _, op in self._made]

    def _op(self, lease: Lease, now: int) -> Fail | Bury:
        group, crashes, most = self._group, _crashes(lease), lease.max_attempts
        bound = group.queue.policy.max_crashes
        if (bound and crashes >= bound) or (most and lease.attempt >= most):
            detail = (
                f"{lease.attempt} attempts started, {crashes} crashes; the last: {self._cause}"
            )
            return Bury(
                *(group.id, lease.seq, now, Reason.CRASHED, detail, "host", Outcome.CRASHED),
                error=self._error,
            )
        return Fail(*(group.id, lease.seq, lease.attempt, now, Outcome.CRASHED, now, self._error))

    def apply(self) -> None:
        """End the leases; what may be tried again waits for its turn among the suspects."""
        if not self._valid:
            return
        engine, group = self._engine, self._group
        for lease, op in self._made:
            group.end(lease)
            crashes = _crashes(lease)
            tell(
                *(engine, "crashed_delivery", group, lease.seq),
                attempt=lease.attempt,
                crashes=crashes,
                cause=self._cause,
            )
            if isinstance(op, Bury):
                engine.buried(group, op, lease.key)
                continue
            entry = lease.entry_at(lease.attempt)
            entry.crashes = crashes
            group.index.suspect(lease.seq, entry)
            tell(engine, "suspect", group, lease.seq, crashes=crashes)
        if group.waiters:
            group.waiters.wake(len(self._made))


def _crashes(lease: Lease) -> int:
    return 1 + (0 if lease.entry is None else lease.entry.crashes)


async def acrashed(desk: Desk, leases: Sequence[Lease], cause: ErrorInfo) -> None:
    """Close deliveries whose worker died with `cause`, as far as they still count.

    Raises what the store raises; then nothing of the group in question was changed.
    """
    by_group: dict[GroupState, list[Lease]] = {}
    for lease in leases:
        by_group.setdefault(lease.group, []).append(lease)
    for group, theirs in by_group.items():
        await desk.arun(Crashes(desk, group, theirs, cause))
