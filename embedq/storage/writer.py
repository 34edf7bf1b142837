"""Group commit: many callers, one transaction, one sync, then the answers.

Knows: who commits (a caller alone, or the writing thread for all who wait), and in what order.
Does not know: SQL, what operations mean, which message is ready.

A caller who finds nobody waiting commits on its own thread (1.4 to 2 times faster for one
producer than handing over). Once callers meet, all of them hand over to the writing thread until
a group of one shows that the crowd has gone: callers that commit in between would break up the
groups (docs/decisions/0003).

An exception from outside (Ctrl-C, a timeout) may strike at any instruction. Whoever enters next
finds the mark of the interrupted commit and lets store and book settle what really happened.
"""

from __future__ import annotations

from _thread import allocate_lock, get_ident, start_new_thread
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from queue import Empty, SimpleQueue
from typing import TypeVar

from embedq.clock import Clock, SystemClock
from embedq.errors import EmbedqError, StoreClosed, StoreFailed
from embedq.storage import reentry
from embedq.storage.ops import Op, PutPlain
from embedq.storage.port import Store
from embedq.storage.task import Book, Task, parts

__all__ = ["Task", "Writer"]

T = TypeVar("T")

#: Errors that say nothing about the single operation: the group is not tried one by one.
_COMMON = frozenset({"store_busy", "store_failed", "store_corrupt", "store_closed"})


#: Where a commit takes less, waiting for company costs more than it saves.
_WORTH_LINGERING_S = 0.0002
_LONGEST_LINGER_S = 0.002


