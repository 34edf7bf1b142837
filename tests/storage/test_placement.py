"""Where a database may be, and how its file is made and guarded.

Knows: modes, links, and a rival process that tries to write.
Does not know: file systems (a file of their own), ownership, space, what is in a database.
"""

import errno
import os
import shutil
import socket
import sqlite3
import stat
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from embedq.errors import (
    InsecurePermissions,
    InvalidOption,
    StoreFailed,
    StoreFull,
    UnsupportedPlatform,
)
from embedq.storage.placement import (
    check_platform,
    check_still_there,
    prepare,
)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@contextmanager
def umask(mask):
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


# ------------------------------------------------------------------------------- the file


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o777])
def test_a_new_database_is_private_whatever_the_umask(tmp_path, mask):
    with umask(mask):
        placed = prepare(tmp_path / "shop.db")
    assert mode(placed.path) == 0o600
    assert placed.created


def test_a_new_database_is_private_from_its_first_moment(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fchmod", lambda *_: None)
    with umask(0):
        assert mode(prepare(tmp_path / "shop.db").path) == 0o600


def test_wal_and_shm_inherit_the_private_mode(tmp_path):
    with umask(0):
        placed = prepare(tmp_path / "shop.db")
        connection = sqlite3.connect(placed.path)
        connection.execute("PRAGMA journal_mode=wal")
        connection.execute("CREATE TABLE t (a)")
    assert {mode(path) for path in tmp_path.iterdir()} == {0o600}
    assert len(list(tmp_path.iterdir())) == 3
    connection.close()


def test_an_existing_database_keeps_its_identity_and_content(tmp_path):
    first = prepare(tmp_path / "shop.db")
    first.path.write_bytes(b"content")
    again = prepare(str(tmp_path / "shop.db"))
    assert (again.device, again.inode) == (first.device, first.inode)
    assert not again.created
    assert again.path.read_bytes() == b"content"


def test_neighbours_stand_beside_the_database(tmp_path):
    placed = prepare(tmp_path / "shop.db")
    assert placed.lock_path == placed.path.parent / "shop.db.lock"
    assert placed.ballast_path == placed.path.parent / "shop.db.ballast"
    assert placed.words_path == placed.path.parent / "shop.db.fatal"


def test_a_relative_path_becomes_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    placed = prepare("shop.db")
    monkeypatch.chdir("/")
    assert placed.path.is_absolute()
    check_still_there(placed)


@pytest.mark.parametrize("exists", [True, False])
def test_a_symbolic_link_leads_to_the_real_file(tmp_path, exists):
    (tmp_path / "real").mkdir()
    target = tmp_path / "real" / "shop.db"
    if exists:
        prepare(target)
    (tmp_path / "link.db").symlink_to(target)
    placed = prepare(tmp_path / "link.db")
    assert placed.path == target.resolve()
    assert placed.lock_path.parent == target.parent.resolve()
    assert placed.created is not exists


def test_two_processes_may_create_the_file_at_the_same_moment(tmp_path, monkeypatch):
    real_open = os.open

    def slow(path, *args):
        # The other process, between our look and our open.
        os.close(real_open(path, os.O_CREAT | os.O_WRONLY, 0o600))
        return real_open(path, *args)

    monkeypatch.setattr(os, "open", slow)
    assert not prepare(tmp_path / "shop.db").created


# --------------------------------------------------------------------------- refused paths


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("", "empty"),
        (":memory:", "needs a file"),
        ("file:shop.db?mode=ro", "URI"),
        ("var/", "folder"),
        ("shop\0.db", "NUL"),
        (7, "not a path"),
        ("missing/shop.db", "does not exist"),
        ("plain/shop.db", "not a folder"),
        ("folder", "a folder"),
        (".", "a folder"),
        ("fifo", "not a regular file"),
        ("socket", "not a regular file"),
        ("/dev/null", "not a regular file"),
        ("loop", "not a regular file"),
        ("n" * 248, "too long"),
        ("d/" * 300 + "shop.db", "too long"),
        ("shop.db-wal", "neighbour"),
        ("shop.db.lock", "neighbour"),
    ],
)
def test_a_path_that_cannot_be_a_database_is_refused_with_a_reason(
    tmp_path, monkeypatch, path, words
):
    monkeypatch.chdir(tmp_path)
    Path("plain").touch()
    Path("folder").mkdir()
    os.mkfifo("fifo")
    Path("loop").symlink_to("loop")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        before = set(tmp_path.iterdir())
        with pytest.raises(InvalidOption, match=words) as caught:
            prepare(path)
    assert caught.value.hint
    assert caught.value.details["argument"] == "path"
    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize(("length", "fits"), [(504, True), (505, False)])
