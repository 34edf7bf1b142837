"""Stored rows are shown as messages, whatever is left of them."""

from embedq.app.stored import message_of
from embedq.ids import MessageIds
from embedq.storage.rows import Stored

IDS = MessageIds(bytes(16))
ROW = Stored(7, 1, 1000, 2, 0, 5, 2000, 3000, "key", 4, b"\x81\xa1a\xa1b", b"5")


def test_every_field_of_a_row_is_in_the_message() -> None:
    shown = message_of(IDS, "orders", ROW)
    assert (shown.id, shown.seq, shown.queue) == (IDS.encode(7), 7, "orders")
    assert (shown.body, shown.kind, shown.headers) == (b"5", 2, {"a": "b"})
    assert (shown.put_at_ms, shown.available_at_ms, shown.expires_at_ms) == (1000, 2000, 3000)
    assert (shown.priority, shown.ordering_key, shown.max_attempts) == (5, "key", 4)


def test_headers_that_are_damaged_do_not_hide_the_message(caplog) -> None:
    for damaged in (b"\xff\xff", b"", b"\x05"):
        assert message_of(IDS, "orders", ROW._replace(headers=damaged)).headers is None
    assert "headers of message 7" in caplog.text
    assert message_of(IDS, "orders", ROW._replace(headers=None)).headers is None