class Writer:
    """The only way to a store's `commit`. Safe to use from any thread."""

    def __init__(
        self, store: Store, book: Book, *, most: int, most_bytes: int, clock: Clock | None = None
    ) -> None:
        self._store = store
        self._book = book
        self._most = most
        self._most_bytes = most_bytes
        self._monotonic = (clock or SystemClock()).monotonic
        #: Guards the store's commits and everything that is brought up to date after them. To be
        #: taken by `with writer.entry, writer.lock`.
        self.lock = allocate_lock()
        #: Taken before the lock, as it knows by whom.
        self._mine = reentry.mine()
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        self._crowded = False
        #: Threads that commit or are about to. The lock alone does not show them: it counts as
        #: free until the one who has got it also has the GIL, and then callers would queue up
        #: at the lock, each to commit alone.
        self._inside: dict[int, None] = {}
        self._company = 0  # how many have shared a commit recently
        self._commit_s = 0.0  # how long a commit takes, roughly
        self._inflight: object = None
        self._refusal: EmbedqError | None = None
        #: Held by the writing thread while it serves.
        self._serving = allocate_lock()
        self._ended = False
        self.groups = 0

    # ---------------------------------------------------------------------- callers

    def put(self, op: PutPlain, applied: Callable[[PutPlain], object]) -> bool:
        """Commit a plain put and tell the book. The short way for the most frequent operation.

        False: nothing was done, as others are on their way: `run` a task that does it.
        """
        if self._crowded or self.lock.locked() or self._refusal is not None:
            if self._refusal is not None:
                raise self._refusal
            return False
        with self.lock:  # what `_mine` costs would show here: see `check_caller`
            if self._inflight is not None or self._refusal is not None:
                self.settle()
            self._inflight = op
            refused = self._store.refused
            try:
                untidy = self._store.put(op)
            except Exception:
                # Not by its type: a signal handler may raise one of ours, too.
                if self._store.refused != refused:
                    self._inflight = None  # rolled back: nothing happened
                raise
            applied(op)
            self._inflight = None
            if untidy:
                self._store.after_commit()
        return True

    def run(self, task: Task) -> None:
        """Commit a task, with others if there are any; return when it is durable.

        Raises what the store raised. The task is committed even if the caller is interrupted
        while it waits.
        """
        if self._refusal is not None:
            raise self._refusal
        if self._crowded or self._inside or self.lock.locked():
            self.check_caller()
            gate = allocate_lock()
            gate.acquire()
            task.gate = gate
            self._hand_over(task)
            gate.acquire()
        else:
            me = get_ident()
            try:
                self._inside[me] = None
                with self._mine, self.lock:
                    self.settle()
                    self._commit([task])
                    self._store.after_commit()
            finally:
                self._inside.pop(me, None)
        if task.error is not None:
            raise task.error

    def check_caller(self) -> None:
        """Raise UsageError in a signal handler that has interrupted the holder of the lock."""
        reentry.check(self._mine, self.lock, _PUT)

    @property
    def entry(self) -> AbstractContextManager[object]:
        """What to enter before the lock is taken; see `check_caller`.

        Both are entered and left in C: an exception from outside leaves none of them held.
        """
        self.check_caller()
        return self._mine

    def send(self, task: Task, done: Callable[[], object] | None = None) -> None:
        """Commit a task soon, without waiting. `done` is called from the writing thread."""
        if self._refusal is not None:
            raise self._refusal
        task.done = done
        self._hand_over(task)

    def _hand_over(self, task: Task) -> None:
        self._tasks.put(task)
        if not self._serving.locked():
            # Not by threading.Thread: an exception that strikes its start() can leave a thread
            # that waits for ever. If two are started, the second finds the lock taken, and ends.
            start_new_thread(self._write_in_thread, ())
        if self._ended:
            self._refuse_rest()  # nobody else will answer

    # --------------------------------------------------------------- the writing thread

    def _write_in_thread(self) -> None:
        with suppress(BaseException):  # told to everyone who waits
            self._write()

    def _write(self) -> None:
        if self._serving.acquire(blocking=False):
            try:
                if not self._ended:
                    self._serve()
            finally:
                self._serving.release()

    def _serve(self) -> None:
        batch: list[Task] = []
        try:
            while not self._ended:
                task = self._tasks.get()
                if task is None:
                    self._ended = True
                    return
                batch = [task]
                if self._company > 1:
                    self._linger(batch)
                with self._mine, self.lock:
                    ended = self._collect(batch)
                    began = self._monotonic()
                    self._commit_together(batch)
                    self._commit_s += (self._monotonic() - began - self._commit_s) / 4
                    self._company = max(len(batch), (self._company + len(batch)) // 2)
                    self._crowded = len(batch) > 1
                    if not self._crowded:
                        self._inside.clear()  # should an interrupted caller have stayed in it
                    self._answer(batch)
                    batch = []
                    self._store.after_commit()
                self._ended = ended
        except BaseException as error:
            self._give_up(batch, error)
            raise

    def _commit_together(self, batch: list[Task]) -> None:
        try:
            self._commit(batch)
        except Exception as error:  # noqa: BLE001  # told to every caller of the group
            # A defect of ours, or a store that has stopped. The mark of the interrupted commit
            # stays: the next one settles what happened.
            for task in batch:
                task.error = task.error or error

    def _linger(self, batch: list[Task]) -> None:
        """Wait a moment for those who were in recent groups and have just got their answers.

        Else they would arrive while a small group is being synced, and wait for two syncs. Never
        longer than half a recent commit, and not at all where a commit is fast.
        """
        if self._commit_s < _WORTH_LINGERING_S:
            return
        left = min(self._commit_s / 2, _LONGEST_LINGER_S)
        deadline = self._monotonic() + left
        while left > 0 and len(batch) + self._tasks.qsize() < self._company:
            try:
                task = self._tasks.get(timeout=left)
            except Empty:
                return
            if task is None:
                self._tasks.put(None)
                return
            batch.append(task)
            left = deadline - self._monotonic()

    def _collect(self, batch: list[Task]) -> bool:
        """Add the tasks that wait; return whether the end was among them."""
        size = sum(task.size for task in batch)
        for _ in range(min(self._tasks.qsize(), self._most - len(batch))):
            task = self._tasks.get_nowait()
            if task is None:
                return True
            batch.append(task)
            size += task.size
            if size > self._most_bytes:
                break
        return False

    @staticmethod
    def _answer(batch: list[Task]) -> None:
        for task in batch:
            if task.gate is not None:
                task.gate.release()
            elif task.done is not None:
                task.done()

    def _give_up(self, batch: list[Task], error: BaseException) -> None:
        """Answer everyone: without the writing thread nothing more will be committed."""
        reason = StoreFailed(f"the writing thread ended: {type(error).__name__}: {error}")
        reason.__cause__ = error
        self._refusal = reason
        self._ended = True
        for task in batch:
            task.error = task.error or reason
        self._answer(batch)
        self._refuse_rest()

    def _refuse_rest(self) -> None:
        with suppress(Empty):
            while True:
                task = self._tasks.get_nowait()
                if task is not None:
                    task.error = self._refusal
                    self._answer([task])

    # -------------------------------------------------------------------- the commit

    def _commit(self, batch: list[Task]) -> None:
        """Commit a group, leaving each task's error with it. The lock is held."""
        if self._inflight is not None:
            self._recover()
        for part in parts(batch):
            self._inflight = part
            self.groups += 1
            if not self._try(part) and len(part) > 1:
                # One of them is at fault, or there was only room for some: each for itself.
                for task in part:
                    task.error = None
                    self._try([task])
            self._inflight = None

    def _try(self, batch: list[Task]) -> bool:
        """Commit tasks together; on failure set their errors. False: worth trying one by one."""
        ops: list[Op] = []
        for task in batch:
            ops += task.prepare()
        refused = self._store.refused
        try:
            if ops:
                self._store.commit(ops)
        except EmbedqError as error:
            if self._store.refused == refused:
                raise  # from outside: nobody knows yet what happened
            for task in reversed(batch):  # the last one first, as it built on the others
                task.undo()
                task.error = error
            return error.code in _COMMON
        for task in batch:
            task.apply()
        return True

    def _recover(self) -> None:
        """Settle an interrupted commit: ask the file what happened, and believe it."""
        self._store.settle_interrupted()
        if isinstance(self._inflight, list):
            for task in reversed(self._inflight):
                task.undo()  # what it took may still be there; the book sees to what is not
        self._book.interrupted()
        self._inflight = None

    def settle(self) -> None:
        """Settle an interrupted commit now, if there is one. The lock is held.

        Raises what `refuse` was given: who only looks at memory is refused here.
        """
        if self._refusal is not None:
            raise self._refusal
        if self._inflight is not None:
            self._recover()

    def change(self, step: Callable[[], T]) -> T:
        """Change memory without a commit, marked like one. The lock is held.

        If the step is interrupted, or fails, whoever enters next looks at everything again.
        """
        self._inflight = step
        result = step()
        self._inflight = None
        return result

    # --------------------------------------------------------------------------- end

    def refuse(self, reason: EmbedqError) -> None:
        """Take no more tasks: later callers get `reason`."""
        self._refusal = reason

    def forked(self, reason: EmbedqError) -> None:
        """Refuse everything in a child made by fork, whoever held the locks at that moment."""
        self.refuse(reason)
        self.lock = allocate_lock()
        self._mine = reentry.mine()
        self._serving = allocate_lock()
        self._ended = True

    def close(self, last: Iterable[Task] = ()) -> None:
        """Commit what waits, end the writing thread, refuse the rest; then commit `last` alone.

        Nobody else commits before, between or after those. Raises what the first one raised that
        failed; safe to call twice.
        """
        self.refuse(StoreClosed("the broker has stopped meanwhile"))
        self._tasks.put(None)
        self._write()  # what waits is committed here, unless somebody serves
        with self._serving:
            self._ended = True
        self._refuse_rest()
        with self._mine, self.lock:
            for task in last:
                self._commit([task])
                if task.error is not None:
                    raise task.error


_PUT = Writer.put.__code__
