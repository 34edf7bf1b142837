"""The dead letters of a queue, as applications use them; asked of the host, wherever it is.

Knows: which filters there are, how receipts are made.
Does not know: how letters are moved (embedq.broker.deadletters).
"""

from __future__ import annotations

from embedq.broker.letters import Letters, Rows, Since, check_limit
from embedq.broker.office import Office, Which
from embedq.broker.port import DeskPort, QueuePort
from embedq.broker.purge import Progress
from embedq.broker.twins import twin
from embedq.message import Receipt
from embedq.storage.rows import DeadRow

_Receipts = list[Receipt]


class DeadLetters(Letters):
    """The dead letters of one queue, to look at and to move. See Letters for the filters."""

    def __init__(self, desk: DeskPort, queue: QueuePort) -> None:
        super().__init__(queue, _Box(desk.office), desk.ids, desk.now_ms, lambda: desk.redact)
        self._desk = desk
        self._queue = queue

    def __len__(self) -> int:
        """How many there are."""
        return self._desk.office.dead_count(self._queue.name)

    def redrive(
        self,
        *ids: str,
        reason: str | None = None,
        since: Since | None = None,
        group: str | None = None,
        error: str | None = None,
        limit: int | None = None,
        by: str = "program",
        progress: Progress | None = None,
    ) -> _Receipts:
        """Put letters again as new messages: those of `ids`, or all that fit; return receipts.

        Many are moved in parts, each one transaction; interrupted, some are moved and the rest
        is where it was: the same call goes on. Letters that come meanwhile stay. Raises
        UnknownMessage for an id that is no dead letter; then nothing was moved.
        """
        which = self._which(ids, reason, since, group, error, limit)
        seqs = self._desk.office.redrive(self._queue.name, which, by, progress=progress)
        return [Receipt(self._desk.ids, seq) for seq in seqs]

    def purge(
        self,
        *ids: str,
        reason: str | None = None,
        since: Since | None = None,
        group: str | None = None,
        error: str | None = None,
        limit: int | None = None,
        progress: Progress | None = None,
    ) -> int:
        """Remove letters: those of `ids`, or all that fit; return how many. See `redrive`."""
        which = self._which(ids, reason, since, group, error, limit)
        return self._desk.office.purge_dead(self._queue.name, which, progress=progress)

    def _which(
        self,
        ids: tuple[str, ...],
        reason: str | None,
        since: Since | None,
        group: str | None,
        error: str | None,
        limit: int | None,
    ) -> Which:
        wanted = self._filter(reason, since, group, error)  # refuses what is wrong, here
        if limit is not None:
            check_limit(limit)
        named = None if reason is None else str(reason)
        return Which(ids, named, wanted.since_ms, group, error, limit)

    alist = twin(Letters.list)
    ashow = twin(Letters.show)
    aredrive = twin(redrive)
    apurge = twin(purge)


class _Box:
    """Where the letters lie: at the host."""

    def __init__(self, office: Office) -> None:
        self._office = office

    def dead(self, queue: int, after: int, limit: int) -> Rows:
        """Return dead letters of a queue in the order of dying, with id > after."""
        return self._office.dead_rows(queue, after, limit)

    def dead_letter(self, seq: int, group: int) -> DeadRow | None:
        """Return one dead letter."""
        return self._office.dead_letter(seq, group)
