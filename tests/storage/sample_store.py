"""A database with everything in it, what is in it, and ways to damage it: for several tests."""

import random
import sqlite3
import tempfile
import zlib
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from embedq.policy import QueuePolicy
from embedq.storage import schema
from embedq.storage.connection import open_writer
from embedq.storage.frames import read_log
from embedq.storage.pages import Pages
from embedq.storage.records import record
from embedq.storage.wreck import roots_of

KEY = bytes(range(16))
RESERVED = 20_000


@dataclass
class Sample:
    """A sound database as bytes; `rows` by table, and the pages each numbered row lies on.

    `ever`: {seq: (headers, body)} of every message that was ever put, also of those acked since.
    """

    page_size: int
    data: bytes
    wal: bytes = b""
    ever: dict[int, tuple] = field(default_factory=dict)
    rows: dict[str, list[tuple]] = field(default_factory=dict)
    places: dict[str, dict[int, set[int]]] = field(default_factory=dict)
    roots: dict[str, int] = field(default_factory=dict)

    @property
    def pages(self):
        return Pages(self.data, self.page_size)

    @property
    def whole_pages(self):
        """The pages of the database with its log applied."""
        log = read_log(self.wal)
        if log is None:
            return self.pages
        size = self.page_size
        data = bytearray(self.data.ljust(log.database_pages * size, b"\0"))
        for page, at in log.pages.items():
            data[(page - 1) * size : page * size] = self.wal[at : at + size]
        return Pages(bytes(data[: log.database_pages * size]), size)

    def messages(self):
        return {row[0]: row for row in self.rows["msg"]}

    def write(self, path: Path, data: bytes | None = None, wal: bytes | None = None) -> Path:
        path.write_bytes(self.data if data is None else data)
        log = self.wal if wal is None else wal
        if log:
            path.with_name(f"{path.name}-wal").write_bytes(log)
        return path


def put(connection, rng, seq, size=None):
    """Insert a message of random shape, with a body that no other message has; return it."""
    wide = rng.random() < 0.3
    if size is None:
        size = rng.choice([0, 5, 100, 300, 300, 300, 2_000, 9_000] if seq % 6 == 0 else [20, 300])
    body = f"{seq}:".encode() + rng.randbytes(size)
    headers = rng.randbytes(rng.choice([5, 60])) if wide else None
    row = (
        seq,
        rng.choice([1, 1, 2, 3]),
        1_700_000_000_000 + seq,
        rng.choice([0, 0, 1, 2]),
        zlib.crc32(body, zlib.crc32(headers or b"")),
        rng.choice([1, 5, 9]) if wide and rng.random() < 0.5 else 0,
        1_700_000_100_000 + seq % 50 if wide and rng.random() < 0.3 else None,
        1_700_000_900_000 if wide and rng.random() < 0.3 else None,
        f"key-{seq % 11}-ü" if wide and rng.random() < 0.5 else None,
        rng.choice([None, 0, 7]) if wide else None,
        headers,
        body,
    )
    connection.execute(f"INSERT INTO msg VALUES ({','.join('?' * 12)})", row)
    return row[10:]


def deliver(connection, rng, seq, group, retained):
    """Record deliveries of a message: closed ones, and perhaps an open one."""
    attempts = rng.choice([1, 1, 2])
    for attempt in range(1, attempts + 1):
        is_open = attempt == attempts and rng.random() < 0.5
        outcome = None if is_open else rng.choice([1, 2, 3])
        values = (seq, group, attempt, 3, seq, 0, 1, 5, None if is_open else 9, outcome)
        due = 1_700_000_000_500 if outcome == 1 and attempt == attempts else None
        closed = (3 << 40) + seq * 4 + attempt if retained and not is_open else None
        error = rng.randbytes(rng.choice([30, 1500])) if outcome == 1 else None
        connection.execute(
            f"INSERT INTO delivery VALUES ({','.join('?' * 13)})", (*values, due, closed, error)
        )


def bury(connection, rng, seq):
    body = f"dead {seq}:".encode() + rng.randbytes(400)
    connection.execute(
        "INSERT INTO dead(seq,grp,queue,died,reason,detail,moved_by,attempts,put_at,kind,crc,"
        "priority,body) VALUES (?,1,1,7,'rejected','why','',X'61',5,0,?,0,?)",
        (seq, zlib.crc32(body), body),
    )


