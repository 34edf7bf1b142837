"""The SQL of the running store, as named statements.

Knows: which statement does what, and the index each one rests on.
Does not know: connections, transactions, Python objects.

Statements over many rows come in a ladder of sizes: one statement of 100 rows costs 10-30 % less
CPU than 100 statements and gives the GIL up once instead of 100 times (docs/performance.md).
"""

from __future__ import annotations

from functools import cache

#: Sizes of multi-row statements. Any number of rows is a sum of these.
LADDER = (100, 32, 16, 8, 4, 3, 2, 1)

#: Sizes of IN lists; a shorter list is padded with its last value.
IN_SIZES = (1, 4, 16, 100)

BEGIN = "BEGIN IMMEDIATE"
COMMIT = "COMMIT"
ROLLBACK = "ROLLBACK"

# ------------------------------------------------------------------------------- puts


@cache
def insert_plain(rows: int) -> str:
    """Insert plain messages: ?1 first seq, ?2 queue, ?3 time, ?4 kind, then crc, body of each."""
    values = ",".join(f"(?1+{n},?2,?3,?4,?{5 + 2 * n},?{6 + 2 * n})" for n in range(rows))
    return f"INSERT INTO msg(seq,queue,put_at,kind,crc,body) VALUES {values}"


@cache
def insert_singles(rows: int) -> str:
    """Insert plain messages of different puts: seq, queue, time, kind, crc, body of each."""
    values = ",".join(["(?,?,?,?,?,?)"] * rows)
    return f"INSERT INTO msg(seq,queue,put_at,kind,crc,body) VALUES {values}"


_COLUMNS = "seq,queue,put_at,kind,crc,priority,due,expires,okey,max_attempts,headers,body"


@cache
def insert_rows(rows: int) -> str:
    """Insert messages with all their columns."""
    values = ",".join(["(?,?,?,?,?,?,?,?,?,?,?,?)"] * rows)
    return f"INSERT INTO msg({_COLUMNS}) VALUES {values}"


DEDUP_FIND = "SELECT seq FROM dedup WHERE queue=? AND key=? AND expires>?"
DEDUP_KEEP = (
    "INSERT INTO dedup(queue,key,seq,expires) VALUES (?,?,?,?) "
    "ON CONFLICT(queue,key) DO UPDATE SET seq=excluded.seq, expires=excluded.expires"
)
#: Uses dedup_expires.
DEDUP_OVER = "SELECT queue,key FROM dedup WHERE expires<=? ORDER BY expires LIMIT ?"
#: One by one: with a subquery SQLite goes through all keys of the queue.
DEDUP_FORGET = "DELETE FROM dedup WHERE queue=? AND key=?"

# ------------------------------------------------------------------------- deliveries


@cache
def start_fresh(rows: int) -> str:
    """Open first deliveries: ?1 group, ?2 epoch, ?3 counter, ?4 session, ?5 time, then seqs."""
    values = ",".join(f"(?{6 + n},?1,1,?2,?3+{n},?4,?5)" for n in range(rows))
    return f"INSERT INTO delivery(seq,grp,attempt,epoch,counter,session,started) VALUES {values}"


#: Close what earlier attempts left: ?1 time, ?2 closing number or NULL, ?3 seq, ?4 group,
#: ?5 attempt, ?6 error of one that was open, or NULL, ?7 its outcome.
CLOSE_EARLIER = (
    "UPDATE delivery SET due=NULL, closed=CASE WHEN ended IS NULL THEN ?2 ELSE closed END, "
    "outcome=CASE WHEN ended IS NULL THEN ?7 ELSE outcome END, "
    "error=CASE WHEN ended IS NULL THEN ?6 ELSE error END, "
    "crashes=crashes+(ended IS NULL AND ?7=3), ended=coalesce(ended,?1) "
    "WHERE seq=?3 AND grp=?4 AND attempt<?5 AND (ended IS NULL OR due IS NOT NULL)"
)
START_AGAIN = (
    "INSERT OR REPLACE INTO delivery(seq,grp,attempt,epoch,counter,crashes,session,started) "
    "VALUES (?,?,?,?,?,?,?,?)"
)
FAIL = (
    "UPDATE delivery SET ended=?1,outcome=?2,due=?3,error=?4,closed=?5,crashes=crashes+(?2=3) "
    "WHERE seq=?6 AND grp=?7 AND attempt=?8 AND ended IS NULL"
)
RELEASE = "DELETE FROM delivery WHERE seq=? AND grp=? AND attempt=? AND ended IS NULL"
#: ?1 time, ?2 seq, ?3 queue.
SET_EXPIRY = "UPDATE msg SET expires=?1 WHERE seq=?2 AND queue=?3"
IS_OPEN = "SELECT 1 FROM delivery WHERE seq=? AND grp=? AND attempt=? AND ended IS NULL"
#: ?1 place, ?2 seq, ?3 group: the latest delivery that is left of a message remembers it.
KEEP_PLACE = (
    "UPDATE delivery SET due=?1 WHERE seq=?2 AND grp=?3 AND attempt=("
    "SELECT max(attempt) FROM delivery WHERE seq=?2 AND grp=?3)"
)
#: The same for a message that has none left: ?1 seq, ?2 group, ?3 epoch, ?4 time, ?5 place.
KEEP_PLACE_UNDELIVERED = (
    "INSERT INTO delivery(seq,grp,attempt,epoch,counter,started,ended,due) "
    "VALUES (?1,?2,0,?3,0,?4,?4,?5)"
)

