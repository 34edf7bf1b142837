"""What each operation of the port changes, in SQL, inside a transaction of the writer.

Knows: the statements, which messages a settlement removes, the queues and groups there are.
Does not know: transactions and their errors, seq numbers, files, locks.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Callable
from dataclasses import replace

import msgspec

from embedq.lifecycle import FINAL
from embedq.policy import QueuePolicy
from embedq.storage import burial, reads, statements as sql, tail
from embedq.storage.apply_held import HeldApplier
from embedq.storage.apply_sessions import SessionApplier
from embedq.storage.apply_staged import StagedApplier
from embedq.storage.ops import (
    Ack,
    Bury,
    Cancel,
    Collect,
    DeclareGroup,
    DeclareQueue,
    Fail,
    Forget,
    Op,
    Pause,
    PurgeDead,
    PutRows,
    Redrive,
    Release,
    RemoveGroup,
    Retire,
    Save,
    Start,
)
from embedq.storage.rows import (
    REDRIVEN_FROM,
    DeadRow,
    DeliveryRow,
    GroupRow,
    QueueRow,
)

_decode_headers = msgspec.msgpack.Decoder(dict[str, str]).decode


class Catalogue:
    """The queues and groups as the store knows them, and what follows for settlements."""

    def __init__(self, queues: list[QueueRow], groups: list[GroupRow]) -> None:
        self.queues = {row.id: row for row in queues}
        self.groups = {row.id: row for row in groups}
        self.changed()

    def changed(self) -> None:
        """Work out again which groups settle by deleting, and which keep history."""
        members: dict[int, int] = {}
        for group in self.groups.values():
            members[group.queue] = members.get(group.queue, 0) + 1
        self.retained = {
            group.id
            for group in self.groups.values()
            if self.queues[group.queue].policy.retain_ms is not None
        }
        #: An ack in one of these deletes the message: one group, nothing to keep.
        self.sole = {
            group.id
            for group in self.groups.values()
            if members[group.queue] == 1 and group.id not in self.retained
        }


class Applier:
    """Applies operations through one connection. Used with the writer's lock held."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        catalogue: Catalogue,
        epoch: int,
        take_seqs: Callable[[int], int],
    ) -> None:
        self._execute = connection.execute
        self._connection = connection
        self.catalogue = catalogue
        self._epoch = epoch
        self._take_seqs = take_seqs
        self.closing = 0  # the closing number of the running commit
        self._handlers: dict[type[Op], Callable[[Op], None]] = {
            kind: getattr(self, name)
            for kind, name in (
                (PutRows, "_put_rows"),
                (Start, "_start"),
                (Fail, "_fail"),
                (Release, "_release"),
                (tail.ToTail, "_to_tail"),
                (tail.SetExpiry, "_set_expiry"),
                (Bury, "_bury"),
                (Cancel, "_cancel"),
                (Redrive, "_redrive"),
                (PurgeDead, "_purge_dead"),
                (DeclareQueue, "_declare_queue"),
                (DeclareGroup, "_declare_group"),
                (RemoveGroup, "_remove_group"),
                (Pause, "_pause"),
                (Collect, "_collect"),
                (Retire, "_retire"),
                (Forget, "_forget"),
                (Save, "_save"),
            )
        }
        sessions = SessionApplier(connection, epoch)
        self._gives = sessions.gives
        self._handlers.update(sessions.handlers)
        self._handlers.update(HeldApplier(connection, catalogue).handlers)
        self._handlers.update(StagedApplier(connection, take_seqs, self._put_rows).handlers)

    def apply(self, op: Op) -> None:
        """Do one operation other than PutPlain and Ack, which the store merges."""
        self._handlers[type(op)](op)

    # ------------------------------------------------------------------------- puts

    def _put_rows(self, op: PutRows) -> None:
        op.seqs, op.stored = [], []
        flat: list[object] = []
        for position, row in enumerate(op.rows):
            if row.dedup_key is not None:
                known = self._execute(
                    sql.DEDUP_FIND, (op.queue, row.dedup_key, op.put_at)
                ).fetchone()
                if known is not None:
                    op.seqs.append(known[0])
                    continue
            seq = self._take_seqs(1)
            if row.dedup_key is not None:
                keep = (op.queue, row.dedup_key, seq, row.dedup_until)
                self._execute(sql.DEDUP_KEEP, keep)
            op.seqs.append(seq)
            op.stored.append(position)
            flat += (seq, op.queue, op.put_at, *row[:9])
        for start, size in sql.rungs(len(op.stored)):
            self._execute(sql.insert_rows(size), flat[12 * start : 12 * (start + size)])

    # ------------------------------------------------------------------- deliveries

    def _closing_of(self, group: int) -> int | None:
        return self.closing if group in self.catalogue.retained else None

    def _start(self, op: Start) -> None:
        self._gives(op.session)
        head, fresh = (op.group, self._epoch), op.fresh_seqs()
        for start, size in sql.rungs(len(fresh)):
            counter = op.counter + start
            seqs = fresh[start : start + size]
            values = [*head, counter, op.session, op.started, *seqs]
            self._execute(sql.start_fresh(size), values)
        counter, closing = op.counter + len(fresh), self._closing_of(op.group)
        for number, again in enumerate(op.again, counter):
            seq, attempt, crashes, *ended = again
            self._execute(sql.CLOSE_EARLIER, (op.started, closing, seq, op.group, attempt, *ended))
            self._execute(
                sql.START_AGAIN,
                (seq, op.group, attempt, self._epoch, number, crashes, op.session, op.started),
            )
        if op.reads:
            # The pages stay in this connection's cache, where the ack will need them: a reader
            # would fetch them from the file once more.
            seqs = [*fresh, *[again.seq for again in op.again]] if op.again else fresh
            op.messages = reads.messages(self._connection, seqs)

    def _fail(self, op: Fail) -> None:
        closing = self._closing_of(op.group)
        self._execute(
            sql.FAIL,
            (op.ended, op.outcome, op.due, op.error, closing, op.seq, op.group, op.attempt),
        )

    def _release(self, op: Release) -> None:
        for seq, attempt in op.deliveries:
            self._execute(sql.RELEASE, (seq, op.group, attempt))

    def _to_tail(self, op: tail.ToTail) -> None:
        which = (op.seq, op.group, op.attempt)
        op.due = None
        if self._execute(sql.IS_OPEN, which).fetchone() is None:
            return
        op.due = due = tail.due_of(op.priority, self._take_seqs(1))
        if op.outcome is not None:
            closing = self._closing_of(op.group)
            self._execute(sql.FAIL, (op.ended, op.outcome, due, op.error, closing, *which))
            return
        self._execute(sql.RELEASE, which)
        if not self._execute(sql.KEEP_PLACE, (due, op.seq, op.group)).rowcount:
            undelivered = (op.seq, op.group, self._epoch, op.ended, due)
            self._execute(sql.KEEP_PLACE_UNDELIVERED, undelivered)

    def _set_expiry(self, op: tail.SetExpiry) -> None:
        op.found = self._execute(sql.SET_EXPIRY, (op.expires, op.seq, op.queue)).rowcount > 0

    # ------------------------------------------------------------------- settlement

    def ack(self, ops: list[Ack]) -> None:
        """Settle the messages of acks of one group at one time."""
        first = ops[0]
        seqs = first.seqs if len(ops) == 1 else [seq for op in ops for seq in op.seqs]
        if first.group in self.catalogue.sole:
            first.removed = self._delete(seqs)
            return
        closing = self._closing_of(first.group)
        for size, part in sql.in_chunks(seqs):
            self._execute(sql.close_acked(size), [first.ended, closing, first.group, *part])
        if closing is None:
            first.removed = self._delete_settled(seqs)

    def _delete(self, seqs: list[int]) -> int:
        if sql.is_run(seqs):
            ends = (seqs[0], seqs[-1])
            self._execute(sql.DELETE_DELIVERIES_BETWEEN, ends)
            return self._execute(sql.DELETE_MESSAGES_BETWEEN, ends).rowcount
        removed = 0
        for size, part in sql.in_chunks(seqs):
            removed += self._execute(sql.delete_messages(size), part).rowcount
            self._execute(sql.delete_deliveries(size), part)
        return removed

    def _delete_settled(self, seqs: list[int]) -> int:
        removed = 0
        for size, part in sql.in_chunks(seqs):
            gone = self._execute(sql.delete_settled(size), part).rowcount
            if gone:
                self._execute(sql.delete_left_deliveries(size), part)
            removed += gone
        return removed

    def _bury(self, op: Bury) -> None:
        group = self.catalogue.groups.get(op.group)
        op.dead_id, op.removed = None, 0
        if group is None or op.seq <= group.floor:
            return
        found = reads.messages(self._connection, [op.seq])
        rows = [
            DeliveryRow._make(row) for row in self._execute(sql.DELIVERIES_OF, (op.seq, op.group))
        ]
        if not found or any((row.outcome or 0) >= FINAL for row in rows):
            return
        message = found[0]
        open_row = rows[-1] if rows and rows[-1].ended is None else None
        values = burial.dead_values(self._connection, op, message, rows)
        op.dead_id = self._execute(sql.BURY, values).lastrowid
        if op.group in self.catalogue.sole:
            op.removed = self._delete([op.seq])
            return
        closing = self._closing_of(op.group)
        if open_row is None:
            undelivered = (op.seq, op.group, self._epoch, op.ended, closing)
            self._execute(sql.SETTLED_UNDELIVERED, undelivered)
        else:
            self._execute(
                sql.CLOSE_DEAD, (op.ended, op.error, closing, op.seq, op.group, open_row.attempt)
            )
        self._execute(sql.CLEAR_DUE, (op.seq, op.group))
        if closing is None:
            op.removed = self._delete_settled([op.seq])

    def _cancel(self, op: Cancel) -> None:
        op.removed = []
        for seq in op.seqs:
            if self._execute(sql.PRESENT, (seq, op.queue)).fetchone() is not None:
                op.removed.append(seq)
        if op.removed:
            self._delete(op.removed)

    # ----------------------------------------------------------------- dead letters

    def _redrive(self, op: Redrive) -> None:
        op.seqs = []
        for dead_id, origin in zip(op.dead_ids, op.origins, strict=True):
            row = self._execute(sql.DEAD_BY_ID, (dead_id, op.queue)).fetchone()
            if row is None:
                op.seqs.append(None)
                continue
            letter = DeadRow._make(row)
            headers = {} if letter.headers is None else _decode_headers(letter.headers)
            encoded = msgspec.msgpack.encode(headers | {REDRIVEN_FROM: origin})
            crc = zlib.crc32(letter.body, zlib.crc32(encoded))
            seq = self._take_seqs(1)
            message = (
                *(seq, op.queue, op.put_at, letter.kind, crc, letter.priority, None, None),
                *(letter.key, letter.max_attempts, encoded, letter.body),
            )
            self._execute(sql.insert_rows(1), message)
            self._execute(sql.DEAD_DELETE, (dead_id, op.queue))
            op.seqs.append(seq)

    def _purge_dead(self, op: PurgeDead) -> None:
        op.removed = 0
        for dead_id in op.dead_ids:
            op.removed += self._execute(sql.DEAD_DELETE, (dead_id, op.queue)).rowcount

    # -------------------------------------------------------------------- catalogue

    def _declare_queue(self, op: DeclareQueue) -> None:
        policy: QueuePolicy = op.policy
        text = policy.encode().decode()
        retained = int(policy.retain_ms is not None)
        for row in self.catalogue.queues.values():
            if row.name == op.name:
                self._execute(sql.QUEUE_SET, (text, retained, row.id))
                row.policy = policy
                break
        else:
            id_ = self._execute(sql.QUEUE_ADD, (op.name, text, retained, 0)).lastrowid
            assert id_ is not None  # noqa: S101  # an INSERT has a rowid
            row = QueueRow(id_, op.name, policy, False, 0, 0, 0)
            self.catalogue.queues[id_] = row
        op.row = replace(row)  # the caller's own: ours must follow the file alone
        self.catalogue.changed()

    def _declare_group(self, op: DeclareGroup) -> None:
        for row in self.catalogue.groups.values():
            if (row.queue, row.name) == (op.queue, op.name):
                op.row = replace(row)
                return
        settled = 0
        if op.floor:
            below = (0, op.floor, op.queue)
            settled = self._execute(sql.TALLY_FLOOR, below).fetchone()[0]
        id_ = self._execute(sql.GROUP_ADD, (op.queue, op.name, op.floor, settled)).lastrowid
        assert id_ is not None  # noqa: S101  # an INSERT has a rowid
        self.catalogue.groups[id_] = row = GroupRow(id_, op.queue, op.name, op.floor, settled)
        op.row = replace(row)
        self.catalogue.changed()

    def _remove_group(self, op: RemoveGroup) -> None:
        self._execute(sql.GROUP_REMOVE, (op.group,))
        self._execute(sql.GROUP_DELIVERIES_REMOVE, (op.group,))
        self.catalogue.groups.pop(op.group, None)
        self.catalogue.changed()

    def _pause(self, op: Pause) -> None:
        self._execute(sql.QUEUE_PAUSE, (int(op.paused), op.queue))
        self.catalogue.queues[op.queue].paused = op.paused

    # ----------------------------------------------------------------------- upkeep

    def _collect(self, op: Collect) -> None:
        op.removed = 0
        if self.catalogue.queues[op.queue].policy.retain_ms is not None:
            return
        stretch = (op.queue, op.after, op.upto)
        op.removed = self._execute(sql.COLLECT_MESSAGES, stretch).rowcount
        if op.removed:
            self._execute(sql.COLLECT_DELIVERIES, stretch[1:])

    def _retire(self, op: Retire) -> None:
        op.removed, op.reached = 0, None
        rows = self._execute(sql.RETIRABLE, (op.group, op.after, op.limit)).fetchall()
        if len(rows) == op.limit:
            # Rows closed by one commit share a number: take all of the last number or none.
            last = rows[-1][0]
            rows = [row for row in rows if row[0] != last]
            rows += self._execute(sql.RETIRABLE_AT, (op.group, last)).fetchall()
        young = min((closed for closed, _, ended, _ in rows if ended >= op.cutoff), default=None)
        over: list[int] = []
        for closed, seq, _, outcome in rows:
            if young is not None and closed >= young:
                break
            op.reached = closed
            if outcome >= FINAL:
                over.append(seq)
        for size, part in sql.in_chunks(over):
            gone = self._execute(sql.delete_retired(size), [op.cutoff, *part]).rowcount
            if gone:
                self._execute(sql.delete_left_deliveries(size), part)
            op.removed += gone

    def _forget(self, op: Forget) -> None:
        over = self._execute(sql.DEDUP_OVER, (op.now, op.limit)).fetchall()
        self._connection.executemany(sql.DEDUP_FORGET, over)
        op.removed = len(over)

    def _save(self, op: Save) -> None:
        for id_, stored, dead, last in op.queues:
            self._execute(sql.QUEUE_SAVE, (stored, dead, last, id_))
        for id_, floor, settled in op.groups:
            group = self.catalogue.groups[id_]
            self._execute(sql.GROUP_SAVE, (floor, settled, id_))
            if floor > group.floor:
                if id_ not in self.catalogue.retained:
                    below = (group.floor, floor, id_)
                    self._execute(sql.GROUP_DELIVERIES_BELOW, below)
                group.floor = floor
            group.settled = settled
