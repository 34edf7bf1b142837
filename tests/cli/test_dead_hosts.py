"""What the command line tells of a host that died: `dead list`, `dead show`, `doctor`."""

import pytest

from embedq.broker.host import open_engine
from embedq.policy import QueuePolicy
from tests.storage.killed import CRASH, leave


@pytest.fixture
def killed(embedq):
    """A database whose host crashed under the only message."""
    with open_engine(embedq.db, upkeep=False) as desk:
        queue = desk.queue("orders", QueuePolicy(max_crashes=1))
        desk.group(queue)
        desk.put_many(queue, [b"deadly"])
    desk = open_engine(embedq.db, upkeep=False)
    assert len(desk.claim(desk.queues["orders"].groups[0])) == 1
    desk.writer.close()
    desk.store.close(clean=False)
    leave(embedq.db, crash=CRASH)
    return embedq


def find(killed):
    """Let the next host find the message."""
    with open_engine(killed.db, upkeep=False) as desk:
        assert desk.claim(desk.queues["orders"].groups[0]) == []


def test_a_letter_shows_the_signal_and_where_it_struck(killed):
    find(killed)
    (letter,) = killed.json("dead", "list", "orders", "--reason", "crashed")["letters"]
    assert letter["detail"].startswith("1 attempts started, 1 crashes; the last: SIGSEGV: ")
    assert letter["last_error"].startswith("SIGSEGV: the host (process ")
    shown = killed.ok("dead", "show", "orders", letter["id"])
    assert "attempt 1: crashed" in shown
    assert "SIGSEGV: the host (process " in shown
    assert '|   File "/a/shop.py", line 14 in token_4711' in shown
    told = killed.json("dead", "show", "orders", letter["id"])["attempts"][0]
    assert (told["outcome"], told["error"]["type"]) == ("crashed", "SIGSEGV")


def test_letters_are_found_by_the_signal(killed):
    find(killed)
    assert len(killed.json("dead", "list", "--error", "SIGSEGV")["letters"]) == 1
    assert killed.json("dead", "list", "--error", "SIGABRT")["letters"] == []


def test_the_doctor_names_the_crash_until_the_next_host_has_taken_note(killed):
    whats = [finding["what"] for finding in killed.json("doctor")["findings"]]
    assert any("died of a crash (Segmentation fault)" in what for what in whats)
    find(killed)
    whats = [finding["what"] for finding in killed.json("doctor")["findings"]]
    assert not any("crash (" in what for what in whats)


def test_the_doctor_minds_who_may_write_the_record(killed):
    file = killed.db.with_name("q.db.fatal")
    file.chmod(0o666)
    whats = [finding["what"] for finding in killed.json("doctor")["findings"]]
    assert any("q.db.fatal has mode 0666" in what for what in whats)
