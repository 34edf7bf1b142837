"""`embedq put`: bodies from everywhere, options, lines, and errors that name the argument."""

import io
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from embedq.broker.host import open_engine
from embedq.cli.lines import MOST, portions
from embedq.errors import LimitExceeded
from embedq.limits import LIMITS
from embedq.policy import QueuePolicy


def test_a_body_is_the_argument_the_file_or_standard_input(embedq, tmp_path):
    (tmp_path / "body").write_bytes(b"from\0file")
    embedq.ok("put", "q", "from argument")
    embedq.ok("put", "q", "--file", str(tmp_path / "body"))
    embedq.ok("put", "q", "-", stdin=b"from\xffstdin")
    taken = embedq.lines("get", "q", "--count", "9")
    assert [message["body"] for message in taken[:2]] == ["from argument", "from\0file"]
    assert taken[2]["encoding"] == "base64"
    assert [m["content_type"].partition(";")[0] for m in taken] == [
        "text/plain",
        "text/plain",
        "application/octet-stream",
    ]


def test_the_id_that_is_printed_is_that_of_the_message(embedq):
    printed = embedq.ok("put", "q", "x").strip()
    assert embedq.json("peek", "q")["messages"][0]["id"] == printed


def test_every_option_arrives(embedq):
    embedq.ok(
        *("put", "q", '{"a": 1}', "--content-type", "json", "--priority", "7"),
        *("--header", "from=web", "--header", "x=a=b", "--ordering-key", "k", "--ttl", "1h"),
        *("--max-attempts", "9"),
    )
    (message,) = embedq.lines("get", "q")
    assert message["content_type"] == "application/json"
    assert message["priority"] == 7
    assert message["headers"] == {"from": "web", "x": "a=b"}
    assert message["ordering_key"] == "k"
    assert message["expires_at"] > message["put_at"]
    assert message["max_attempts"] == 9


def test_a_delay_and_a_time_hide_the_message_until_then(embedq):
    noon = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
    at = noon + timedelta(days=90)
    local = at.astimezone().replace(tzinfo=None)
    embedq.ok("put", "q", "later", "--delay", "1h")
    embedq.ok("put", "q", "at", "--at", at.isoformat())
    embedq.ok("put", "q", "local", "--at", local.isoformat())
    embedq.ok("put", "q", "epoch", "--at", f"{at.timestamp():.0f}")
    assert embedq("get", "q").exit_code == 1
    times = [m["available_at"] for m in embedq.json("peek", "q")["messages"]]
    assert set(times[1:]) == {f"{at:%Y-%m-%dT%H:%M:%S}.000Z"}
    assert embedq.json("stats", "q")["queues"][0]["groups"][0]["delayed"] == 4


def test_a_dedup_key_is_stored_once_and_says_so(embedq):
    first = embedq.json("put", "q", "x", "--dedup-key", "k")
    again = embedq.json("put", "q", "x", "--dedup-key", "k")
    assert (first["duplicate"], again["duplicate"]) == (False, True)
    assert again["id"] == first["id"]


def test_a_dedup_key_for_many_lines_is_refused_as_it_would_leave_one_of_them(embedq):
    code, error = embedq.error("put", "q", "a\nb", "--lines", "--dedup-key", "k")
    assert (code, error["code"]) == (2, "invalid_option")
    assert not embedq.db.exists()


def test_endless_attempts_can_be_asked_for(embedq):
    embedq.ok("put", "q", "x", "--max-attempts", "endless")
    assert embedq.lines("get", "q")[0]["max_attempts"] is None


def test_every_line_is_a_message_without_its_end(embedq):
    text = embedq.ok("put", "q", "-", "--lines", stdin=b"one\n\ntwo\r\nlast \xff")
    assert text == "4 messages in q\n"
    assert embedq.json("queues")["queues"][0]["length"] == 4


def test_lines_arrive_in_order_and_unchanged(embedq):
    data = b"one\n\ntwo\r\nlast \xff"
    embedq.ok("put", "q", "-", "--lines", stdin=data)
    with open_engine(embedq.db) as desk:
        bodies = [stored.body for stored in desk.peek(desk.queues["q"])]
    assert bodies == data.split(b"\n")


def test_lines_with_json_are_one_document_each(embedq):
    told = embedq.lines("put", "q", "-", "--lines", stdin="a\nb\nc\n")
    assert [each["seq"] for each in told] == [1, 2, 3]


def test_more_lines_than_a_portion_are_all_put(embedq):
    count = 2 * MOST + 17
    embedq.ok("put", "q", "-", "--lines", stdin="".join(f"{n}\n" for n in range(count)))
    assert embedq.json("queues")["queues"][0]["length"] == count