def test_the_longest_path_is_the_longest_that_sqlite_opens(tmp_path, length, fits):
    folder = tmp_path.resolve()
    while length - len(str(folder)) > 220:
        folder /= "d" * 100
    folder.mkdir(parents=True)
    path = folder / ("f" * (length - len(str(folder)) - 1))
    assert len(str(path)) == length
    if fits:
        connection = sqlite3.connect(prepare(path).path)
        connection.execute("PRAGMA journal_mode=wal")
        connection.close()
    else:
        with pytest.raises(InvalidOption, match="too long"):
            prepare(path)
        with pytest.raises(sqlite3.OperationalError):  # the limit is not stricter than needed
            sqlite3.connect(path)


@pytest.mark.parametrize("platform", ["win32", "cygwin"])
def test_windows_is_refused(platform):
    with pytest.raises(UnsupportedPlatform, match=platform):
        check_platform(platform)


# ----------------------------------------------------------------------------- permissions


@pytest.mark.parametrize("name", ["shop.db", "shop.db-wal", "shop.db.lock"])
@pytest.mark.parametrize("lax", [0o644, 0o640, 0o755, 0o604])
def test_a_file_that_others_can_read_is_closed_to_them(tmp_path, name, lax):
    prepare(tmp_path / "shop.db")
    (tmp_path / name).touch()
    (tmp_path / name).chmod(lax)
    prepare(tmp_path / "shop.db")
    assert mode(tmp_path / name) == 0o600


@pytest.mark.parametrize(
    "name", ["shop.db", "shop.db-wal", "shop.db-journal", "shop.db.ballast", "shop.db.fatal"]
)
@pytest.mark.parametrize("lax", [0o660, 0o606, 0o666, 0o620])
def test_a_file_that_others_can_write_is_refused(tmp_path, name, lax):
    prepare(tmp_path / "shop.db")
    (tmp_path / name).touch()
    (tmp_path / name).chmod(lax)
    with pytest.raises(InsecurePermissions, match=f"{lax:04o}") as caught:
        prepare(tmp_path / "shop.db")
    assert "chmod" in caught.value.hint
    assert mode(tmp_path / name) == lax  # what others wrote meanwhile must not look trusted


def test_a_file_of_another_user_is_refused(tmp_path, monkeypatch):
    prepare(tmp_path / "shop.db")
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    with pytest.raises(InsecurePermissions, match=f"is user {other}"):
        prepare(tmp_path / "shop.db")


@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal", ".lock", ".ballast", ".fatal"])
def test_a_link_laid_out_where_a_neighbour_will_be_is_refused(tmp_path, suffix):
    (tmp_path / "victim").write_text("precious")
    (tmp_path / f"shop.db{suffix}").symlink_to(tmp_path / "victim")
    with pytest.raises(InvalidOption, match="not a regular file"):
        prepare(tmp_path / "shop.db")
    assert (tmp_path / "victim").read_text() == "precious"


def test_a_read_only_file_is_left_as_its_owner_wanted_it(tmp_path):
    prepare(tmp_path / "shop.db").path.chmod(0o400)
    with pytest.raises(StoreFailed, match="read-only"):
        prepare(tmp_path / "shop.db")
    assert mode(tmp_path / "shop.db") == 0o400


