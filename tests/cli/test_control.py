"""`embedq pause`, `resume`, `purge`."""

import pytest

from embedq.broker.host import open_engine
from embedq.cli import control


def length(embedq):
    return embedq.json("queues")["queues"][0]["length"]


def test_pausing_survives_and_says_what_changed(embedq):
    embedq.ok("put", "q", "x")
    assert embedq.json("pause", "q") == {"queue": "q", "paused": True, "changed": True}
    assert embedq.json("pause", "q")["changed"] is False
    assert embedq.json("queues")["queues"][0]["paused"] is True
    assert "paused" in embedq.ok("queues")
    assert embedq.ok("resume", "q") == "q is running\n"
    assert embedq.ok("resume", "q") == "q is already running\n"


def test_a_purge_removes_everything_but_dead_letters(embedq):
    embedq.bury("q", b"dead")
    embedq.ok("put", "q", "a\nb\nc", "--lines")
    assert embedq.json("purge", "q", "--yes")["removed"] == 3
    assert length(embedq) == 0
    assert len(embedq.json("dead", "list", "q")["letters"]) == 1


def test_a_purge_of_a_group_leaves_the_others(embedq):
    with open_engine(embedq.db) as desk:
        queue = desk.queue("q")
        for name in ("a", "b"):
            desk.group(queue, name, start="beginning")
        desk.put_many(queue, [b"1", b"2"])
    assert embedq.json("purge", "q", "--group", "a", "--yes")["removed"] == 2
    assert [g["waiting"] for g in embedq.json("stats")["queues"][0]["groups"]] == [0, 2]
    assert embedq.error("purge", "q", "--group", "c", "--yes")[1]["code"] == "group_not_found"


def test_without_a_terminal_a_purge_needs_yes(embedq):
    embedq.ok("put", "q", "x")
    code, error = embedq.error("purge", "q")
    assert (code, "--yes" in error["message"]) == (2, True)
    assert length(embedq) == 1


@pytest.mark.parametrize(("answer", "code", "left"), [("n\n", 130, 1), ("y\n", 0, 0)])
def test_on_a_terminal_a_purge_asks(embedq, monkeypatch, answer, code, left):
    embedq.ok("put", "q", "x")
    with monkeypatch.context() as patch:
        patch.setattr(control, "_can_ask", lambda: True)
        assert embedq("purge", "q", stdin=answer).exit_code == code
    assert length(embedq) == left