# ------------------------------------------------------------------------- settlement


def _in(size: int, first: int = 1) -> str:
    return ",".join(f"?{n}" for n in range(first, first + size))


@cache
def delete_messages(size: int) -> str:
    """Delete messages by seq."""
    return f"DELETE FROM msg WHERE seq IN ({_in(size)})"


@cache
def delete_deliveries(size: int) -> str:
    """Delete every delivery of messages."""
    return f"DELETE FROM delivery WHERE seq IN ({_in(size)})"


@cache
def close_acked(size: int) -> str:
    """Close open deliveries as acked: ?1 time, ?2 closing number or NULL, ?3 group, then seqs."""
    return (
        "UPDATE delivery SET ended=?1,outcome=10,closed=?2 "
        f"WHERE grp=?3 AND ended IS NULL AND seq IN ({_in(size, 4)})"
    )


#: The same for seqs without a gap: 10 to 15 % less CPU than a list.
DELETE_MESSAGES_BETWEEN = "DELETE FROM msg WHERE seq BETWEEN ? AND ?"
DELETE_DELIVERIES_BETWEEN = "DELETE FROM delivery WHERE seq BETWEEN ? AND ?"

#: True for a row of msg that some group has not settled.
UNSETTLED = (
    "EXISTS (SELECT 1 FROM consumer_group g WHERE g.queue=msg.queue AND g.floor<msg.seq "
    "AND NOT EXISTS (SELECT 1 FROM delivery d "
    "WHERE d.seq=msg.seq AND d.grp=g.id AND d.outcome>=10))"
)


@cache
def delete_settled(size: int) -> str:
    """Delete those of the messages that every group has settled."""
    return f"DELETE FROM msg WHERE seq IN ({_in(size)}) AND NOT {UNSETTLED}"


@cache
def delete_retired(size: int) -> str:
    """Delete those that every group has settled before a time: ?1 the time, then seqs."""
    return (
        f"DELETE FROM msg WHERE seq IN ({_in(size, 2)}) AND NOT {UNSETTLED} "
        "AND NOT EXISTS (SELECT 1 FROM delivery d WHERE d.seq=msg.seq AND d.outcome>=10 "
        "AND d.closed IS NOT NULL AND d.ended>=?1)"
    )


@cache
def delete_left_deliveries(size: int) -> str:
    """Delete the deliveries of those of the messages that are gone."""
    return (
        f"DELETE FROM delivery WHERE seq IN ({_in(size)}) "
        "AND NOT EXISTS (SELECT 1 FROM msg WHERE msg.seq=delivery.seq)"
    )


COLLECT_MESSAGES = (
    "DELETE FROM msg WHERE queue=?1 AND seq>?2 AND seq<=?3 "
    f"AND EXISTS (SELECT 1 FROM consumer_group WHERE queue=?1) AND NOT {UNSETTLED}"
)
COLLECT_DELIVERIES = (
    "DELETE FROM delivery WHERE seq>? AND seq<=? "
    "AND NOT EXISTS (SELECT 1 FROM msg WHERE msg.seq=delivery.seq)"
)
#: Uses delivery_closed.
RETIRABLE = (
    "SELECT closed,seq,ended,outcome FROM delivery "
    "WHERE grp=? AND closed IS NOT NULL AND closed>? ORDER BY closed LIMIT ?"
)
RETIRABLE_AT = "SELECT closed,seq,ended,outcome FROM delivery WHERE grp=? AND closed=?"

