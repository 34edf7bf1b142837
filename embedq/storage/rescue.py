"""Put rows found in a damaged database into a new one, and make a whole store of them.

Knows: which rows to believe, where doubtful messages go, what can be made up and what not.
Does not know: how the rows were found, files, pages.

A message whose content has its checksum is a message again. One without it becomes a dead letter
with reason `corrupt`, its body as it was found. Rows that refer to what is lost either bring it
back under a made-up name, so that messages keep waiting, or are dropped and counted.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator
from typing import Final

from embedq.errors import StoreCorrupt
from embedq.ids import KEY_BYTES, SEQ_MAX, new_store_key
from embedq.lifecycle import Outcome, Reason
from embedq.policy import QueuePolicy
from embedq.storage.records import Value
from embedq.storage.wreck import GROUP_NAMES, NUMBERS, QUEUE_NAMES, Row, Shape

#: How far behind the stored high-water mark may be: the page that holds it can be an old one.
_SLACK: Final = 1 << 24
_EPOCH_MAX: Final = 1 << 22
#: Larger ids of queues, groups and sessions are damage; SQLite would count on from them.
_ID_MAX: Final = 1 << 31

# What becomes of a message that was set aside, once everything has been seen: a dead letter
# under a new number, or under its own if that is free; or a message after all if it is free.
_NEW_NUMBER, _OWN_NUMBER, _MESSAGE = 0, 1, 2

_CONTENT: Final = "its content does not have its checksum"
_PART: Final = "only the beginning of it could be read"


class Rescue:
    """Takes rows with `add`, in any order but meta first, then completes the store in `finish`.

    `damaged`: messages that became dead letters, or dead letters found damaged. `dropped`: rows
    by table that had lost what they belong to. `notes`: what was made up, for people.
    """

    def __init__(
        self, connection: sqlite3.Connection, shapes: dict[str, Shape], now_ms: int
    ) -> None:
        self.damaged = 0
        self.dropped: dict[str, int] = {}
        self.notes: list[str] = []
        #: The highest seq given out, and the id of the last dead letter, before this rescue.
        self.last_seq = 0
        self.last_letter = 0
        self._high = 0
        self._execute = connection.execute
        self._now = now_ms
        self._limit = SEQ_MAX
        self._meta: dict[str, Value] = {}
        self._queue_names: dict[int, str] = {}
        self._group_names: dict[int, tuple[int, str]] = {}
        self._numbers: dict[str, int] = {}
        self._left_out: list[int] = []
        self._insert = {
            table: f"INSERT OR IGNORE INTO {table} VALUES ({','.join('?' * len(shape.columns))})"
            for table, shape in shapes.items()
        }
        self._columns = {
            table: {name: place for place, name in enumerate(shape.columns)}
            for table, shape in shapes.items()
        }
        self._execute("CREATE TEMP TABLE suspect AS SELECT '' AS why, 0 AS fate, * FROM msg")

    def add(self, row: Row) -> None:
        """Store a row, or set it aside until everything has been seen."""
        match row:
            case Row("msg"):
                self._add_message(row)
            case Row("dead"):
                self._add_letter(row)
            case Row("meta", (str(key), value)):
                self._add_meta(key, value)
            case Row(table, (str(name), int(id_))) if table == QUEUE_NAMES:
                self._queue_names.setdefault(id_, name)
            case Row(table, (int(queue), str(name), int(id_))) if table == GROUP_NAMES:
                self._group_names.setdefault(id_, (queue, name))
            case Row(table, (str(name), int(number))) if table == NUMBERS:
                if 0 < number <= (SEQ_MAX if name == "dead" else _ID_MAX):
                    self._numbers[name] = max(number, self._numbers.get(name, 0))
            case Row("consumer_group" | "queue" | "session", (int(id_), *_)) if id_ > _ID_MAX:
                self._drop_one(row.table)
            case _:
                self._execute(self._insert[row.table], row.values)

    def _drop_one(self, table: str) -> None:
        self.dropped[table] = self.dropped.get(table, 0) + 1

    def _add_meta(self, key: str, value: Value) -> None:
        self._meta.setdefault(key, value)
        if key == "seq_reserved" and isinstance(value, int) and 0 < value <= SEQ_MAX:
            self._limit = min(value + _SLACK, SEQ_MAX)

    def _add_message(self, row: Row) -> None:
        seq = int(str(row.values[0]))
        number_fits = 0 < seq <= self._limit and not row.doubt
        if not self._is_sound(row):
            trusted = number_fits and not row.outside
            if row.used:
                why = _CONTENT if row.whole else _PART
                self._suspect(row, why, _OWN_NUMBER if trusted else _NEW_NUMBER)
            elif trusted:  # lost now, or a message that left long ago
                self._left_out.append(seq)
            return
        if row.outside and number_fits:
            # Perhaps the number of another message that is still to come.
            self._suspect(row, "the page above does not expect its number", _MESSAGE)
            return
        if number_fits and self._execute(self._insert["msg"], row.values).rowcount:
            return
        if not self._is_there(row):
            why = row.doubt or f"number {seq} is impossible or taken"
            self._suspect(row, f"its number cannot be trusted: {why}", _NEW_NUMBER)

    def _suspect(self, row: Row, why: str, fate: int) -> None:
        marks = ",".join("?" * (len(row.values) + 2))
        self._execute(f"INSERT INTO suspect VALUES ({marks})", (why, fate, *row.values))

    def _is_sound(self, row: Row) -> bool:
        places = self._columns[row.table]
        headers, body = row.values[places["headers"]], row.values[places["body"]]
        if not row.whole or not isinstance(body, bytes):
            return False
        start = zlib.crc32(headers) if isinstance(headers, bytes) else 0
        return row.values[places["crc"]] == zlib.crc32(body, start)

    def _is_there(self, row: Row) -> bool:
        places = self._columns["msg"]
        found = self._execute(
            "SELECT 1 FROM msg WHERE seq=? AND crc=? AND put_at=?",
            [row.values[places[name]] for name in ("seq", "crc", "put_at")],
        ).fetchone()
        return found is not None

    def _add_letter(self, row: Row) -> None:
        places = self._columns["dead"]
        values = list(row.values)
        if not self._is_sound(row):
            if not row.used:
                return
            reason, detail = values[places["reason"]], values[places["detail"]]
            if reason != Reason.CORRUPT:
                self.damaged += 1
                values[places["reason"]] = Reason.CORRUPT
                values[places["detail"]] = f"{_CONTENT} ({reason!s}: {detail!s})"
        if row.doubt or row.outside or not 0 < int(str(values[0])) <= SEQ_MAX:
            values[0] = None
        if not self._execute(self._insert["dead"], values).rowcount:
            # If only the id is taken, the letter gets another one; else it is there already.
            self._execute(self._insert["dead"], (None, *values[1:]))

    # ----------------------------------------------------------------------- finishing

    def finish(self) -> None:
        """Make a store of what was added: nothing refers to nothing, and counts are right."""
        self._complete_groups()
        self._complete_queues()
        self._check_queues()
        self._check_groups()
        self._find_high()
        self._renumber_letters()
        self._bury()
        self._drop_deliveries()
        self._drop("dedup", f"seq NOT BETWEEN 1 AND {self._limit}")
        self._write_meta()
        self._count()

    def _complete_groups(self) -> None:
        """Bring back groups of which only the name, or only deliveries are left."""
        orphans = self._execute(
            "SELECT DISTINCT d.grp, m.queue FROM delivery d JOIN msg m USING (seq) "
            "WHERE d.grp NOT IN (SELECT id FROM consumer_group)"
        )
        missing = {group: (queue, f"recovered-{group}") for group, queue in orphans.fetchall()}
        for group, (queue, name) in (missing | self._group_names).items():
            added = self._execute(
                "INSERT OR IGNORE INTO consumer_group(id,queue,name,floor) VALUES (?,?,?,0)",
                (group, queue, name),
            ).rowcount
            if added:
                self.notes.append(
                    f"group {name!r} of queue {queue} had lost its position: it gets every "
                    "message of the queue that is still there"
                )

    def _complete_queues(self) -> None:
        """Bring back queues of which only the name, or only messages are left."""
        wanted = self._execute(
            "SELECT queue FROM msg UNION SELECT queue FROM dead UNION SELECT queue FROM dedup "
            "UNION SELECT queue FROM consumer_group UNION "
            "SELECT queue FROM suspect WHERE NOT EXISTS (SELECT 1 FROM queue)"
        )
        known = {row[0] for row in self._execute("SELECT id FROM queue")}
        for queue in sorted(({row[0] for row in wanted} | set(self._queue_names)) - known):
            name = self._queue_names.get(queue, f"recovered-{queue}")
            for suffix in ("", *(f"-{number}" for number in range(2, 100))):
                added = self._execute(
                    "INSERT OR IGNORE INTO queue(id,name,policy,retained) VALUES (?,?,?,0)",
                    (queue, name + suffix, QueuePolicy().encode().decode()),
                ).rowcount
                if added:
                    break
            self.notes.append(f"the settings of queue {name!r} are lost: it has the defaults")

    def _check_queues(self) -> None:
        rows = self._execute("SELECT id,name,policy,retained FROM queue").fetchall()
        for queue, name, text, retained in rows:
            try:
                policy = QueuePolicy.decode(text)
            except StoreCorrupt:
                policy = QueuePolicy()
                self.notes.append(f"the settings of queue {name!r} are lost: it has the defaults")
            retains = int(policy.retain_ms is not None)
            if retains != retained or text != policy.encode().decode():
                self._execute(
                    "UPDATE queue SET policy=?, retained=? WHERE id=?",
                    (policy.encode().decode(), retains, queue),
                )
        self._execute("UPDATE queue SET paused=0 WHERE paused NOT IN (0,1)")

    def _check_groups(self) -> None:
        impossible = f"floor NOT BETWEEN 0 AND {self._limit}"
        for (name,) in self._execute(f"SELECT name FROM consumer_group WHERE {impossible}"):
            self.notes.append(
                f"the position of group {name!r} is damaged: it gets every message again"
            )
        self._execute(f"UPDATE consumer_group SET floor=0 WHERE {impossible}")

    def _drop_deliveries(self) -> None:
        outcomes = ",".join(str(int(outcome)) for outcome in Outcome)
        self._drop(
            "delivery",
            "seq NOT IN (SELECT seq FROM msg) OR grp NOT IN (SELECT id FROM consumer_group) "
            # An outcome that cannot be would settle a message that nobody has finished.
            f"OR outcome NOT IN ({outcomes}) OR (outcome IS NULL) <> (ended IS NULL)",
        )

    def _drop(self, table: str, condition: str) -> None:
        gone = self._execute(f"DELETE FROM {table} WHERE {condition}").rowcount
        if gone:
            self.dropped[table] = self.dropped.get(table, 0) + gone

    def _find_high(self) -> None:
        """Find the highest number given out; impossible ones in unchecked rows do not count."""
        reserved = self._meta.get("seq_reserved")
        known = [reserved] if isinstance(reserved, int) and 0 < reserved <= SEQ_MAX else [0]
        for column, table in (
            ("seq", "msg"),
            ("seq", "dead"),
            ("seq", "delivery"),
            ("seq", "dedup"),
            ("floor", "consumer_group"),
        ):
            query = f"SELECT max({column}) FROM {table} WHERE {column} <= {self._limit}"
            known.append(self._execute(query).fetchone()[0] or 0)
        self._high = self.last_seq = max(known)
        last_letter = self._execute("SELECT max(id) FROM dead").fetchone()[0] or 0
        self.last_letter = max(last_letter, self._numbers.get("dead", 0))

    def _renumber_letters(self) -> None:
        """Give dead letters with the number of no message one of their own."""
        impossible = f"SELECT id FROM dead WHERE seq NOT BETWEEN 1 AND {self._limit}"
        for (id_,) in self._execute(impossible).fetchall():
            self._high += 1
            self._execute("UPDATE dead SET seq=? WHERE id=?", (self._high, id_))

    def _bury(self) -> None:
        """Turn what was set aside into dead letters, unless a sound copy turned up."""
        homes = dict(self._execute("SELECT queue, min(id) FROM consumer_group GROUP BY queue"))
        queues = [row[0] for row in self._execute("SELECT id FROM queue ORDER BY id")]
        names = list(self._columns["msg"])
        for why, fate, *values in self._suspects():
            row = dict(zip(names, values, strict=True))
            if self._is_there(Row("msg", tuple(values))):
                continue
            if fate == _MESSAGE and self._execute(self._insert["msg"], values).rowcount:
                continue
            if row["queue"] not in queues:
                row["queue"] = queues[0]
            group = homes.get(row["queue"], 0)
            text = why
            if fate != _OWN_NUMBER or self._is_taken(row["seq"]):
                text = f"{why} (it was number {row['seq']!r})"
                self._high += 1
                row["seq"] = self._high
            self.damaged += 1
            self._execute(
                "INSERT INTO dead(seq,grp,queue,died,reason,detail,moved_by,put_at,kind,crc,"
                "priority,okey,max_attempts,headers,body) "
                "VALUES (:seq,:grp,:queue,:died,:reason,:detail,'salvage',:put_at,:kind,:crc,"
                ":priority,:okey,:max_attempts,:headers,:body)",
                row | {"grp": group, "died": self._now, "reason": Reason.CORRUPT, "detail": text},
            )

    def _suspects(self) -> Iterator[tuple[str, int, *tuple[Value, ...]]]:
        yield from self._execute("SELECT * FROM suspect ORDER BY rowid")

    def left_out(self) -> list[int]:
        """Return numbers of damaged messages that may have left long ago, and are not here."""
        return sorted({seq for seq in self._left_out if not self._is_taken(seq)})

    def _is_taken(self, seq: Value) -> bool:
        query = "SELECT 1 FROM msg WHERE seq=?1 UNION ALL SELECT 1 FROM dead WHERE seq=?1"
        return self._execute(query, (seq,)).fetchone() is not None

    def _write_meta(self) -> None:
        key, epoch = self._meta.get("store_key"), self._meta.get("epoch")
        if not isinstance(key, bytes) or len(key) != KEY_BYTES:
            key = new_store_key()
            self.notes.append(
                "the store key is lost: message ids given out before are unknown now"
            )
        if not isinstance(epoch, int) or not 0 < epoch < _EPOCH_MAX:
            highest = f"SELECT max(epoch) FROM delivery WHERE epoch BETWEEN 1 AND {_EPOCH_MAX}"
            epoch = (self._execute(highest).fetchone()[0] or 0) + 1
        changed = {"store_key": key, "epoch": epoch, "seq_reserved": self._high, "clean": 0}
        for name, value in (self._meta | changed).items():
            self._execute("INSERT OR REPLACE INTO meta VALUES (?,?)", (name, value))

    def _count(self) -> None:
        self._execute("DROP TABLE suspect")
        self._execute("UPDATE queue SET stored=0, dead=0, last=NULL")
        stored = self._execute("SELECT count(*), max(seq), queue FROM msg GROUP BY queue")
        for row in stored.fetchall():
            self._execute("UPDATE queue SET stored=?, last=? WHERE id=?", row)
        dead = self._execute("SELECT count(*), queue FROM dead GROUP BY queue")
        for row in dead.fetchall():
            self._execute("UPDATE queue SET dead=? WHERE id=?", row)
        self._execute("UPDATE consumer_group SET settled=0")
        self._raise_numbers()

    def _raise_numbers(self) -> None:
        """Make sure that a group or a dead letter never gets the id of an earlier one."""
        groups = self._execute("SELECT max(grp) FROM dead WHERE grp <= ?", (_ID_MAX,))
        group = groups.fetchone()[0] or 0
        self._numbers["consumer_group"] = max(self._numbers.get("consumer_group", 0), group)
        for table, number in self._numbers.items():
            known = "UPDATE sqlite_sequence SET seq=max(seq,?) WHERE name=?"
            if table in self._insert and not self._execute(known, (number, table)).rowcount:
                self._execute("INSERT INTO sqlite_sequence VALUES (?,?)", (table, number))
