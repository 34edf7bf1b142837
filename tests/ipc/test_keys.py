"""Key files: what is made, what is refused, who is allowed."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import zmq

from embedq.errors import InsecurePermissions, InvalidOption, UnsupportedPlatform
from embedq.ipc import keys
from tests.ipc.abroad import make_keys


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_keys(tmp_path / "keys", "ada")


def test_both_ends_read_what_was_made(folder: Path) -> None:
    host, ada = keys.host_keys(folder), keys.client_keys(folder)
    assert ada.host == host.pair.public
    assert ada.file == folder / "ada.secret"
    assert keys.allowed(host.clients) == {ada.pair.public: "ada"}
    assert len({host.pair.public, host.pair.secret, ada.pair.public, ada.pair.secret}) == 4


def test_all_files_are_private(folder: Path) -> None:
    files = [folder, *folder.rglob("*")]
    assert len(files) == 7
    for file in files:
        assert stat.S_IMODE(file.stat().st_mode) == (0o700 if file.is_dir() else 0o600)


def test_a_secret_key_shows_nowhere(folder: Path) -> None:
    pair = keys.host_keys(folder).pair
    shown = repr(pair) + repr(keys.client_keys(folder)) + repr(keys.host_keys(folder))
    assert repr(pair.secret)[2:20] not in shown
    assert pair.secret.hex() not in shown


def test_a_secret_key_that_others_can_read_is_refused(folder: Path) -> None:
    (folder / "ada.secret").chmod(0o640)
    with pytest.raises(InsecurePermissions, match="others can read"):
        keys.client_keys(folder)


@pytest.mark.parametrize("loose", ["", "clients", "clients/ada.public"])
def test_nobody_can_be_allowed_by_others(folder: Path, loose: str) -> None:
    (folder / loose).chmod(0o777)
    with pytest.raises(InsecurePermissions, match="others could put"):
        keys.allowed(keys.host_keys(folder).clients)


def test_what_is_no_key_in_the_folder_of_clients_is_left_out(folder: Path) -> None:
    clients = folder / "clients"
    (clients / "half.public").write_text("12ab")
    (clients / "notes.txt").write_text("ab" * 32)
    (clients / "binary.public").write_bytes(bytes(range(256)) * 1000)
    assert list(keys.allowed(clients).values()) == ["ada"]
    assert keys.allowed(folder / "nowhere") == {}


def test_a_missing_or_broken_key_is_named_with_what_makes_it(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(InvalidOption, match="no folder"):
        keys.host_keys(tmp_path / "nothing")
    (folder / "host.public").unlink()
    with pytest.raises(InvalidOption, match=r"no key .*host\.public") as caught:
        keys.client_keys(folder)
    assert "embedq keys new" in str(caught.value)
    (folder / "ada.secret").write_text("secret, but no key")
    with pytest.raises(InvalidOption, match="64 hexadecimal digits") as caught:
        keys.client_keys(folder / "ada.secret")
    assert "secret, but" not in str(caught.value)


def test_with_several_keys_of_clients_one_must_be_named(folder: Path) -> None:
    keys.new_pair(folder, "bob")
    with pytest.raises(InvalidOption, match=r"ada\.secret, bob\.secret"):
        keys.client_keys(folder)
    assert keys.client_keys(folder / "bob.secret").file.stem == "bob"


@pytest.mark.parametrize("name", ["", "a/b", "..", "-x", "a" * 65, "ä"])
def test_a_name_that_is_no_plain_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidOption, match="no name for a key"):
        keys.new_pair(tmp_path / "keys", name)


def test_without_encryption_in_zeromq_nothing_is_made_and_nobody_served(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zmq, "has", lambda what: what != "curve")
    for act in (
        lambda: keys.new_pair(tmp_path / "new", "host"),
        lambda: keys.host_keys(folder),
        lambda: keys.client_keys(folder),
    ):
        with pytest.raises(UnsupportedPlatform, match="without CURVE"):
            act()
    assert not (tmp_path / "new").exists()