# ------------------------------------------------------------------------ dead letters

DEAD_COLUMNS = (
    "id,seq,grp,queue,died,reason,detail,moved_by,attempts,"
    "put_at,kind,crc,priority,okey,max_attempts,headers,body"
)
BURY = (
    "INSERT INTO dead(seq,grp,queue,died,reason,detail,moved_by,attempts,"
    "put_at,kind,crc,priority,okey,max_attempts,headers,body) "
    "VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
)
CLOSE_DEAD = (
    "UPDATE delivery SET ended=?,outcome=11,error=?,closed=? WHERE seq=? AND grp=? AND attempt=?"
)
SETTLED_UNDELIVERED = (
    "INSERT OR REPLACE INTO delivery(seq,grp,attempt,epoch,counter,started,ended,outcome,closed) "
    "VALUES (?1,?2,0,?3,0,?4,?4,11,?5)"
)
#: The plus sign keeps SQLite from going through every retry of the group (delivery_due).
CLEAR_DUE = "UPDATE delivery SET due=NULL WHERE seq=? AND grp=? AND +due IS NOT NULL"
DEAD_BY_ID = f"SELECT {DEAD_COLUMNS} FROM dead WHERE id=? AND queue=?"
DEAD_LIST = f"SELECT {DEAD_COLUMNS} FROM dead WHERE queue=? AND id>? ORDER BY id LIMIT ?"
DEAD_ONE = f"SELECT {DEAD_COLUMNS} FROM dead WHERE seq=? AND grp=?"
DEAD_DELETE = "DELETE FROM dead WHERE id=? AND queue=?"
DEAD_COUNTS = "SELECT queue,count(*) FROM dead GROUP BY queue"

# --------------------------------------------------------------------- reading messages


@cache
def select_messages(size: int) -> str:
    """Read whole messages by seq."""
    return f"SELECT {_COLUMNS} FROM msg WHERE seq IN ({_in(size)})"


SELECT_MESSAGES_BETWEEN = f"SELECT {_COLUMNS} FROM msg WHERE seq BETWEEN ? AND ?"

RANGE = f"SELECT {_COLUMNS} FROM msg NOT INDEXED WHERE queue=? AND seq>? ORDER BY seq LIMIT ?"

#: The plain stream walks the table itself: no index to pay for with each put.
LOAD_PLAIN = (
    "SELECT seq,okey FROM msg NOT INDEXED WHERE seq>? AND seq<=? AND queue=? AND priority=0 "
    "AND (due IS NULL OR okey IS NOT NULL) ORDER BY seq LIMIT ?"
)
#: Uses msg_priority.
LOAD_PRIORITY = (
    "SELECT seq,okey FROM msg WHERE priority<>0 AND seq>? AND seq<=? AND queue=? AND priority=? "
    "AND (due IS NULL OR okey IS NOT NULL) ORDER BY seq LIMIT ?"
)
#: Uses msg_due.
LOAD_DELAYED = (
    "SELECT seq,priority,due,max_attempts,okey FROM msg WHERE queue=? AND due IS NOT NULL "
    "AND (due,seq)>(?,?) ORDER BY due,seq LIMIT ?"
)
_RETRIES = (
    "SELECT d.seq,m.priority,d.due,m.max_attempts,m.okey,d.attempt,d.crashes,d.epoch,d.counter,"
    "d.outcome FROM delivery d JOIN msg m ON m.seq=d.seq WHERE d.grp=? AND d.due IS NOT NULL "
    "AND (d.due,d.seq)>(?,?) "
)
#: Uses delivery_due.
LOAD_RETRIES = f"{_RETRIES}ORDER BY d.due,d.seq LIMIT ?"
#: Uses delivery_due.
LOAD_TAIL = f"{_RETRIES}AND d.due<0 ORDER BY d.due,d.seq LIMIT ?"
#: Uses msg_key.
LOAD_KEY = (
    "SELECT seq,priority,due,max_attempts FROM msg "
    "WHERE queue=?1 AND okey=?2 AND okey IS NOT NULL "
    "AND seq>?3 AND NOT EXISTS (SELECT 1 FROM delivery d "
    "WHERE d.seq=msg.seq AND d.grp=?4 AND d.outcome>=10) ORDER BY seq LIMIT 1"
)
WAITING = "SELECT seq,priority,okey,due,max_attempts FROM msg WHERE seq=?"

