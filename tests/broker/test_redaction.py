"""Secrets are hidden wherever a text of an error goes: the file, the events, what is shown."""

import logging
import threading
from pathlib import Path

import pytest

from embedq import Broker, InvalidOption, Queue
from embedq.broker.redaction import HIDDEN, Patterns, hider
from embedq.events import Notice

SECRET = "s3cret-0f9a"
PATTERN = r"s3cret-\w+"


def hide(text: str) -> str:
    return text.replace(SECRET, HIDDEN)


@pytest.fixture(params=["patterns", "function"])
def broker(request: pytest.FixtureRequest, tmp_path: Path):
    redact = [PATTERN] if request.param == "patterns" else hide
    opened = Broker(tmp_path / "q.db", redact=redact)
    yield opened
    opened.stop()


def fail_in_every_way(orders: Queue[object]) -> None:
    """Let texts with a secret go every way there is."""
    orders.put_many([f"body {number}" for number in range(6)], max_attempts=1)
    orders.get(0).reject(f"token {SECRET}")
    orders.get(0).reject("why", ValueError(SECRET))
    orders.get(0).nack(error=SECRET)
    with pytest.raises(ValueError, match="s3cret"), orders.get(0):
        raise ValueError(SECRET)
    orders.group().settle_by_id(orders.peek(1)[0].id, "reject", SECRET)
    orders.group().settle_by_id(orders.peek(1)[0].id, "reject", SECRET)


def files(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_no_text_with_a_secret_reaches_the_file_the_log_or_a_listener(
    broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[Notice] = []
    broker.on("*", heard.append)
    orders = broker.queue("orders")
    with caplog.at_level(logging.DEBUG, "embedq"):
        fail_in_every_way(orders)
        broker.desk.events.flush()
    letters = orders.dead.list()
    assert len(letters) == 6  # the ways above
    assert SECRET not in repr(letters) + str([letter.attempts for letter in letters])
    assert sum(HIDDEN in str(letter.attempts) + letter.detail for letter in letters) == 6
    assert len(heard) > 6
    assert SECRET not in str(heard) + caplog.text
    broker.stop()
    assert SECRET.encode() not in files(tmp_path)


def test_what_a_handler_raises_is_hidden_in_events_and_letters(
    broker: Broker, tmp_path: Path
) -> None:
    heard: list[Notice] = []
    broker.on("*", heard.append)
    orders = broker.queue("orders", max_attempts=1)

    @orders.consumer
    def handle(body: object) -> None:
        raise ValueError(f"{'x' * 195} {SECRET}")  # where the text of the event is cut

    died = threading.Event()
    broker.on("dead", lambda _: died.set())
    with broker:
        orders.put("x")
        assert died.wait(20)
        broker.desk.events.flush()
    assert "handler_failed" in [notice.name for notice in heard]
    assert SECRET[:3] not in str(heard)
    assert SECRET.encode() not in files(tmp_path)


def test_without_redaction_the_same_texts_are_everywhere(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "q.db")
    heard: list[Notice] = []
    broker.on("*", heard.append)
    fail_in_every_way(broker.queue("orders"))
    broker.stop()
    assert SECRET in str(heard)
    assert files(tmp_path).count(SECRET.encode()) >= 6


def test_patterns_hide_what_they_match() -> None:
    hidden = Patterns([r"(?i)password=\S+", r"\b\d{16}\b"])
    assert hidden("PASSWORD=a b 1234567812345678 c") == f"{HIDDEN} b {HIDDEN} c"
    assert repr(hidden).startswith("Patterns(")
    with pytest.raises(InvalidOption, match=r"redact='\(' is not a regular expression"):
        Patterns(["("])


def test_a_function_that_fails_hides_everything(caplog: pytest.LogCaptureFixture) -> None:
    assert SECRET not in hider(lambda text: str(1 / 0))(SECRET)
    assert "redact= function failed" in caplog.text
