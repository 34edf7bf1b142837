"""`embedq check`, `backup`, `salvage`, `doctor`, `config`: what is found, and the exit codes."""

import os
from dataclasses import replace

import pytest

from embedq.broker.host import open_engine
from embedq.cli import output, place
from embedq.errors import NetworkFilesystem
from embedq.limits import LIMITS
from embedq.policy import QueuePolicy
from embedq.storage.inspect import Severity


@pytest.fixture
def filled(embedq):
    lines = "\n".join(f"message {n} {'x' * 200}" for n in range(300))
    embedq.ok("put", "q", "-", "--lines", stdin=lines)
    return embedq


def destroy(path, needle=b"message 150 "):
    """Overwrite the page on which a message is."""
    data = bytearray(path.read_bytes())
    page = data.index(needle) // 4096
    data[page * 4096 : page * 4096 + 4096] = b"\xa5" * 4096
    path.write_bytes(data)


def flip(path):
    data = path.read_bytes()
    path.write_bytes(data.replace(b"message 150 x", b"message 150 y"))


def whats(told, severity=None):
    return [f["what"] for f in told["findings"] if severity in {None, f["severity"]}]


# ------------------------------------------------------------------------------- check


def test_a_sound_file_is_exit_code_zero(filled):
    told = filled.json("check")
    assert (told["sound"], told["messages"]) == (True, 300)
    assert "is sound" in filled.ok("check")


def test_a_check_says_what_it_is_at(filled, monkeypatch):
    told = []

    class Bar(output.Progress):
        def __init__(self, label, **more):
            super().__init__(label, **more)
            self.label = label

        def __call__(self, done, total):
            told.append((self.label, done, total))

    monkeypatch.setattr(output, "Progress", Bar)
    filled.ok("check")
    assert told[0] == ("checking structure: parts", 0, 8)
    assert told[-1] == ("checking counts: parts", 7, 8)


@pytest.mark.parametrize("damage", [destroy, flip])
def test_damage_is_exit_code_five(filled, damage):
    damage(filled.db)
    result = filled("check")
    assert result.exit_code == 5
    assert "damage: " in result.stdout
    assert "is damaged" in result.stdout


def test_a_live_file_is_checked(filled):
    with open_engine(filled.db):
        assert filled.json("check")["sound"]


# ------------------------------------------------------------------------------ backup


def test_a_backup_holds_everything_and_is_private(filled, tmp_path):
    told = filled.json("backup", str(tmp_path / "copy.db"))
    assert told["messages"] == 300
    assert (tmp_path / "copy.db").stat().st_mode & 0o777 == 0o600
    with open_engine(tmp_path / "copy.db") as desk:
        assert desk.queues["q"].stored == 300


def test_a_backup_is_made_beside_a_host_that_goes_on(filled, tmp_path):
    with open_engine(filled.db) as desk:
        queue = desk.queue("q")
        desk.put(queue, b"just before")
        told = filled.json("backup", str(tmp_path / "copy.db"))
        desk.put(queue, b"afterwards")
    assert told["messages"] == 301


def test_a_backup_replaces_nothing_unless_told(filled, tmp_path):
    target = tmp_path / "copy.db"
    filled.ok("backup", str(target))
    assert filled.error("backup", str(target))[0] == 2
    filled.ok("backup", str(target), "--overwrite")
    assert filled.error("backup", str(filled.db), "--overwrite")[0] == 2
    assert filled.error("backup", str(tmp_path / "no" / "x.db"))[0] == 2


def test_a_backup_of_a_damaged_file_is_refused(filled, tmp_path):
    destroy(filled.db)
    assert filled.error("backup", str(tmp_path / "copy.db"))[0] == 5
    assert not (tmp_path / "copy.db").exists()


# ----------------------------------------------------------------------------- salvage


def test_a_salvage_of_a_sound_file_loses_nothing(filled, tmp_path):
    told = filled.json("salvage", str(filled.db), str(tmp_path / "new.db"))
    assert told["counts"]["msg"] == 300
    assert told["lost"] == []


def test_a_salvage_says_what_is_lost_and_leaves_the_source_alone(filled, tmp_path):
    destroy(filled.db)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    result = filled("salvage", str(filled.db), str(tmp_path / "new.db"))
    assert result.exit_code == 5
    assert "lost" in result.stdout
    with open_engine(tmp_path / "new.db") as desk:
        assert 200 < desk.queues["q"].stored < 300
    assert {name: (tmp_path / name).read_bytes() for name in before} == before


def test_a_file_in_use_is_not_salvaged(filled, tmp_path):
    with open_engine(filled.db):
        code, error = filled.error("salvage", str(filled.db), str(tmp_path / "new.db"))
    assert (code, error["code"]) == (3, "store_in_use")
    assert not (tmp_path / "new.db").exists()


# ------------------------------------------------------------------------------ doctor


def test_the_doctor_finds_a_sound_file_well(filled):
    told = filled.json("doctor")
    assert whats(told, "damage") == whats(told, "warning") == []
    assert told["facts"]["quick_check"] == "ok"
    assert told["facts"]["permissions"].startswith("0600")
    assert "300 messages" in told["facts"]["content"]
    assert told["limits"]["disk_watermark_bytes"] > 0
    assert "quick check" in filled.ok("doctor")