_TOUCHED = "seq,attempt,crashes,epoch,counter,ended,outcome,due"
TOUCHED_BETWEEN = (
    f"SELECT {_TOUCHED} FROM delivery WHERE seq>=? AND seq<=? AND grp=? ORDER BY seq,attempt"
)


@cache
def touched_in(size: int) -> str:
    """Read the deliveries of messages to a group: ?1 group, then seqs."""
    return (
        f"SELECT {_TOUCHED} FROM delivery WHERE grp=?1 AND seq IN ({_in(size, 2)}) "
        "ORDER BY seq,attempt"
    )


DELIVERY_COLUMNS = (
    "seq,grp,attempt,epoch,counter,crashes,session,started,ended,outcome,due,closed,error"
)
DELIVERIES = f"SELECT {DELIVERY_COLUMNS} FROM delivery WHERE seq=? ORDER BY grp,attempt"
DELIVERIES_OF = f"SELECT {DELIVERY_COLUMNS} FROM delivery WHERE seq=? AND grp=? ORDER BY attempt"
#: True for a row of msg for which consumers of some group wait: not only a reader (held.py).
_AWAITED = f"{UNSETTLED[:-1]} AND NOT EXISTS (SELECT 1 FROM meta WHERE key='held:'||g.id))"
#: Uses msg_expires.
EXPIRED = (
    "SELECT seq,queue FROM msg WHERE expires IS NOT NULL AND expires<=? "
    f"AND ({_AWAITED} OR NOT EXISTS (SELECT 1 FROM consumer_group g WHERE g.queue=msg.queue)) "
    "ORDER BY expires,seq LIMIT ?"
)
UNSETTLED_GROUPS = (
    "SELECT g.id FROM msg JOIN consumer_group g ON g.queue=msg.queue AND g.floor<msg.seq "
    "WHERE msg.seq=? AND NOT EXISTS (SELECT 1 FROM delivery d "
    "WHERE d.seq=msg.seq AND d.grp=g.id AND d.outcome>=10) ORDER BY g.id"
)
PRESENT = "SELECT seq FROM msg WHERE seq=? AND queue=?"

# -------------------------------------------------------------------------- counting

STRETCH = "SELECT max(seq) FROM (SELECT seq FROM msg WHERE seq>? ORDER BY seq LIMIT ?)"
TALLY_QUEUES = (
    "SELECT queue,count(*),max(seq) FROM msg NOT INDEXED WHERE seq>? AND seq<=? GROUP BY queue"
)
TALLY_FLOOR = "SELECT count(*) FROM msg NOT INDEXED WHERE seq>? AND seq<=? AND queue=?"
TALLY_SETTLED = (
    "SELECT d.grp,count(*) FROM delivery d JOIN msg ON msg.seq=d.seq "
    "JOIN consumer_group g ON g.id=d.grp "
    "WHERE d.seq>? AND d.seq<=? AND d.outcome>=10 AND d.seq>g.floor GROUP BY d.grp"
)

# -------------------------------------------------------------------------- catalogue

