"""The gate: who is let in, and how often it is told who is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from embedq.clock import VirtualClock
from embedq.ipc import keys
from embedq.ipc.gate import ALLOWED, BROKEN, DOMAIN, REFUSED, Gate
from tests.ipc.abroad import make_keys

Told = list[tuple[str, str, int]]


class Scene:
    def __init__(self, folder: Path) -> None:
        self.folder = make_keys(folder, "ada")
        self.key = keys.client_keys(self.folder).pair.public
        self.told: Told = []
        self.clock = VirtualClock()
        self.gate = Gate(
            self.folder / "clients",
            lambda address, why, count: self.told.append((address, why, count)),
            self.clock.monotonic,
        )

    def ask(self, key: bytes, **other: bytes) -> tuple[bytes, bytes]:
        """Return the status and the name."""
        said = {"version": b"1.0", "domain": DOMAIN, "mechanism": b"CURVE"} | other
        body = [said["version"], b"7", said["domain"], b"10.0.0.9", b"", said["mechanism"], key]
        answer = self.gate.answer([b"\0route", b"", *body])
        assert answer[:4] == [b"\0route", b"", b"1.0", b"7"]
        return answer[4], answer[6]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path / "keys")


def test_a_key_in_the_folder_comes_in_by_its_name(scene: Scene) -> None:
    assert scene.ask(scene.key) == (ALLOWED, b"ada")
    assert (scene.told, scene.gate.refused) == ([], 0)


def test_the_folder_counts_as_it_is_at_each_question(scene: Scene) -> None:
    other = bytes(32)
    assert scene.ask(other)[0] == REFUSED
    keys.allow(scene.folder, "bob", other)
    assert scene.ask(other) == (ALLOWED, b"bob")
    (scene.folder / "clients" / "bob.public").unlink()
    assert scene.ask(other)[0] == REFUSED


@pytest.mark.parametrize(
    "other", [{"mechanism": b"NULL"}, {"mechanism": b"PLAIN"}, {"domain": b""}, {"version": b"2"}]
)
def test_whoever_comes_otherwise_is_refused(scene: Scene, other: dict[str, bytes]) -> None:
    assert scene.ask(scene.key, **other)[0] == REFUSED
    assert scene.gate.answer([b"r", b"", b"1.0"])[4] == REFUSED


def test_a_folder_that_others_can_write_lets_nobody_in(scene: Scene) -> None:
    (scene.folder / "clients").chmod(0o777)
    assert scene.ask(scene.key)[0] == BROKEN
    assert "others could put" in scene.told[0][1]


def test_a_folder_that_cannot_be_read_is_logged_as_often_as_it_is_told(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    (scene.folder / "clients").chmod(0o777)
    for _ in range(5):
        scene.ask(scene.key)
    scene.clock.advance(1.5)
    scene.ask(scene.key)
    assert [each.getMessage()[:18] for each in caplog.records] == ["nobody can connect"] * 2
    assert len(scene.told) == 2


def test_refusals_are_counted_and_told_once_a_second(scene: Scene) -> None:
    for _ in range(5):
        scene.ask(bytes(32))
    assert [(address, count) for address, _, count in scene.told] == [("10.0.0.9", 1)]
    assert bytes(32).hex() in scene.told[0][1]
    scene.clock.advance(1.5)
    scene.ask(bytes(32))
    assert [count for _, _, count in scene.told] == [1, 5]
    assert scene.gate.refused == 6
