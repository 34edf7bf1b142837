"""Flipped bytes anywhere in the files: never a wrong body, never an error without a name.

Knows: what was put, and which errors damage may be called.
Does not know: where in a file what is stored.
"""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from typing import Any

import pytest

from embedq.broker import handover
from embedq.broker.engine import Engine
from embedq.broker.host import open_engine
from embedq.clock import VirtualClock
from embedq.errors import EmbedqError
from embedq.lifecycle import Reason
from embedq.message import draft
from embedq.storage.salvage import salvage

pytestmark = pytest.mark.reliability

#: What damage may be called. Anything else, an error of Python's above all, is a defect.
NAMES = {"store_corrupt", "not_an_embedq_file", "schema_too_new", "store_failed", "storage"}


def bodies(count: int) -> list[bytes]:
    """Bodies of all sizes, each different: on one page with others, and on pages of their own."""
    rng = random.Random(1)
    return [b"%d:" % n + rng.randbytes(rng.choice((5, 40, 300, 9000))) for n in range(count)]


def make(path: Any, *, crashed: bool = False) -> dict[int, bytes]:
    """Fill a database with messages in every state; return the bodies by seq."""
    engine = open_engine(path, clock=VirtualClock(), durability="normal", upkeep=False)
    queue = engine.queue("orders")
    group = engine.group(queue)
    engine.group(queue, "audit")
    put: dict[int, bytes] = {}
    plain, special = bodies(90), bodies(150)[90:]
    put.update(zip(engine.put_many(queue, plain), plain, strict=True))
    drafts = [
        draft(
            body,
            headers={"n": str(n)} if n % 2 else None,
            priority=n % 3,
            ordering_key=f"k{n % 5}" if n % 4 == 0 else None,
        )
        for n, body in enumerate(special)
    ]
    put.update(
        {r.seq: d.body for r, d in zip(engine.put_drafts(queue, drafts), drafts, strict=True)}
    )
    leases = engine.claim(group, 20)
    engine.ack(*leases[:5])
    for lease in leases[5:10]:
        engine.fail(lease)
    for lease in leases[10:15]:
        engine.reject(lease, "no")
    if crashed:
        for suffix in ("", "-wal"):
            shutil.copyfile(f"{path}{suffix}", f"{path}.crashed{suffix}")
    engine.close()
    if crashed:
        for suffix in ("", "-wal"):
            shutil.move(f"{path}.crashed{suffix}", f"{path}{suffix}")
    return put


def flip(path: Any, rng: random.Random) -> None:
    """Change some bits of some bytes, close to each other."""
    data = bytearray(path.read_bytes())
    start = rng.randrange(len(data))
    for place in range(start, min(len(data), start + rng.choice((1, 1, 4, 64)))):
        data[place] ^= rng.randrange(1, 256)
    path.write_bytes(data)


def outcome(path: Any, put: dict[int, bytes], came: set[int] | None = None) -> str:
    """Serve a damaged file; AssertionError if a body is wrong. Returns what happened."""
    try:
        engine = open_engine(path, clock=VirtualClock(), durability="normal", upkeep=False)
    except EmbedqError as error:
        return named(error)
    try:
        return served(engine, put, set() if came is None else came)
    except EmbedqError as error:
        return named(error)
    finally:
        try:
            engine.close()
        except EmbedqError as error:
            named(error)


def served(engine: Engine, put: dict[int, bytes], came: set[int]) -> str:
    queue = engine.queue("orders")
    group = engine.group(queue)
    for _ in range(1000):
        leases = engine.claim(group, 7)
        if not leases:
            break
        for lease in leases:
            assert lease.message.body == put[lease.seq], f"message {lease.seq} is wrong"
            came.add(lease.seq)
        engine.ack(*leases)
    dead = engine.store.dead(queue.id, 0, 1000)
    corrupt = [letter for letter in dead if letter.reason == Reason.CORRUPT]
    engine.upkeep.round()
    return "corrupt letters" if corrupt else "served"


def named(error: EmbedqError) -> str:
    """Return the code of an error that damage may be called."""
    assert error.code in NAMES
    assert error.hint
    return error.code


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    path = tmp_path_factory.mktemp("damage") / "q.db"
    return path, make(path)