QUEUES = "SELECT id,name,policy,paused,stored,dead,last FROM queue ORDER BY id"
#: Under this name, and the number of a group, meta says that it is a position (held.py).
HELD = "held:"
_HOLD = f"(SELECT CAST(value AS INTEGER) FROM meta WHERE key='{HELD}'||consumer_group.id)"
GROUPS = f"SELECT id,queue,name,floor,settled,{_HOLD} FROM consumer_group ORDER BY id"
QUEUE_ADD = "INSERT INTO queue(name,policy,retained,last) VALUES (?,?,?,?)"
QUEUE_SET = "UPDATE queue SET policy=?,retained=? WHERE id=?"
QUEUE_PAUSE = "UPDATE queue SET paused=? WHERE id=?"
QUEUE_SAVE = "UPDATE queue SET stored=?,dead=?,last=? WHERE id=?"
GROUP_ADD = "INSERT INTO consumer_group(queue,name,floor,settled) VALUES (?,?,?,?)"
GROUP_SAVE = "UPDATE consumer_group SET floor=max(floor,?),settled=? WHERE id=?"
GROUP_REMOVE = "DELETE FROM consumer_group WHERE id=?"
GROUP_DELIVERIES_REMOVE = "DELETE FROM delivery WHERE grp=?"
GROUP_DELIVERIES_BELOW = "DELETE FROM delivery WHERE seq>? AND seq<=? AND grp=?"
SESSION_ADD = (
    "INSERT INTO session(id,name,epoch,opened,token) "
    "VALUES (max(?,(SELECT ifnull(max(id),0) FROM session))+1,?,?,?,?)"
)
SESSION_FIND = "SELECT id,requests FROM session WHERE token=?"
SESSION_AGAIN = "UPDATE session SET name=?,epoch=?,opened=? WHERE id=?"
SESSION_REMEMBER = "UPDATE session SET requests=? WHERE id=? AND token IS NOT NULL"
SESSION_CLOSE = "UPDATE session SET token=NULL,requests=NULL,epoch=0 WHERE id=?"
SESSIONS_CLOSED = "SELECT id FROM session WHERE token IS NULL AND epoch<?"
SESSIONS_NAMED = "SELECT DISTINCT session FROM delivery WHERE session IS NOT NULL"
SESSION_REMOVE = "DELETE FROM session WHERE id=?"
SESSION_REMOVE_ENDED = "DELETE FROM session WHERE id=? AND token IS NULL AND epoch<?"
SESSION_FORGET = (
    "UPDATE session SET token=NULL,requests=NULL WHERE token IS NOT NULL AND epoch<? AND opened<?"
)
REISSUE = (
    "UPDATE delivery SET epoch=?,counter=? WHERE seq=? AND grp=? AND attempt=? AND ended IS NULL"
)
SESSION_NAME = "SELECT id,name FROM session WHERE id=?"
#: The ends of earlier hosts: ";" is the character after ":".
META_DEATHS = "SELECT key,value FROM meta WHERE key>='death:' AND key<'death;'"
META_DELETE = "DELETE FROM meta WHERE key=?"
META_GET = "SELECT value FROM meta WHERE key=?"
META_SET = (
    "INSERT INTO meta(key,value) VALUES (?,?) ON CONFLICT(key) DO UPDATE SET value=excluded.value"
)

# ----------------------------------------------------------------- stages and sinks

_STAGED = "sink,token,number,queue,messages,size,at"
STAGE_ADD = (
    "INSERT INTO stage(queue,sink,token,number,messages,size,at,crc,chunk) "
    "VALUES (?,?,?,?,?,?,?,?,?)"
)
#: These use stage_sink.
STAGED_ONE = "SELECT 1 FROM stage WHERE sink=? AND token=? AND number=?"
STAGED_CHUNK = "SELECT id,crc,chunk FROM stage WHERE sink=? AND token=? AND number=?"
STAGED_BY = f"SELECT {_STAGED} FROM stage WHERE sink=? ORDER BY sink,token,number"
STAGED_ALL = f"SELECT {_STAGED} FROM stage ORDER BY sink,token,number"
UNSTAGE = "DELETE FROM stage WHERE sink=?"
UNSTAGE_TOKEN = "DELETE FROM stage WHERE sink=? AND token=?"  # noqa: S105  # no password
UNSTAGE_ONE = "DELETE FROM stage WHERE id=?"
SINK_NEWEST = "SELECT queue,name,batch,messages,at,expires FROM sink WHERE queue=? AND name=?"
SINK_SET = (
    "INSERT INTO sink(queue,name,batch,messages,at,expires) VALUES (?,?,?,?,?,?) "
    "ON CONFLICT(queue,name) DO UPDATE SET batch=excluded.batch, messages=excluded.messages, "
    "at=excluded.at, expires=excluded.expires"
)
SINK_FORGET = "DELETE FROM sink WHERE expires<=?"


def is_run(seqs: list[int]) -> bool:
    """Whether seqs are several in ascending order without a gap."""
    return len(seqs) > 1 and seqs == list(range(seqs[0], seqs[0] + len(seqs)))


def in_chunks(values: list[int]) -> list[tuple[int, list[int]]]:
    """Cut values into (size, values padded to that size) for the IN statements."""
    if len(values) == 1:
        return [(1, values)]
    chunks = []
    largest = IN_SIZES[-1]
    for start in range(0, len(values), largest):
        part = values[start : start + largest]
        size = next(size for size in IN_SIZES if size >= len(part))
        if len(part) < size:
            part = part + [part[-1]] * (size - len(part))
        chunks.append((size, part))
    return chunks


def rungs(count: int) -> list[tuple[int, int]]:
    """Cut a number of rows into (start, size) along the ladder."""
    if count == 1:
        return [(0, 1)]
    cuts = []
    start = 0
    for size in LADDER:
        while count - start >= size:
            cuts.append((start, size))
            start += size
    return cuts
