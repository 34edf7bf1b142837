"""`embedq peek`, `queues`, `stats`: what they count, beside a host and without one."""

from embedq.broker.host import open_engine
from embedq.message import draft
from embedq.policy import QueuePolicy


def group_of(told, queue="q", group="default"):
    (found,) = (q for q in told["queues"] if q["name"] == queue)
    return next(g for g in found["groups"] if g["name"] == group)


def test_peek_shows_messages_in_put_order_without_taking_them(embedq):
    embedq.ok("put", "q", "\n".join(f"m{n}" for n in range(12)), "--lines")
    first = embedq.json("peek", "q")["messages"]
    assert [message["body"] for message in first] == [f"m{n}" for n in range(10)]
    rest = embedq.json("peek", "q", "--after", first[-1]["id"], "--count", "5")["messages"]
    assert [message["body"] for message in rest] == ["m10", "m11"]
    assert embedq.json("queues")["queues"][0]["length"] == 12


def test_peek_escapes_and_cuts_bodies_unless_they_are_wanted_in_full(embedq):
    embedq.ok("put", "q", "-", stdin=b"\x1b[2J" + b"x" * 500)
    shown = embedq.ok("peek", "q")
    assert "\x1b" not in shown
    assert "\\x1b[2Jxxx" in shown
    assert "x" * 500 not in shown
    assert "x" * 500 in embedq.ok("peek", "q", "--full")


def test_an_id_of_another_store_is_refused(embedq):
    embedq.ok("put", "q", "x")
    code, error = embedq.error("peek", "q", "--after", "0" * 32)
    assert (code, error["code"]) == (1, "unknown_message")


def test_an_unknown_queue_is_answered_with_the_known_ones(embedq):
    embedq.ok("put", "orders", "x")
    for command in ("peek", "stats", "get", "pause"):
        code, error = embedq.error(command, "order")
        assert (code, error["code"]) == (1, "queue_not_found")
        assert "'orders'" in error["hint"]


def test_numbers_are_those_of_the_engine_after_a_clean_close(embedq):
    with open_engine(embedq.db) as desk:
        queue = desk.queue("q")
        group = desk.group(queue)
        desk.put_many(queue, [b"x"] * 20)
        now = desk.now_ms()
        desk.put_drafts(queue, [draft(b"y", available_at_ms=now + 100_000)] * 3)
        desk.ack(*desk.claim(group, 4))
        desk.reject(desk.claim(group, 1)[0])
        desk.fail(desk.claim(group, 1)[0], delay_s=50)
    told = embedq.json("stats")
    assert told["exact"] is True
    assert told["host"] is None
    assert told["queues"][0]["dead"] == 1
    assert told["queues"][0]["stored"] == 18
    found = group_of(told)
    assert found["waiting"] == 18
    assert found["delayed"] == 4
    assert found["leased"] == found["interrupted"] == 0


def test_numbers_are_counted_while_a_host_is_live(embedq):
    with open_engine(embedq.db, upkeep=False) as desk:
        queue = desk.queue("q")
        group = desk.group(queue)
        desk.put_many(queue, [b"x"] * 10)
        held = desk.claim(group, 3)
        desk.reject(held.pop())
        told = embedq.json("stats")
        assert told["exact"] is True
        assert told["host"]["pid"] > 0
        found = group_of(told)
        assert (found["leased"], found["waiting"]) == (2, 7)
        assert told["queues"][0]["dead"] == 1
        text = embedq.ok("stats", "q")
        assert "known to the host only" in text
        desk.release(held)


def test_a_retained_queue_counts_what_is_left_to_do(embedq):
    with open_engine(embedq.db) as desk:
        queue = desk.queue("q", QueuePolicy(retain_ms=1_000_000))
        groups = [desk.group(queue, name, start="beginning") for name in ("a", "b")]
        desk.put_many(queue, [b"x"] * 5)
        desk.ack(*desk.claim(groups[0], 4))
        desk.ack(*desk.claim(groups[1], 2))
    told = embedq.json("queues")["queues"][0]
    assert (told["stored"], told["length"]) == (5, 3)
    assert [g["waiting"] for g in told["groups"]] == [1, 3]


def test_a_queue_nobody_consumes_is_shown_without_groups(embedq):
    embedq.ok("put", "q", "x")
    told = embedq.json("queues")["queues"][0]
    assert told["groups"] == []
    assert told["oldest_s"] >= 0
    assert "–" in embedq.ok("stats")


def test_names_of_queues_cannot_harm_a_terminal(embedq):
    embedq.ok("put", "\u202eq", "x")
    assert "\\u202eq" in embedq.ok("queues")
    assert "\\u202eq" in embedq.ok("stats")


def test_a_missing_database_is_usage_and_is_not_created(embedq):
    for command in (["queues"], ["get", "q"], ["doctor"], ["check"], ["purge", "q", "--yes"]):
        code, error = embedq.error(*command)
        assert code == 2, command
        assert "no database file" in error["message"]
    assert not embedq.db.exists()


def test_somebody_elses_file_is_exit_code_six(embedq):
    embedq.db.write_bytes(b"just a text, and longer than a header " * 100)
    embedq.db.chmod(0o600)
    for command in (["queues"], ["get", "q"], ["put", "q", "x"], ["doctor"]):
        assert embedq.error(*command)[0] == 6, command


def test_messages_that_no_group_will_get_are_shown(embedq):
    embedq.ok("put", "q", "a\nb", "--lines")
    with open_engine(embedq.db) as desk:
        desk.group(desk.queue("q"), "late", start="end")
        desk.pause(desk.queue("q"))
    assert embedq.json("queues")["queues"][0]["stranded"] == 2
    assert "paused, 2 for nobody" in embedq.ok("queues")
    (what,) = [f["what"] for f in embedq.json("doctor")["findings"] if "nobody" in f["what"]]
    assert what.startswith("queue 'q' has 2 messages for nobody")