@pytest.fixture(scope="module")
def crashed(tmp_path_factory):
    path = tmp_path_factory.mktemp("damage") / "crashed.db"
    return path, make(path, crashed=True)


@pytest.mark.parametrize("part", range(4))
def test_a_byte_flipped_anywhere_in_the_database(original, tmp_path, part):
    source, put = original
    happened: Counter[str] = Counter()
    for number in range(30):
        rng = random.Random(1000 * part + number)
        path = tmp_path / f"{number}.db"
        shutil.copyfile(source, path)
        flip(path, rng)
        try:
            happened[outcome(path, put)] += 1
        except BaseException as error:
            error.add_note(f"seed {1000 * part + number}")
            raise
    assert happened["served"] > 0
    assert happened["corrupt letters"] > 0


@pytest.mark.parametrize("suffix", ["", "-wal"])
def test_a_byte_flipped_anywhere_after_a_crash(crashed, tmp_path, suffix):
    source, put = crashed
    happened: Counter[str] = Counter()
    for number in range(30):
        path = tmp_path / f"{number}.db"
        for part in ("", "-wal"):
            shutil.copyfile(f"{source}{part}", f"{path}{part}")
        flip(path.with_name(path.name + suffix), random.Random(number))
        try:
            happened[outcome(path, put)] += 1
        except BaseException as error:
            error.add_note(f"seed {number}")
            raise
    assert happened["served"] > 0


def test_a_destroyed_page_is_named_and_what_is_not_on_it_is_saved(original, tmp_path):
    source, put = original
    data = source.read_bytes()
    whole: set[int] = set()
    shutil.copyfile(source, tmp_path / "whole.db")
    assert outcome(tmp_path / "whole.db", put, whole) == "served"
    happened: Counter[str] = Counter()
    for page in range(4096, len(data), 7 * 4096):
        damaged = tmp_path / f"{page}.db"
        damaged.write_bytes(data[:page] + bytes(4096) + data[page + 4096 :])
        saved = tmp_path / f"{page}.saved.db"
        salvage(damaged, saved)
        happened[outcome(damaged, put)] += 1
        came: set[int] = set()
        assert outcome(saved, put, came) in {"served", "corrupt letters"}
        assert len(whole - came) < 40, "more is lost than fits on a page"
    assert happened["store_corrupt"] > 0


#: Values that a flipped bit in the header of a record can make of another one.
KINDS = ("X'00ff'", "'text'", "-1", "200", "1e300", "9000000000000000000")
COLUMNS = {
    "msg": "put_at kind crc priority due expires okey max_attempts headers body",
    "delivery": "epoch counter crashes session started ended outcome due error",
    "dead": "died reason detail moved_by attempts put_at kind crc priority headers body",
}


@pytest.mark.parametrize("value", KINDS)
@pytest.mark.parametrize("table", COLUMNS)
def test_a_value_of_another_kind_does_not_get_into_the_way_of_others(
    original, tmp_path, table, value
):
    source, put = original
    for column in COLUMNS[table].split():
        path = tmp_path / f"{column}.db"
        shutil.copyfile(source, path)
        with closing(sqlite3.connect(path)) as database, database:
            damaged = database.execute(
                f"UPDATE {table} SET {column}={value} WHERE rowid IN (25,75) RETURNING 1"
                if table != "delivery"
                else f"UPDATE {table} SET {column}={value} WHERE seq IN (6,7) RETURNING 1"
            ).fetchall()
        try:
            happened = outcome(path, put)
        except BaseException as error:
            error.add_note(f"{table}.{column}={value}, {len(damaged)} rows")
            raise
        assert happened in {"served", "corrupt letters", "store_corrupt"}, column


def test_the_harness_notices_a_body_that_is_not_checked(original, tmp_path, monkeypatch):
    unchecked = handover.check_messages

    def check_nothing(engine, claim):
        good, bad = unchecked(engine, claim)
        return good + [lease for lease, message in bad if message is not None], []

    monkeypatch.setattr(handover, "check_messages", check_nothing)
    source, put = original

    def all_are_right() -> None:
        for number in range(30):
            path = tmp_path / f"{number}.db"
            shutil.copyfile(source, path)
            flip(path, random.Random(number))
            outcome(path, put)

    with pytest.raises(AssertionError):
        all_are_right()