def test_a_full_queue_refuses_instead_of_waiting_for_ever(embedq):
    with open_engine(embedq.db) as desk:
        desk.queue("q", QueuePolicy(max_length=3, when_full="block"))
    code, error = embedq.error("put", "q", "a\nb\nc\nd\ne", "--lines")
    assert (code, error["code"]) == (4, "queue_full")
    assert embedq.json("queues")["queues"][0]["length"] == 3


def test_an_error_in_the_middle_says_how_many_lines_are_stored(embedq, monkeypatch):
    monkeypatch.setattr("embedq.cli.lines.MOST", 2)
    code, error = embedq.error("put", "q", 'a\nb\n"c"\nd', "--lines", "--content-type", "json")
    assert code == 2
    assert error["details"]["stored_lines"] == 0
    data = "1\n2\n3\nnot json\n5"
    code, error = embedq.error("put", "q", data, "--lines", "--content-type", "json")
    assert error["details"]["stored_lines"] == 2
    assert error["hint"].startswith("2 lines before it are stored")


@pytest.mark.parametrize(
    ("args", "code", "word"),
    [
        (["put", "q"], "usage", "no body"),
        (["put", "q", "x", "--file", "none"], "usage", "none"),
        (["put", "a\nb", "x"], "invalid_name", "U+000A"),
        (["put", "q", "x", "--delay", "soon"], "invalid_option", "--delay"),
        (["put", "q", "x", "--delay", "-1"], "invalid_option", "--delay"),
        (["put", "q", "x", "--at", "tomorrow"], "invalid_option", "--at"),
        (["put", "q", "x", "--at", "2999-01-01"], "invalid_option", "--at"),
        (["put", "q", "x", "--delay", "1s", "--at", "5"], "invalid_option", "both"),
        (["put", "q", "x", "--delay", "1h", "--ttl", "1s"], "invalid_option", "expire"),
        (["put", "q", "x", "--header", "novalue"], "invalid_option", "--header"),
        (["put", "q", "x", "--header", "a=1", "--header", "a=2"], "invalid_option", "twice"),
        (["put", "q", "x", "--max-attempts", "many"], "invalid_option", "--max-attempts"),
        (["put", "q", "x", "--max-attempts", "256"], "invalid_option", "--max-attempts"),
        (["put", "q", "x", "--max-attempts", "0"], "invalid_option", "--max-attempts"),
        (["put", "q", "x", "--priority", "10"], "usage", "--priority"),
        (["put", "q", "x", "--content-type", "image/png"], "invalid_option", "image/png"),
        (["put", "q", "{", "--content-type", "json"], "invalid_payload", "JSON"),
        (["put", "q", "x", "--ordering-key", ""], "invalid_name", "empty"),
    ],
)
def test_a_wrong_argument_is_named_and_nothing_is_put(embedq, args, code, word):
    exit_code, error = embedq.error(*args)
    assert (exit_code, error["code"]) == (2, code)
    assert word in error["message"]
    if embedq.db.exists():  # some options are only known to be wrong when the store is open
        assert sum(queue["length"] for queue in embedq.json("queues")["queues"]) == 0


@pytest.mark.parametrize(
    ("args", "hint"),
    [
        (["put", "q", "x", "--delay", "soon"], "or a number of seconds"),
        (["put", "q", "x", "--max-attempts", "256"], "or endless"),
        (["put", "q", "{", "--content-type", "json"], "--content-type text"),
    ],
)
def test_the_way_out_is_one_of_the_shell_and_no_file_is_made_meanwhile(embedq, args, hint):
    assert embedq.error(*args)[1]["hint"].endswith(hint)
    assert not embedq.db.exists()


def test_a_body_beyond_the_limit_is_refused_without_reading_all_of_it(embedq, tmp_path):
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(LIMITS.body_bytes * 1000)  # a hole: reading all of it would take a minute
    code, error = embedq.error("put", "q", "--file", str(large))
    assert (code, error["code"]) == (2, "limit_exceeded")


# ------------------------------------------------------------------------------- lines


def test_portions_are_full_or_end_where_nothing_more_is_there():
    data = b"\n".join(b"%d" % n for n in range(2500))
    found = list(portions(io.BytesIO(data)))
    assert [line for portion in found for line in portion.lines] == data.split(b"\n")
    assert [portion.first for portion in found] == [1, 1001, 2001]
    assert [portion.pause for portion in found] == [False, False, True]


@pytest.mark.parametrize(("data", "lines"), [(b"", []), (b"\n", [b""]), (b"a", [b"a"])])
def test_the_ends_of_input_are_no_lines(data, lines):
    assert [line for portion in portions(data) for line in portion.lines] == lines


def test_a_line_that_no_message_can_hold_is_named(monkeypatch):
    monkeypatch.setattr("embedq.cli.lines.LIMITS", replace(LIMITS, body_bytes=1000))
    with pytest.raises(LimitExceeded, match="line 2"):
        list(portions(io.BytesIO(b"first\n" + b"x" * 1001)))
