"""`embedq get`: printed means acked, not printed means given back."""

import threading

import pytest

from embedq.broker.host import open_engine
from embedq.cli import getting, output
from embedq.cli.asked import Asked
from embedq.cli.showing import iso
from embedq.clock import SystemClock


def bodies(embedq):
    return [message["body"] for message in embedq.json("peek", "q")["messages"]]


def attempts(embedq):
    return [message["attempt"] for message in embedq.lines("get", "q", "--count", "9", "--no-ack")]


def test_a_body_goes_out_byte_by_byte_and_the_message_is_gone(embedq):
    data = bytes(range(256))
    embedq.ok("put", "q", "-", stdin=data)
    assert embedq("get", "q").stdout_bytes == data
    assert bodies(embedq) == []


def test_several_bodies_are_lines(embedq):
    embedq.ok("put", "q", "a\nb", "--lines")
    assert embedq.ok("get", "q", "--count", "5") == "a\nb\n"


def test_no_ack_gives_back_and_counts_no_attempt(embedq):
    embedq.ok("put", "q", "a\nb\nc", "--lines")
    for _ in range(3):
        assert embedq.ok("get", "q", "--count", "2", "--no-ack") == "a\nb\n"
    assert bodies(embedq) == ["a", "b", "c"]
    assert attempts(embedq) == [1, 1, 1]


def test_nothing_there_is_exit_code_one(embedq):
    embedq.ok("put", "q", "x")
    embedq.ok("get", "q")
    code, error = embedq.error("get", "q")
    assert (code, error["code"]) == (1, "empty")
    assert embedq.error("get", "unknown")[1]["code"] == "queue_not_found"
    assert embedq("get", "q").stdout == ""


def test_a_group_has_a_position_of_its_own(embedq):
    embedq.ok("put", "q", "x")
    assert embedq.ok("get", "q", "--group", "a", "--no-ack") == "x"
    with open_engine(embedq.db) as desk:
        desk.group(desk.queue("q"), "b", start="beginning")
    assert embedq.ok("get", "q", "--group", "b") == "x"
    assert embedq.ok("get", "q", "--group", "a") == "x"
    assert embedq("get", "q", "--group", "b").exit_code == 1


def test_json_has_what_there_is_to_know(embedq):
    receipt = embedq.json("put", "q", "x", "--header", "a=b")
    (message,) = embedq.lines("get", "q")
    assert message["id"] == receipt["id"]
    assert message["headers"] == {"a": "b"}
    assert (message["attempt"], message["group"], message["queue"]) == (1, "default", "q")
    assert message["put_at"].endswith("Z")
    assert len(message["put_at"]) == len(iso(0) or "")


@pytest.mark.parametrize("failure", [KeyboardInterrupt, output.ReaderGone, OSError("disk full")])
def test_what_could_not_be_printed_is_given_back(embedq, monkeypatch, failure):
    embedq.ok("put", "q", "a\nb", "--lines")

    def fail() -> None:
        raise failure

    with monkeypatch.context() as patch:
        patch.setattr(output, "flush", fail)
        assert embedq("get", "q", "--count", "2").exit_code in {130, 141, 7}
    assert attempts(embedq) == [1, 1]


def test_the_check_above_notices_an_ack_before_the_output(embedq, monkeypatch):
    embedq.ok("put", "q", "a", "--lines")

    def ack_first(desk, wanted, lease):
        desk.ack(lease)
        raise output.ReaderGone

    with monkeypatch.context() as patch:
        patch.setattr(getting, "_print", ack_first)
        assert embedq("get", "q").exit_code == 141
    assert bodies(embedq) == []


def test_a_terminal_gets_escapes_unless_raw(embedq, monkeypatch):
    embedq.ok("put", "q", "-", stdin=b"\x1b[2Jred\xff")
    monkeypatch.setattr(getting, "_is_terminal", lambda: True)
    assert embedq.ok("get", "q", "--no-ack") == "\\x1b[2Jred\\xff\n"
    assert embedq("get", "q", "--raw").stdout_bytes == b"\x1b[2Jred\xff"


def test_waiting_ends_when_a_message_becomes_due(embedq):
    embedq.ok("put", "q", "soon", "--delay", "0.3s")
    assert embedq("get", "q").exit_code == 1
    assert embedq.ok("get", "q", "--timeout", "20s") == "soon"


def test_waiting_leaves_the_file_to_others_and_sees_what_they_put(embedq):
    embedq.ok("put", "q", "first")
    embedq.ok("get", "q")
    done = []
    waiting = threading.Event()
    real = getting._wait

    def wait(*args):
        waiting.set()
        return real(*args)

    getting._wait = wait
    try:
        getter = threading.Thread(
            target=lambda: done.append(
                getting._take(
                    Asked(str(embedq.db)),
                    getting._Wanted("q", "default", 1, ack=True, raw=True, json=False),
                    20.0,
                    SystemClock(),
                )
            )
        )
        getter.start()
        assert waiting.wait(20)
        with open_engine(embedq.db) as desk:  # nobody is in the way
            desk.put(desk.queue("q"), b"second")
        getter.join(20)
    finally:
        getting._wait = real
    assert done == [1]


def test_a_timeout_ends(embedq):
    embedq.ok("put", "q", "later", "--delay", "1h")
    assert embedq("get", "q", "--timeout", "0.2").exit_code == 1


def test_a_paused_queue_hands_out_nothing(embedq):
    embedq.ok("put", "q", "x")
    embedq.ok("pause", "q")
    assert embedq("get", "q").exit_code == 1
    embedq.ok("resume", "q")
    assert embedq.ok("get", "q") == "x"


def test_a_damaged_body_is_not_printed(embedq):
    embedq.ok("put", "q", "x" * 100)
    embedq.ok("put", "q", "good")
    with open_engine(embedq.db) as desk:
        embedq.sql(desk, "UPDATE msg SET body=x'00' WHERE seq=1")
    assert embedq.ok("get", "q", "--count", "2") == "good\n"
    assert embedq.json("dead", "list", "q")["letters"][0]["reason"] == "corrupt"


def test_output_failed_is_no_os_error():
    assert not issubclass(output.OutputFailed, OSError)