@pytest.mark.parametrize(
    ("lax", "accepted"), [(0o777, False), (0o702, False), (0o1777, True), (0o770, True)]
)
def test_a_folder_where_anyone_could_replace_the_file_is_refused(tmp_path, lax, accepted):
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(lax)
    if accepted:
        prepare(folder / "shop.db")
        return
    with pytest.raises(InsecurePermissions, match="everybody") as caught:
        prepare(folder / "shop.db")
    assert caught.value.hint == f"chmod o-w {folder.resolve()}"
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "kind", "words"),
    [
        (errno.ENOSPC, StoreFull, "No space left"),
        (errno.EDQUOT, StoreFull, "quota"),
        (errno.EROFS, StoreFailed, "Read-only"),
        (errno.EACCES, StoreFailed, "Permission denied"),
        (errno.EIO, StoreFailed, "Input/output"),
    ],
)
def test_what_the_system_refuses_becomes_a_named_error(tmp_path, monkeypatch, number, kind, words):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(kind, match=words) as caught:
        prepare(tmp_path / "shop.db")
    assert "shop.db" in str(caught.value)
    assert caught.value.hint
    assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.parametrize(("number", "fails"), [(errno.EINVAL, False), (errno.EIO, True)])
def test_only_a_missing_folder_sync_is_forgiven(tmp_path, monkeypatch, number, fails):
    def refuse(_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refuse)
    if fails:
        with pytest.raises(StoreFailed):
            prepare(tmp_path / "shop.db")
    else:
        prepare(tmp_path / "shop.db")


# ------------------------------------------------------------------------- SQLite's locks

_WRITE = """
import sqlite3, sys
try:
    sqlite3.connect(sys.argv[1], timeout=0).execute("CREATE TABLE rival (a)")
except sqlite3.OperationalError as error:
    sys.exit(str(error))
"""


def rival_writes(path):
    """True when another process can write although this one holds a write lock."""
    done = subprocess.run(
        [sys.executable, "-c", _WRITE, path],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0 or "locked" in done.stderr, done.stderr
    return done.returncode == 0


@pytest.fixture
def locked(tmp_path):
    placed = prepare(tmp_path / "shop.db")
    # Not WAL: here the lock that matters is on the database file itself.
    connection = sqlite3.connect(placed.path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    yield placed
    connection.close()


def test_looking_at_a_database_in_use_does_not_drop_its_locks(locked):
    locked.path.chmod(0o644)
    prepare(locked.path)
    check_still_there(locked)
    assert not rival_writes(locked.path)


def test_the_rival_notices_a_look_that_opens_and_closes_the_file(locked):
    os.close(os.open(locked.path, os.O_RDONLY))  # the planted bug
    assert rival_writes(locked.path)


# --------------------------------------------------------------------- still there (F16)


def delete(path):
    path.unlink()


def move(path):
    path.rename(path.with_name("elsewhere.db"))


def replace(path):
    shutil.copy(path, path.with_name("copy.db"))
    path.with_name("copy.db").replace(path)


def move_behind_a_link(path):
    other = path.with_name("other.db")
    other.touch()
    path.unlink()
    path.symlink_to(other)


def delete_the_folder(path):
    shutil.rmtree(path.parent)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (delete, "deleted or moved"),
        (move, "deleted or moved"),
        (replace, "replaced"),
        (move_behind_a_link, "replaced"),
        (delete_the_folder, "deleted or moved"),
    ],
)
def test_a_file_that_left_its_place_is_noticed(tmp_path, change, words):
    (tmp_path / "var").mkdir()
    placed = prepare(tmp_path / "var" / "shop.db")
    holding = os.open(placed.path, os.O_RDONLY)  # as SQLite does: the inode stays taken
    try:
        check_still_there(placed)
        change(placed.path)
        with pytest.raises(StoreFailed, match=words) as caught:
            check_still_there(placed)
    finally:
        os.close(holding)
    assert caught.value.hint


def test_a_place_that_cannot_be_looked_at_is_a_failure(tmp_path, monkeypatch):
    placed = prepare(tmp_path / "shop.db")

    def refuse(*_, **__):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "stat", refuse)
    with pytest.raises(StoreFailed, match="Permission denied"):
        check_still_there(placed)
