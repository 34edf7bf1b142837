"""Being the host for a moment: what is owed to whoever comes next."""

import json

import pytest

from embedq.broker.host import open_engine
from embedq.cli import access
from embedq.cli.asked import Asked
from embedq.clock import VirtualClock
from embedq.errors import StoreInUse
from embedq.storage.owners import owner_of


@pytest.fixture
def after_power_loss(embedq):
    """A database whose last host died before the machine started again."""
    lines = "\n".join(f"message {n} {'x' * 300}" for n in range(200))
    embedq.ok("put", "q", "-", "--lines", stdin=lines)
    lock = embedq.db.with_name("q.db.lock")
    record = json.loads(lock.read_bytes())
    lock.write_text(json.dumps({**record, "clean": False, "boot_id": "another"}) + "\n")
    return embedq


def owner(embedq):
    found = owner_of(embedq.db)
    assert found is not None
    return found


def test_a_clean_close_after_power_loss_means_that_the_file_was_verified(after_power_loss):
    assert not owner(after_power_loss).clean
    assert owner(after_power_loss).same_boot is not True
    after_power_loss.ok("put", "q", "x")
    assert owner(after_power_loss).clean


def test_damage_found_then_is_exit_code_five_and_nothing_is_put(after_power_loss):
    data = bytearray(after_power_loss.db.read_bytes())
    page = data.index(b"message 100 ") // 4096
    data[page * 4096 : page * 4096 + 4096] = b"\xa5" * 4096
    after_power_loss.db.write_bytes(data)
    code, error = after_power_loss.error("put", "q", "x")
    assert (code, error["code"]) == (5, "store_corrupt")
    assert not owner(after_power_loss).clean


def test_counts_are_exact_again_after_an_unclean_end(embedq):
    embedq.ok("put", "q", "a\nb\nc", "--lines")
    with open_engine(embedq.db, upkeep=False) as desk:
        embedq.sql(desk, "UPDATE queue SET stored=99")
        desk.counts_exact = False
    assert embedq.json("queues")["queues"][0]["stored"] == 3
    embedq.ok("put", "q", "d")
    told = embedq.json("queues")
    assert told["queues"][0]["stored"] == 4
    assert "noted at a clean close" in embedq.ok("doctor")


def test_the_file_is_private_and_free_afterwards(embedq):
    embedq.ok("put", "q", "x")
    assert embedq.db.stat().st_mode & 0o777 == 0o600
    assert not owner(embedq).alive
    assert not embedq.db.with_name("q.db-wal").exists()


def test_an_unsafe_place_is_exit_code_four(embedq):
    embedq.ok("put", "q", "x")
    embedq.db.chmod(0o666)
    code, error = embedq.error("put", "q", "x")
    assert (code, error["code"]) == (4, "insecure_permissions")


def test_an_empty_db_option_is_refused_and_no_other_file_is_used(embedq, monkeypatch, tmp_path):
    monkeypatch.setenv("EMBEDQ_PATH", str(tmp_path / "other.db"))
    code, error = embedq.error("put", "q", "x", "--db", "")
    assert (code, error["code"]) == (2, "invalid_option")
    assert "--db ''" in error["message"]
    assert not (tmp_path / "other.db").exists()


def test_a_command_waits_as_long_for_each_that_has_the_file_before_it(embedq, monkeypatch):
    clock = VirtualClock()
    holders = iter(range(101, 106))

    def in_turn(*args, **options):
        clock.advance(access.WAIT_S * 0.7)
        for pid in holders:
            raise StoreInUse("it is in use", pid=pid, started_ms=int(clock.time() * 1000))
        return open_engine(*args, **options)

    monkeypatch.setattr("embedq.broker.host.open_engine", in_turn)
    with access.desk_of(Asked(str(embedq.db)), create=True, clock=clock) as desk:
        assert list(desk.office.queues()) == []
    assert next(holders, None) is None


def test_a_command_does_not_wait_for_ever_for_one_that_keeps_the_file(embedq, monkeypatch):
    clock = VirtualClock()
    started = int(clock.time() * 1000) + 3600_000  # not so long ago that it is no command

    def kept(*_, **__):
        clock.advance(access.WAIT_S * 0.7)
        raise StoreInUse("it is in use", pid=101, started_ms=started)

    monkeypatch.setattr("embedq.broker.host.open_engine", kept)
    desk = access.desk_of(Asked(str(embedq.db)), create=True, clock=clock)
    with pytest.raises(StoreInUse, match="in use"), desk:
        pass
