"""Requests whose callers have left: what they bring goes back to the host, and must arrive there.

Knows: that such an answer may be on its way, what the host could not store and is asked again.
Does not know: why somebody left, sockets (link.py), when it is asked again (remote.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from embedq.broker.port import Pairs
from embedq.ipc import frames
from embedq.ipc.failures import raised
from embedq.ipc.frames import Exchange
from embedq.ipc.handles import Holdings
from embedq.ipc.ledger import Asked

if TYPE_CHECKING:
    from embedq.ipc.link import Link


class Returns:
    """What a client gives back without anybody waiting. Safe to use from any thread."""

    def __init__(self, link: Link, holdings: Holdings) -> None:
        self._link = link
        self._holdings = holdings
        self._again: deque[list[frames.WireEnding]] = deque()

    def give_up(self, box: Sequence[Asked], pairs: Pairs) -> None:
        """Nobody waits for an exchange any more: what it brings goes back, costing no attempt.

        `box`: the request, if it was made. One that failed has changed nothing.
        """

        def give_back(late: Asked) -> None:
            if self._link.ended or not isinstance(late.answer, frames.Exchanged):
                return  # who has left has given everything back
            self._holdings.drop(lease for lease, _ in pairs)
            leases = late.answer.leases
            if leases:
                self._holdings.lost(lease.counter for lease in leases)  # if they were entered
                group = cast("Exchange", late.frame).group
                self._send(
                    [
                        frames.WireEnding(group, lease.message.seq, lease.counter, 3)
                        for lease in leases
                    ]
                )

        for asked in box:
            if self._link.pass_on(asked, give_back):
                self._link.cancel(asked.n)

    def _send(self, endings: list[frames.WireEnding]) -> None:
        self._link.send(lambda n, seen: Exchange(n, endings, seen=seen), self._sent)

    def _sent(self, asked: Asked) -> None:
        answer = asked.answer
        if isinstance(answer, frames.Failed) and raised(answer).retryable:
            self._again.append(cast("Exchange", asked.frame).endings)

    @property
    def waits(self) -> bool:
        """Whether there is something that the host could not store."""
        return bool(self._again)

    def again(self) -> None:
        """Give back what the host could not store. Called now and then on the link's thread."""
        for _ in range(len(self._again)):
            self._send(self._again.popleft())
