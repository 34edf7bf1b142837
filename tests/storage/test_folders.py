"""Names of files: which file they lead to, and that syncing them fails only where it matters.

Knows: folders, links, an fsync that answers what the test wants.
Does not know: databases.
"""

import errno
import os
from pathlib import Path

import pytest

from embedq.storage import folders


@pytest.fixture
def opened(tmp_path):
    path = tmp_path / "file"
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    yield path, fd
    os.close(fd)


def test_a_name_leads_to_its_file_until_another_takes_it(opened):
    path, fd = opened
    assert folders.leads_to(path, fd)
    other = path.with_name("other")
    other.write_text("another file")
    other.replace(path)
    assert not folders.leads_to(path, fd)
    path.unlink()
    assert not folders.leads_to(path, fd)


def test_a_link_does_not_count_as_the_file(opened):
    path, fd = opened
    link = path.with_name("link")
    link.symlink_to(path)
    assert not folders.leads_to(link, fd)


@pytest.mark.parametrize(
    ("number", "passes"), [(errno.EINVAL, True), (errno.EIO, False), (errno.ENOSPC, False)]
)
def test_a_folder_sync_may_be_missing_but_not_fail(tmp_path, monkeypatch, number, passes):
    def fsync(fd):
        raise OSError(number, os.strerror(number))

    before = len(list(Path("/dev/fd").iterdir()))
    monkeypatch.setattr(os, "fsync", fsync)
    if passes:
        folders.sync_folder(tmp_path)
    else:
        with pytest.raises(OSError, match=os.strerror(number)):
            folders.sync_folder(tmp_path)
    assert len(list(Path("/dev/fd").iterdir())) == before


def test_syncs_reach_the_file_and_its_folder(opened, monkeypatch):
    path, _ = opened
    synced = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd).st_ino))
    folders.sync_file(path)
    folders.sync_folder(path.parent)
    assert synced == [path.stat().st_ino, path.parent.stat().st_ino]


def test_a_folder_sync_wants_a_folder(opened):
    with pytest.raises(NotADirectoryError):
        folders.sync_folder(opened[0])