def fill(connection, rng, messages):
    """Put queues, groups, messages, deliveries, dead letters, keys; ack and vacuum some."""
    retained = QueuePolicy(retain_ms=1000).encode().decode()
    plain = QueuePolicy().encode().decode()
    connection.execute("BEGIN")
    connection.executemany(
        "INSERT INTO queue(id,name,policy,retained,stored,dead,last) VALUES (?,?,?,?,0,0,NULL)",
        [(1, "orders", plain, 0), (2, "größe", plain, 0), (3, "kept", retained, 1)],
    )
    connection.executemany(
        "INSERT INTO consumer_group(id,queue,name,floor) VALUES (?,?,?,0)",
        [(1, 1, "default"), (2, 1, "audit"), (3, 3, "default")],
    )
    connection.executemany(
        "INSERT INTO meta VALUES (?,?)",
        [("store_key", KEY), ("epoch", 3), ("clean", 0), ("seq_reserved", RESERVED)],
    )
    connection.execute("INSERT INTO session VALUES (1,'worker-1',3,5,x'01',x'90')")
    ever = {}
    for seq in range(1, messages + 1):
        ever[seq] = put(connection, rng, seq)
        if seq % 7 == 0:
            connection.execute("INSERT INTO dedup VALUES (1,?,?,?)", (f"d-{seq}", seq, 9**9))
    for seq in range(1, messages + 1, 9):
        queue = connection.execute("SELECT queue FROM msg WHERE seq=?", (seq,)).fetchone()[0]
        if queue != 2:
            deliver(connection, rng, seq, queue, queue == 3)
    for seq in range(5, messages, 25):
        bury(connection, rng, messages + seq)
    # Acked: single ones, and enough together that whole pages become free.
    gone = [
        seq for seq in range(1, messages) if seq % 13 == 0 or messages // 3 < seq < messages // 2
    ]
    for seq in gone:
        connection.execute("DELETE FROM msg WHERE seq=?", (seq,))
        connection.execute("DELETE FROM delivery WHERE seq=?", (seq,))
    connection.execute("COMMIT")
    connection.execute("PRAGMA incremental_vacuum(3)").fetchall()
    return ever


def contents(path):
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as connection:
        return contents_of(connection)


def contents_of(connection):
    return {
        table: connection.execute(f"SELECT * FROM {table}").fetchall() for table in schema.TABLES
    }


def build(folder: Path, *, page_size=4096, messages=1500, seed=1, log=False) -> Sample:
    """Make a sample in a folder. With `log` the last part of the work is only in the WAL."""
    path = folder / f"sample-{page_size}-{messages}-{seed}-{log}.db"
    rng = random.Random(seed)
    connection = open_writer(str(path), durability="normal", page_size=page_size, busy_timeout_s=1)
    with closing(connection):
        schema.migrate(connection, 0)
        ever = fill(connection, rng, messages)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        wal = b""
        if log:
            data = path.read_bytes()
            ever |= change_in_log(connection, rng, messages)
            wal = path.with_name(f"{path.name}-wal").read_bytes()
        rows = contents_of(connection)
    if not log:
        data = path.read_bytes()
    sample = Sample(page_size, data, wal, ever, rows)
    whole = sample.whole_pages
    sample.roots = roots_of(whole)
    for table in ("msg", "dead"):
        sample.places[table] = places_of(whole, sample.roots[table])
    return sample


@cache
def sample(page_size=4096, *, log=False) -> Sample:
    """Return a sample, made once in each test process."""
    with tempfile.TemporaryDirectory() as folder:
        return build(Path(folder), page_size=page_size, log=log)


def change_in_log(connection, rng, messages):
    """Put and ack in many transactions, which stay in the log."""
    ever = {}
    for seq in range(messages * 2, messages * 2 + 120):
        ever[seq] = put(connection, rng, seq, size=200)
        if seq % 3 == 0:
            connection.execute("DELETE FROM msg WHERE seq=?", (seq - messages * 2 + 20,))
            connection.execute("DELETE FROM delivery WHERE seq=?", (seq - messages * 2 + 20,))
    return ever


def places_of(pages, root):
    """Return {row number: the pages that hold its bytes}."""
    places = {}
    for leaf in pages.walk(root).leaves:
        for cell in pages.cells(leaf.page)[0]:
            assert record(cell.payload)
            places[cell.rowid] = set(cell.pages)
    return places


def damage(data: bytes, page_size: int, page: int, how: str, rng: random.Random) -> bytes:
    """Return a copy of a file in which one page is not what it was."""
    start = (page - 1) * page_size
    content = bytearray(data[start : start + page_size])
    if how == "zeros":
        content = bytearray(len(content))
    elif how == "noise":
        content = bytearray(rng.randbytes(len(content)))
    elif how == "half":
        content[len(content) // 2 :] = rng.randbytes(len(content) - len(content) // 2)
    elif how == "head":
        content[:16] = rng.randbytes(16)
    elif how == "bits":
        for _ in range(rng.randint(1, 8)):
            at = rng.randrange(len(content))
            content[at] ^= 1 << rng.randrange(8)
    elif how == "shift":
        content = content[4:] + content[:4]
    else:
        raise ValueError(how)
    return data[:start] + bytes(content) + data[start + page_size :]


HOW = ("zeros", "noise", "half", "head", "bits", "shift")
