"""Salvage after damage of any kind: only what was on damaged pages may be lost, and it is said."""

import random
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings, strategies as st

from embedq.storage import schema
from embedq.storage.frames import FRAME_BYTES, HEADER_BYTES, Log, read_log
from embedq.storage.pages import Pages
from embedq.storage.rescue import Rescue
from embedq.storage.salvage import Salvaged, salvage
from tests.storage.salvages import TABLES, Salvage, flip, may_come_back, page_of, same_tables
from tests.storage.sample_store import HOW, damage, sample

# Without shrinking: an example is short, and each run takes tenths of a second.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)

# ---------------------------------------------------------------------------- any damage

PAGES = {size: sample(size).pages.count for size in (512, 4096)}


def wrecks(size):
    page = st.integers(1, PAGES[size])
    return st.lists(st.tuples(page, st.sampled_from(HOW)), min_size=1, max_size=12)


def salvage_wreck(size, damages, seed, tool=salvage):
    base = sample(size)
    rng = random.Random(seed)
    data = base.data
    for page, how in damages:
        data = damage(data, size, page, how, rng)
    hit = {page for page, _ in damages}
    with tempfile.TemporaryDirectory() as folder:
        salvaged = Salvage(Path(folder), base, data, tool=tool)
        salvaged.examine(hit, back=may_come_back(base, hit))


@settings(phases=PHASES, max_examples=30)
@given(wrecks(4096), st.integers(0, 2**32))
def test_only_what_was_on_damaged_pages_is_lost_and_all_else_is_as_it_was(damages, seed):
    salvage_wreck(4096, damages, seed)


@settings(phases=PHASES, max_examples=15)
@given(wrecks(512), st.integers(0, 2**32))
def test_only_damaged_pages_are_lost_in_deep_trees_of_small_pages(damages, seed):
    salvage_wreck(512, damages, seed)


def by_sql_alone(source, target):
    """A planted bug: read as SQLite reads, up to the first damaged page."""
    with closing(sqlite3.connect(target, isolation_level=None)) as new:
        new.execute("PRAGMA synchronous=OFF")
        schema.migrate(new, 0)
        with closing(sqlite3.connect(f"file:{source}?immutable=1", uri=True)) as old:
            for table in TABLES:
                rows = old.execute(f"SELECT * FROM {table}")
                marks = ",".join("?" * len(rows.description))
                try:
                    for row in rows:
                        new.execute(f"INSERT INTO {table} VALUES ({marks})", row)
                except sqlite3.DatabaseError:
                    continue
    return Salvaged(target, whole=False)


def test_the_harness_sees_a_salvage_that_stops_at_the_first_damaged_page():
    middle = sample().pages.walk(page_of(sample(), "msg")).leaves[20].page
    with pytest.raises(AssertionError, match="lost, though"):
        salvage_wreck(4096, [(middle, "zeros")], 1, tool=by_sql_alone)


def test_the_harness_sees_a_salvage_that_believes_every_body(monkeypatch):
    monkeypatch.setattr(Rescue, "_is_sound", lambda self, row: True)
    leaves = sample().pages.walk(page_of(sample(), "msg")).leaves
    with pytest.raises(AssertionError, match="another content"):
        salvage_wreck(4096, [(leaf.page, "bits") for leaf in leaves[:10]], 1)


def test_the_harness_sees_a_salvage_that_brings_acked_messages_back(monkeypatch):
    monkeypatch.setattr(Pages, "free", lambda self: (set(), True))
    monkeypatch.setattr(Pages, "mapped_free", lambda self: (set(), set()))
    with pytest.raises(AssertionError, match="had been acked"):
        salvage_wreck(4096, [(page_of(sample(), "session"), "zeros")], 1)


# ---------------------------------------------------------------------------------- the log


def test_what_is_only_in_the_log_comes_over(tmp_path):
    salvaged = Salvage(tmp_path, sample(log=True))
    salvaged.examine(set())
    same_tables(salvaged, TABLES)
    assert salvaged.result.whole


def frames_of(base):
    log = read_log(base.wal)
    assert log is not None
    return log.frames


def frame_start(number):
    return HEADER_BYTES + number * (FRAME_BYTES + 4096)


def break_frame(wal, number, how, rng):
    at, size = frame_start(number), FRAME_BYTES + 4096
    content = {
        "zeros": bytes(size),
        "noise": rng.randbytes(size),
        "head": rng.randbytes(FRAME_BYTES) + wal[at + FRAME_BYTES : at + size],
        "bit": flip(wal[at : at + size], rng.randrange(size), 1 << rng.randrange(8)),
    }[how]
    return wal[:at] + content + wal[at + size :]


@settings(phases=PHASES, max_examples=20)
@given(
    st.lists(
        st.tuples(st.integers(0, 2**16), st.sampled_from(["zeros", "noise", "head", "bit"])),
        min_size=1,
        max_size=8,
    ),
    st.none() | st.integers(0, HEADER_BYTES - 1),
    st.integers(0, 2**32),
)
def test_of_a_damaged_log_only_the_damaged_frames_are_lost(places, header, seed):
    base = sample(log=True)
    frames = frames_of(base)
    rng = random.Random(seed)
    wal = base.wal
    hit = set()
    for place, how in places:
        number = place % len(frames)
        wal = break_frame(wal, number, how, rng)
        hit.add(frames[number].page)
    if header is not None:
        wal = flip(wal, header, rng.randrange(1, 256))
    with tempfile.TemporaryDirectory() as folder:
        Salvage(Path(folder), base, wal=wal).examine(hit, back=True)


def test_the_harness_sees_a_salvage_that_forgets_what_follows_a_damaged_frame(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(Log, "committed", Log.believed)
    monkeypatch.setattr(Log, "strays", property(lambda self: []))
    base = sample(log=True)
    wal = flip(base.wal, frame_start(3) + 2000)
    with pytest.raises(AssertionError, match="lost, though"):
        Salvage(tmp_path, base, wal=wal).examine({frames_of(base)[3].page}, back=True)


def test_a_log_without_its_database_file_of_pages_is_read_with_the_page_size_it_names(tmp_path):
    base = sample(log=True)
    salvaged = Salvage(tmp_path, base, damage(base.data, 4096, 1, "zeros", random.Random(1)))
    salvaged.examine({1})
    same_tables(salvaged, TABLES)
