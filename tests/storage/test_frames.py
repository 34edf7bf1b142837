"""A log is read as SQLite reads it, and further where SQLite gives up."""

import random
import sqlite3
import struct
from contextlib import closing

import pytest

from embedq.storage import schema
from embedq.storage.connection import open_writer
from embedq.storage.frames import FRAME_BYTES, HEADER_BYTES, checksum, read_log
from tests.storage.sample_store import contents_of, sample

FRAME = FRAME_BYTES + 4096


def log_of(data, size=0):
    log = read_log(data, size)
    assert log is not None
    return log


def short(frames=60):
    """Return the beginning of the log of the sample, up to the end of a transaction."""
    log = log_of(sample(log=True).wal[: start(frames)])
    return sample(log=True).wal[: start(log.committed)]


def flip(data, at, bits=1):
    return data[:at] + bytes([data[at] ^ bits]) + data[at + 1 :]


def start(frame):
    return HEADER_BYTES + frame * FRAME


def seen_by_sqlite(tmp_path, wal):
    path = sample(log=True).write(tmp_path / "shop.db", wal=wal)
    with closing(sqlite3.connect(path)) as connection:
        return contents_of(connection)


def test_a_sound_log_holds_what_sqlite_finds_in_it(tmp_path):
    base = sample(log=True)
    log = log_of(base.wal)
    assert log.sound_header
    assert log.page_size == 4096
    assert log.committed == log.believed == len(log.frames) > 100
    assert log.damaged == 0
    assert log.strays == []
    assert seen_by_sqlite(tmp_path, base.wal) == base.rows


@pytest.mark.parametrize("frame", [0, 7, 40])
@pytest.mark.parametrize("offset", [0, 5, 9, 17, 24, 2000, 4119])
def test_sqlite_stops_at_a_damaged_frame_and_we_do_not(tmp_path, frame, offset):
    whole = short()
    wal = flip(whole, start(frame) + offset)
    sound, log = log_of(whole), log_of(wal)
    assert log.committed == sound.committed
    assert log.damaged == 1
    assert [n for n, one in enumerate(log.frames) if not one.good] == [frame]
    assert log.believed == max(
        (n for n in range(frame + 1) if n and sound.frames[n - 1].commit), default=0
    )
    # SQLite believes exactly as much as we say it does.
    cut = seen_by_sqlite(tmp_path, whole[: start(log.believed)] if log.believed else b"")
    assert seen_by_sqlite(tmp_path, wal) == cut


def test_of_a_log_with_a_damaged_header_every_frame_is_found():
    wal = short(20)
    count = len(log_of(wal).frames)
    for at in range(HEADER_BYTES):
        log = log_of(flip(wal, at, 0x80), 4096)
        assert not log.sound_header
        assert log.believed == 0
        assert log.committed == count
        assert log.damaged <= (at >= 24)
    assert read_log(flip(wal, 0)) is None


def test_a_frame_behind_a_damaged_head_is_believed_for_its_salts():
    wal = short()
    destroyed = wal[: start(4)] + b"\xaa" * FRAME_BYTES + wal[start(4) + FRAME_BYTES :]
    log = log_of(destroyed)
    assert [n for n, frame in enumerate(log.frames) if not frame.good] == [4]


def test_zeroed_frames_do_not_pass_for_the_newest_when_the_header_is_damaged():
    wal = short()
    count = len(log_of(wal).frames)
    for lost in (1, 2):
        holes = bytes(lost * FRAME)
        damaged = flip(wal[: start(0)] + holes + wal[start(lost) :], 17, 0xFF)
        log = log_of(damaged, 4096)
        assert log.committed == count
        assert log.damaged == lost


def test_frames_from_before_the_log_was_begun_again_do_not_count(tmp_path):
    path = tmp_path / "shop.db"
    connection = open_writer(str(path), durability="normal", page_size=4096, busy_timeout_s=1)
    with closing(connection):
        schema.migrate(connection, 0)
        for n in range(30):
            connection.execute("INSERT INTO meta VALUES (?,?)", (str(n), "x" * 1000))
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        connection.execute("INSERT INTO meta VALUES ('new','y')")
        wal = path.with_name("shop.db-wal").read_bytes()
    whole = (len(wal) - HEADER_BYTES) // FRAME
    log = log_of(wal)
    assert 0 < len(log.frames) < whole
    assert log.committed == len(log.frames)
    damaged = log_of(flip(wal, start(len(log.frames) - 1) + 900))
    assert damaged.committed == len(log.frames) - 1 or len(log.frames) == 1
    assert damaged.strays == [start(len(log.frames) - 1) + FRAME_BYTES]


def test_a_transaction_without_its_end_does_not_count():
    base = sample(log=True)
    frames = log_of(base.wal).frames
    last = max(n for n, frame in enumerate(frames[:-1]) if frame.commit)
    cut = log_of(base.wal[: start(last) + FRAME + FRAME - 1])
    assert cut.committed == last + 1
    assert cut.strays == []


def test_a_damaged_frame_that_a_later_one_replaces_is_no_stray():
    base = sample(log=True)
    frames = log_of(base.wal).frames
    last = {frame.page: n for n, frame in enumerate(frames)}
    replaced = next(n for n, frame in enumerate(frames) if last[frame.page] > n)
    kept = next(n for n, frame in enumerate(frames) if last[frame.page] == n)
    assert log_of(flip(base.wal, start(replaced) + 3000)).strays == []
    assert log_of(flip(base.wal, start(kept) + 3000)).strays == [start(kept) + FRAME_BYTES]


def test_a_log_with_checksums_in_the_other_byte_order_is_read_as_sqlite_reads_it(tmp_path):
    base = sample(log=True)
    wal = bytearray(base.wal)
    magic = struct.unpack_from(">I", wal)[0] ^ 1
    struct.pack_into(">I", wal, 0, magic)
    order = "big" if magic & 1 else "little"
    seed = checksum(bytes(wal[:24]), (0, 0), order)
    struct.pack_into(">II", wal, 24, *seed)
    for at in range(HEADER_BYTES, len(wal), FRAME):
        seed = checksum(bytes(wal[at : at + 8]), seed, order)
        seed = checksum(bytes(wal[at + FRAME_BYTES : at + FRAME]), seed, order)
        struct.pack_into(">II", wal, at + 16, *seed)
    assert log_of(bytes(wal)).believed == len(log_of(base.wal).frames)
    assert seen_by_sqlite(tmp_path, bytes(wal)) == base.rows
    headless = log_of(flip(bytes(wal), 30), 4096)
    assert headless.committed == len(headless.frames)


@pytest.mark.parametrize("seed", range(20))
def test_no_bytes_make_the_reader_fail(seed):
    rng = random.Random(seed)
    base = sample(log=True).wal[: start(30)]
    content = bytearray(base[: rng.randrange(len(base))])
    for _ in range(rng.randrange(50)):
        if content:
            content[rng.randrange(len(content))] = rng.randrange(256)
    log = read_log(bytes(content), rng.choice([0, 4096]))
    if log is not None:
        assert log.committed <= len(log.frames)
    assert read_log(rng.randbytes(rng.randrange(56)), 512) is None


def test_a_log_too_short_for_a_frame_is_no_log():
    assert read_log(b"") is None
    assert read_log(sample(log=True).wal[: HEADER_BYTES + 10]) is None
