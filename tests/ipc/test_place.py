"""Where sockets live: short paths, private folders, no leftovers."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from embedq.broker.host import open_engine
from embedq.errors import InsecurePermissions, InvalidOption, StoreFailed
from embedq.ipc import place
from embedq.ipc.marks import Marks


def test_the_folder_is_beside_the_database_where_that_is_short_enough() -> None:
    assert place.folder_of("/data/shop.db") == Path("/data/shop.db.ipc")
    longest = "/" + "d" * (place.LONGEST - len("/.ipc/123456789012.sock"))
    assert place.folder_of(longest) == Path(longest + ".ipc")
    socket = place.socket_path(place.folder_of(longest), 10**12 - 1)
    assert len(os.fsencode(socket)) == place.LONGEST


@pytest.mark.parametrize("env", [{}, {"XDG_RUNTIME_DIR": "/run/user/4711"}])
def test_a_long_path_is_hashed_and_the_socket_still_fits(env: dict[str, str]) -> None:
    for length in range(place.LONGEST - 30, 200):
        path = "/" + "d" * length
        socket = place.socket_path(place.folder_of(path, env), 10**12 - 1)
        assert len(os.fsencode(socket)) <= place.LONGEST
        if not str(socket).startswith("/dd"):
            parent = env.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
            assert socket.parent.parent == Path(parent) / f"embedq-{os.getuid()}"


def test_every_name_of_a_database_has_the_same_folder(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert place.folder_of(tmp_path / "link/q.db") == place.folder_of(tmp_path / "real/q.db")


def test_other_paths_have_other_folders() -> None:
    first, second = place.folder_of("/" + "a" * 150, {}), place.folder_of("/" + "b" * 150, {})
    assert first != second
    assert first.parent == second.parent


def test_no_short_folder_at_all_is_an_error_that_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(place, "LONGEST", 20)
    with pytest.raises(StoreFailed, match="XDG_RUNTIME_DIR"):
        place.folder_of("/data/shop.db", {})


def test_where_nothing_can_be_written_a_folder_that_is_named_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def read_only() -> str:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", read_only)
    named = {"XDG_RUNTIME_DIR": "/run/user/4711"}
    assert place.folder_of("/" + "a" * 150, named).is_relative_to("/run/user/4711")
    assert place.folder_of("/" + "a" * 150, {}).is_relative_to("/tmp")


def test_only_its_owner_may_enter_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "q.db.ipc"
    before = os.umask(0o077)
    try:
        place.make_folder(folder)
    finally:
        os.umask(before)
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o755)
    place.make_folder(folder)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_the_folder_of_a_hashed_path_is_private_and_so_is_the_one_above(tmp_path: Path) -> None:
    folder = tmp_path / f"embedq-{os.getuid()}" / "abc"
    place.make_folder(folder)
    for each in (folder, folder.parent):
        assert each.stat().st_mode & 0o777 == 0o700


def test_a_link_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "q.db.ipc").symlink_to("elsewhere")
    with pytest.raises(InsecurePermissions, match="link"):
        place.make_folder(tmp_path / "q.db.ipc")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InsecurePermissions, match="no folder"):
        place.make_folder(tmp_path / "file")


@pytest.mark.skipif(os.geteuid() != 0, reason="only on an account that may give files away")
def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "q.db.ipc"
    folder.mkdir()
    os.chown(folder, 4711, 4711)
    with pytest.raises(InsecurePermissions, match="4711"):
        place.make_folder(folder)


def test_a_folder_that_cannot_be_made_is_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(StoreFailed, match="sockets"):
        place.make_folder(tmp_path / "missing" / "q.db.ipc")


def test_a_folder_that_may_not_be_looked_into_is_an_error_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "stat", refuse)
        with pytest.raises(StoreFailed, match="Permission denied") as caught:
            place.sessions_left(tmp_path / "q.db")
    assert f"let user {os.geteuid()} write" in str(caught.value.hint)


@pytest.mark.parametrize("path", ["/", "/.."])
def test_the_root_of_everything_is_no_database(path: str) -> None:
    with pytest.raises(InvalidOption, match="it is a folder"):
        place.folder_of(path)


def test_what_the_dead_left_is_removed_and_what_the_living_hold_stays(tmp_path: Path) -> None:
    alive = Marks.create(tmp_path, bytes(16))
    dead = tmp_path / f"{bytes(range(16)).hex()}.marks"
    dead.write_bytes(bytes(80))
    for name in ("3.sock", "4.sock", "other.txt"):
        (tmp_path / name).write_bytes(b"")
    gone = place.tidy(tmp_path, 4)
    assert {each.name for each in gone} == {"3.sock", dead.name}
    assert {each.name for each in tmp_path.iterdir()} == {
        "4.sock",
        "other.txt",
        alive.path.name,
    }
    alive.close()


def test_a_host_is_found_by_its_lock_file(tmp_path: Path) -> None:
    path = tmp_path / "q.db"
    assert place.find_host(path) is None
    with open_engine(path) as desk:
        assert place.find_host(path) is None
        desk.store.announce("ipc:///somewhere")  # type: ignore[attr-defined]
        assert place.find_host(path) == place.Found(os.getpid(), 1, "ipc:///somewhere")
        code = f"from embedq.ipc.place import find_host; print(*find_host({str(path)!r})[:3])"
        seen = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, check=True, text=True
        )
        assert seen.stdout == f"{os.getpid()} 1 ipc:///somewhere\n"
        desk.store.announce("")  # type: ignore[attr-defined]
        assert place.find_host(path) is None
    assert place.find_host(path) is None
