"""What must be done now and then: leases, expiry, retention, dedup keys, checkpoints, disk space.

Knows: which chore is due, and that each one is short.
Does not know: how a chore is done, SQL, consumers.

`Upkeep.round` does everything once and can be called by hand (tests do, with a virtual clock);
`start` lets a thread do it, once a second or when the nearest lease ends.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from embedq.broker import changes, feeds, moves, removal, staging
from embedq.broker.departed import Departed
from embedq.errors import EmbedqError, StorageError, StoreCorrupt
from embedq.storage.ops import Forget
from embedq.storage.port import Tally
from embedq.storage.staged import ForgetSinks
from embedq.storage.verify import Verifier

if TYPE_CHECKING:
    from embedq.broker.engine import Engine

_log = logging.getLogger("embedq.upkeep")

ROUND_S = 1.0
_SAVE_EVERY_S = 60.0
_MANY = 500
_BATCHES = 20
_VACUUM_PAGES = 200
_BREATH_S = 0.1


class Upkeep:
    """The chores of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._wake = threading.Event()
        self._ending = False
        self._thread: threading.Thread | None = None
        self._saved_at = engine.monotonic()
        #: When the thread will look again at what becomes ready at a time (ms).
        self._expected = 0
        self._swept_at = self._saved_at
        self._departed = Departed(engine)
        self._seen = self._saved = (-1, -1)
        self._forgetting = False
        self._count_at = self._saved_at + ROUND_S
        #: What the last failed chore said; chores are tried again in the next round.
        self.trouble: Exception | None = None
        self._told: str | None = None
        #: Checks the file in small steps, where nobody knows what the disk has kept.
        self.verifier: Verifier | None = None

    # ------------------------------------------------------------------------- the thread

    def start(self) -> None:
        """Let a daemon thread do the rounds."""
        self._thread = threading.Thread(target=self._run, name="embedq-upkeep", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        engine = self._engine
        round_at = engine.monotonic()
        while not self._ending:
            if engine.monotonic() >= round_at:
                self.round()
                round_at = engine.monotonic() + ROUND_S
            else:
                self._attempt(engine.returns.again)
                self._attempt(engine.end_leases)
                self._attempt(self.wake_due)
            self._attempt(self.count_when_due)
            if self.verifier is not None:
                self._attempt(self.verify)
            self._wake.wait(_BREATH_S if self.verifier is not None else self._pause())
            self._wake.clear()

    def _pause(self) -> float:
        engine = self._engine
        with engine.writer.entry, engine.writer.lock:
            lease_ends = engine.deadlines.next()
            times = [
                due
                for group in engine.groups()
                if group.waiters and (due := group.index.next_due()) is not None
            ]
            due = min(times, default=None)
            self._expected = engine.now_ms() + round(ROUND_S * 1000) if due is None else due
        pause = ROUND_S
        if lease_ends is not None:
            pause = min(pause, max(0.01, lease_ends - engine.monotonic()))
        if due is not None:
            pause = min(pause, max(0.001, (due - engine.now_ms()) / 1000))
        return pause

    def expect(self, due: int | None) -> None:
        """Somebody waits for a message that becomes ready at `due` (ms). The lock is held."""
        if due is not None and due < self._expected:
            self._expected = due
            self._wake.set()

    def wake_due(self) -> None:
        """Make messages ready whose time has come, and wake those who wait for them."""
        engine = self._engine
        with engine.writer.entry, engine.writer.lock:
            engine.writer.settle()
            now = engine.now_ms()
            for group in engine.groups():
                if not group.waiters or group.queue.paused:
                    continue
                index = group.index
                ready = index.promote(now)
                if not ready and (index.has_ready or index.hungry(1, now) is not None):
                    ready = 1  # not lost, should a wake ever be
                group.waiters.wake(ready)

    def stop(self) -> None:
        """End the thread after the chore it is at."""
        self._ending = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    # -------------------------------------------------------------------------- the round

    def round(self) -> None:
        """Do every chore once. A chore that fails does not keep the others from being done."""
        self.trouble = None
        for chore in (
            self._look_at_disk,
            self._engine.returns.again,  # before the leases end that nobody has
            self._engine.end_leases,
            self._expire,
            self._retire,
            self._let_go,
            self._collect,
            self._sweep,
            self._rest,
            self.wake_due,
        ):
            self._attempt(chore)
        self._tell_trouble()

    def _tell_trouble(self) -> None:
        """Emit what changed: puts are refused, accepted again, or nothing is stored any more."""
        engine = self._engine
        stopped = engine.store.stopped
        trouble = stopped or self.trouble
        code = getattr(trouble, "code", None)
        if code == self._told:
            return
        path = str(getattr(engine.store, "path", ":memory:"))
        if code == "store_full":
            engine.events.emit("store_full", path=path, detail=str(trouble))
        elif stopped is not None:
            engine.events.emit("store_failed", path=path, code=code, detail=str(stopped))
        elif self._told == "store_full":
            engine.events.emit("store_recovered", path=path)
        self._told = code

    def _attempt(self, chore: Callable[[], object]) -> None:
        try:
            chore()
        except EmbedqError as error:
            # The store says the same to every caller; a full disk or a busy file passes.
            self.trouble = error
        except Exception as error:  # noqa: BLE001  # logged, and shown as trouble
            # A defect in one chore must not end the others for the life of the host.
            _log.exception("a chore of the host failed: %s", chore.__name__)
            self.trouble = error

    def _look_at_disk(self) -> None:
        store = self._engine.store
        store.look_around()
        space = getattr(store, "space", None)  # a store in memory has none
        if space is not None:
            space.check()

    def _expire(self) -> None:
        engine = self._engine
        names = {queue.id: queue for queue in list(engine.queues.values())}
        over = [
            (names[queue], seq)
            for seq, queue in engine.store.expired(engine.now_ms(), _MANY)
            if queue in names
        ]
        if over:
            engine.writer.run(changes.Expire(engine, over))

    def _collect(self) -> None:
        for queue in list(self._engine.queues.values()):
            if queue.untidy:
                removal.collect(self._engine, queue)

    def _retire(self) -> None:
        engine = self._engine
        for group in list(engine.groups()):
            if group.queue.policy.retain_ms is None:
                continue
            for _ in range(_BATCHES):
                task = changes.RetireHistory(engine, group, _MANY)
                engine.writer.run(task)
                if task.op.reached is None:
                    break

    def _let_go(self) -> None:
        feeds.let_go(self._engine)
        feeds.lapse(self._engine)

    def _sweep(self) -> None:
        now = self._engine.monotonic()
        if now - self._swept_at >= _SAVE_EVERY_S:
            self._swept_at = now
            staging.sweep(self._engine)
            self._departed.sweep()

    def _rest(self) -> None:
        """Tidy up while nobody commits; save counts and prune dedup keys now and then."""
        engine = self._engine
        activity = (engine.writer.groups, engine.store.last_seq)
        idle = activity == self._seen
        now = engine.monotonic()
        due = now - self._saved_at >= _SAVE_EVERY_S and activity != self._saved
        if due or self._forgetting:
            self._forget()
        if due:
            self._saved_at = now
            engine.writer.run(changes.SaveCounts(engine, exact=False))
            self._saved = (engine.writer.groups, engine.store.last_seq)
        elif idle:
            with engine.writer.entry, engine.writer.lock:
                engine.store.rest(_VACUUM_PAGES)
        self._seen = (engine.writer.groups, engine.store.last_seq)

    def _forget(self) -> None:
        """Remove dedup keys that are over; if there are too many, go on in the next round."""
        engine = self._engine
        for _ in range(_BATCHES):
            forget = Forget(engine.now_ms(), _MANY)
            engine.writer.run(moves.Change([forget, ForgetSinks(forget.now)]))
            self._forgetting = forget.removed == _MANY
            if not self._forgetting:
                break

    # ------------------------------------------------------------------------- verifying

    def verify(self) -> None:
        """Check the next stretch of the file; damage of its structure stops the store.

        A message whose body is damaged needs nothing here: a claim dead-letters it as corrupt.
        """
        verifier = self.verifier
        if verifier is None:
            return
        try:
            if verifier.step():
                self.verifier = None
                damaged = len(verifier.damaged_messages)
                _log.info("the file was verified: %d damaged messages", damaged)
        except StoreCorrupt as error:
            self.verifier = None
            self._engine.store.stop(error)
            raise

    # ------------------------------------------------------------------------- counting

    def count_when_due(self) -> None:
        """Count, if that is needed, once the first claims had the disk for themselves.

        Counting reads every message. On a cold disk that made the first claim after a kill wait
        for seconds (docs/performance.md); the counts can wait for one round.
        """
        engine = self._engine
        if not engine.counts_exact and engine.monotonic() >= self._count_at:
            self.count()

    def count(self) -> None:
        """Count what is stored, after an opening that found no exact counts.

        The snapshot is fixed under the lock; what is committed while it is being counted is added
        to the result, so the counts are exact although nobody waited.
        """
        engine = self._engine
        with engine.writer.entry, engine.writer.lock:
            engine.writer.settle()
            ask = engine.store.begin_tally()
            before = {queue.id: (queue.stored, queue.dead) for queue in engine.queues.values()}
            settled = {group.id: group.settled for group in engine.groups()}
            interruptions = engine.interruptions
        try:
            tally: Tally = ask()
        except StorageError as error:
            self.trouble = error
            return
        with engine.writer.entry, engine.writer.lock:
            engine.writer.settle()
            if engine.interruptions != interruptions:
                return  # nobody knows what was counted meanwhile: the next round counts again
            if engine.counts_exact:
                return  # somebody else has counted meanwhile, and added what was missing
            for queue in engine.queues.values():
                stored, dead = before.get(queue.id, (0, 0))
                queue.stored += tally.stored.get(queue.id, 0) - stored
                queue.dead += tally.dead.get(queue.id, 0) - dead
            for group in engine.groups():
                was = settled.get(group.id, 0)
                group.settled += tally.settled.get(group.id, 0) - was
            for queue in engine.queues.values():
                # Every group has settled some, perhaps the same: a host may have died while it
                # removed them.
                if queue.groups and min(group.settled for group in queue.groups) > 0:
                    queue.untidy = True
            engine.counts_exact = True