def test_the_doctor_finds_damage(filled):
    destroy(filled.db)
    result = filled("doctor", "--json")
    assert result.exit_code == 5
    assert '"damage"' in result.stdout
    assert "quick check" not in filled("doctor", "--skip-check").stdout


def test_the_doctor_names_the_host_and_changes_nothing(filled):
    with open_engine(filled.db) as desk:
        desk.put(desk.queue("q"), b"x")
        told = filled.json("doctor")
        assert told["host"]["pid"] == os.getpid()
        desk.put(desk.queue("q"), b"still the host")


def test_the_doctor_sees_what_is_unusual_in_queues(embedq):
    embedq.bury("dying", *[b"x"] * 10)
    with open_engine(embedq.db) as desk:
        full = desk.queue("full", QueuePolicy(max_length=2))
        desk.put_many(full, [b"1", b"2"])
        desk.pause(desk.queue("paused"))
        desk.put(desk.queue("@zbus"), b"what a transport keeps")
    told = embedq.json("doctor")
    assert any("'dying' has 10 dead letters" in what for what in whats(told, "warning"))
    assert any("'full' holds 2 of at most 2" in what for what in whats(told, "warning"))
    assert any("'paused' is paused" in what for what in whats(told, "note"))
    assert any("nobody has ever consumed queue 'full'" in what for what in whats(told))
    assert not any("@zbus" in what for what in whats(told))


def test_the_doctor_sees_a_stuck_delivery_and_one_that_takes_nothing(embedq):
    with open_engine(embedq.db, upkeep=False) as desk:
        queue = desk.queue("q")
        group = desk.group(queue)
        desk.group(queue, "idle", start="beginning")
        desk.put(queue, b"x")
        desk.claim(group)
        embedq.sql(desk, "UPDATE delivery SET started=started-7200000")
        told = embedq.json("doctor")
    assert any("running for 2h 0m" in what for what in whats(told, "warning"))
    assert any("'q'/'idle' takes nothing" in what for what in whats(told, "note"))


@pytest.mark.parametrize(("mode", "word"), [(0o644, "read"), (0o660, "write")])
def test_the_doctor_sees_open_permissions_and_leaves_them(filled, mode, word):
    filled.db.chmod(mode)
    told = filled.json("doctor")
    assert any(word in what for what in whats(told, "warning"))
    assert filled.db.stat().st_mode & 0o777 == mode


def test_the_doctor_sees_a_full_disk(filled, monkeypatch):
    free = os.statvfs(filled.db.parent)
    monkeypatch.setattr(place, "_watermark", lambda: free.f_bavail * free.f_frsize * 10)
    assert any("puts are refused" in what for what in whats(filled.json("doctor"), "warning"))


def test_the_doctor_sees_a_log_that_is_too_long_and_a_network_file_system(filled, monkeypatch):
    def refuse(path):
        raise NetworkFilesystem(f"{path} is on nfs", filesystem="nfs")

    monkeypatch.setattr(place, "LIMITS", replace(LIMITS, wal_limit_bytes=1))
    monkeypatch.setattr(place, "filesystem_of", refuse)
    with open_engine(filled.db) as desk:
        desk.put(desk.queue("q"), b"x")
        told = filled.json("doctor")
    assert any("the log has" in what for what in whats(told, "warning"))
    assert any("is on nfs" in what for what in whats(told, "warning"))
    assert told["facts"]["file_system"] == "nfs"


def test_severities_are_those_of_the_check():
    assert [str(severity) for severity in Severity] == ["damage", "warning", "note"]


# ------------------------------------------------------------------------------ config


def test_settings_say_where_they_come_from(embedq, monkeypatch, tmp_path):
    monkeypatch.setenv("EMBEDQ_DURABILITY", "normal")
    monkeypatch.setenv("EMBEDQ_TYPO", "1")
    (tmp_path / "pyproject.toml").write_text('[tool.embedq]\ngrace = "5s"\n')
    told = embedq.json("config")["settings"]
    assert told["path"] == {"value": str(embedq.db), "source": "--db"}
    assert told["durability"] == {"value": "normal", "source": "EMBEDQ_DURABILITY"}
    assert told["grace"] == {"value": 5.0, "source": str(tmp_path / "pyproject.toml")}
    assert told["role"]["source"] == "default"
    assert "unknown" in told["EMBEDQ_TYPO"]["source"]


def test_stored_settings_of_queues_are_shown(embedq):
    with open_engine(embedq.db) as desk:
        desk.queue("q", QueuePolicy(max_attempts=9))
    assert embedq.json("config")["queues"] == {"q": {"max_attempts": 9}}
    assert "q: max_attempts" in embedq.ok("config")


def test_a_wrong_setting_is_named(embedq, monkeypatch):
    monkeypatch.setenv("EMBEDQ_DURABILITY", "maybe")
    code, error = embedq.error("config")
    assert (code, "EMBEDQ_DURABILITY" in error["message"]) == (2, True)
