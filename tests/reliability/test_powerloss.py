"""The power fails: what a sync has confirmed is there whatever the disk did with the rest."""

import os
import random

import pytest

from tests.reliability.images import Disk, check
from tests.reliability.invariants_events import Opened
from tests.reliability.killing import memory_folder
from tests.reliability.nth import needs_strace
from tests.reliability.recording import Recording, Said, Sync, Truncate, Unlink, Write, record
from tests.reliability.worker import Job

pytestmark = pytest.mark.reliability

#: Programs to record. Small bounds make for many checkpoints, and a log that is begun again.
PROGRAMS: dict[str, dict[str, object]] = {
    "script": {"kind": "script"},
    "small": {"kind": "mix", "threads": 3, "steps": 150, "small": True},
    "alone": {"kind": "mix", "threads": 1, "steps": 150, "small": True},
    "large": {"kind": "mix", "threads": 4, "steps": 150},
    "crowd": {"kind": "mix", "threads": 4, "steps": 150, "small": True, "crowd": True},
    "busy": {"kind": "mix", "threads": 8, "steps": 200, "small": True},
}
#: 720 in all, with EMBEDQ_TEST_LONG=1 2,100.
IMAGES = 350 if os.environ.get("EMBEDQ_TEST_LONG") else 120


@pytest.fixture
def folder(tmp_path):
    with memory_folder(tmp_path) as folder:
        yield folder


def recorded(tmp_path, name, **options):
    place = tmp_path / "recorded"
    place.mkdir(mode=0o700, parents=True)
    job = Job(path=str(place / "q.db"), seed=name, **PROGRAMS[name], **options)  # type: ignore[arg-type]
    return record(job, tmp_path / "trace")


@needs_strace
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_power_loss_takes_nothing_that_was_confirmed(tmp_path, folder, name):
    recording = recorded(tmp_path, name)
    report = check(recording, IMAGES, folder, seed=name)
    assert report.problems == []
    assert report.images > IMAGES * 0.8
    assert report.deep


@needs_strace
@pytest.mark.parametrize("name", ["small", "large"])
def test_without_syncs_a_power_loss_takes_the_end_since_the_last_checkpoint(
    tmp_path, folder, name
):
    # Rarely the machine pauses so that checkpoints leave hardly an end that can be lost.
    for number in range(3):
        recording = recorded(tmp_path / str(number), name, durability="normal")
        report = check(recording, IMAGES // 2, folder, seed=name, window=True)
        assert report.problems == []
        strict = check(recording, 60, folder, seed=name)
        assert not strict.unreadable
        if strict.bad:
            return
    raise AssertionError("the window has hidden nothing, so it has shown nothing")


@needs_strace
def test_a_store_that_never_syncs_is_noticed(tmp_path, folder):
    recording = recorded(tmp_path, "small", planted="sync-off")
    report = check(recording, 60, folder, seed="off")
    assert report.bad > 20
    assert report.unreadable


# ------------------------------------------------------------------------ the simulated disk


def disk_of(*steps):
    return Disk(Recording(list(steps), "/d/q.db"))


def images_of(disk, number=200):
    rng = random.Random("images")
    return [disk.image(rng) for _ in range(number)]


def test_what_was_synced_is_in_every_image():
    disk = disk_of(Write(1, 1, "/d/q.db", 0, b"a" * 1024), Sync(2, 2, "/d/q.db"))
    disk.advance(2)
    assert {image["/d/q.db"] for image in images_of(disk)} == {b"a" * 1024}


def test_what_was_not_synced_may_be_there_in_whole_in_part_or_not_at_all():
    disk = disk_of(Write(1, 1, "/d/q.db", 0, b"a" * 1024))
    disk.advance(1)
    found = {image["/d/q.db"] for image in images_of(disk)}
    half = b"a" * 512
    assert found == {b"", half, bytes(512) + half, half + half}


def test_a_later_write_may_be_kept_without_an_earlier_one():
    disk = disk_of(
        Write(1, 1, "/d/q.db", 0, b"a"),
        Write(2, 2, "/d/q.db-wal", 0, b"b"),
    )
    disk.advance(2)
    found = {(image["/d/q.db"], image["/d/q.db-wal"]) for image in images_of(disk)}
    assert found == {(b"", b""), (b"a", b""), (b"", b"b"), (b"a", b"b")}


def test_a_sync_that_is_not_over_promises_nothing():
    disk = disk_of(Write(1, 1, "/d/q.db", 0, b"a"), Sync(2, 9, "/d/q.db"))
    disk.advance(8)
    assert b"" in {image["/d/q.db"] for image in images_of(disk)}
    disk.advance(9)
    assert {image["/d/q.db"] for image in images_of(disk)} == {b"a"}


def test_a_write_during_a_sync_is_not_covered_by_it():
    disk = disk_of(Sync(1, 3, "/d/q.db"), Write(2, 2, "/d/q.db", 0, b"a"))
    disk.advance(3)
    assert b"" in {image["/d/q.db"] for image in images_of(disk)}


def test_a_removed_file_may_be_back_until_its_folder_is_synced():
    disk = disk_of(
        Write(1, 1, "/d/q.db-wal", 0, b"a"),
        Sync(2, 2, "/d/q.db-wal"),
        Unlink(3, 3, "/d/q.db-wal"),
        Sync(4, 4, "/d"),
    )
    disk.advance(3)
    assert {image.get("/d/q.db-wal") for image in images_of(disk)} == {b"a", None}
    disk.advance(4)
    assert {image.get("/d/q.db-wal") for image in images_of(disk)} == {None}


def test_a_file_may_be_longer_than_it_was_cut_to():
    disk = disk_of(
        Write(1, 1, "/d/q.db", 0, b"abc"), Sync(2, 2, "/d/q.db"), Truncate(3, 3, "/d/q.db", 1)
    )
    disk.advance(3)
    assert {image["/d/q.db"] for image in images_of(disk)} == {b"abc", b"a"}


def test_events_are_no_part_of_the_disk():
    disk = disk_of(Said(1, 1, Opened(1)))
    disk.advance(1)
    assert disk.image(random.Random(1)) == {}
