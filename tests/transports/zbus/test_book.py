"""What queues and channels were told to be holds after a restart."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from embedq import Broker
from embedq.errors import StoreBusy
from embedq.net import TokenFile
from embedq_transports.zbus import book, hub
from embedq_transports.zbus.book import BOOK
from tests.interop.speakers import until
from tests.transports.zbus.conftest import URL
from tests.transports.zbus.ends import Ws
from tests.transports.zbus.test_access import ask, signed


def restarted(path, *commands):
    """Open the file, do commands as a client, and close it; return the answers."""
    with Broker(path) as broker, closing(Ws(broker.listen(URL))) as client:
        return [client.do(each.pop("body", None), **each) for each in commands]


def create(**headers: Any) -> dict[str, Any]:
    return {"cmd": "create", "mq": "q", **headers}


def query(**headers: Any) -> dict[str, Any]:
    return {"cmd": "query", "mq": "q", **headers}


def entries(broker) -> int:
    return len(broker.queue(BOOK).peek(100))


def test_types_masks_filters_and_creators_are_what_they_were(tmp_path):
    path = tmp_path / "q.db"
    made = create(mqType="db", mqMask=5, channel="c", channelMask=6, filter="a.*")
    _, before = restarted(path, made, query())
    (after,) = restarted(path, query())
    assert after["body"] == before["body"]
    found = after["body"]
    assert (found["type"], found["mask"]) == ("db", 5)
    (channel,) = found["channels"]
    assert (channel["mask"], channel["filter"]) == (6, "a.*")


def test_a_queue_of_the_type_memory_is_one_again(tmp_path):
    path = tmp_path / "q.db"
    restarted(path, create())
    (found,) = restarted(path, query())
    assert found["body"]["type"] == "memory"


def test_what_was_removed_is_not_there_and_can_be_made_anew(tmp_path):
    path = tmp_path / "q.db"
    pub = {"cmd": "pub", "mq": "q", "body": "x"}
    restarted(path, create(channel="c", filter="a"), pub, {"cmd": "remove", "mq": "q"})
    gone, everything = restarted(path, query(), {"cmd": "query"})
    assert (gone["status"], everything["body"]) == (404, [])
    restarted(path, create(mqType="disk", channel="c"))
    (found,) = restarted(path, query())
    assert (found["body"]["type"], found["body"]["channels"][0]["filter"]) == ("disk", None)


def test_a_queue_that_was_removed_under_its_subscribers_stays_removed(tmp_path):
    path = tmp_path / "q.db"
    with Broker(path) as broker:
        listener = broker.listen(URL)
        with closing(Ws(listener)) as admin, closing(Ws(listener)) as client:
            admin.do(**create(channel="c"))
            client.do(cmd="sub", mq="q", channel="c")
            admin.do(cmd="remove", mq="q")
            assert client.next()["status"] == 404
    (found,) = restarted(path, query())
    assert found["status"] == 404


def test_a_channel_that_was_removed_begins_without_its_settings(tmp_path):
    path = tmp_path / "q.db"
    restarted(path, create(channel="c", channelMask=2, filter="a"))
    restarted(path, {"cmd": "remove", "mq": "q", "channel": "c"})
    restarted(path, create(channel="c"))
    (found,) = restarted(path, query(channel="c"))
    assert (found["body"]["mask"], found["body"]["filter"]) == (0, None)


def test_entries_that_count_no_more_are_removed(broker, listener, ws):
    client = ws()
    for mask in range(9):
        client.do(**create(mqMask=mask, channel="c", channelMask=mask + 1))
    until(lambda: entries(broker) == 2)
    client.do(cmd="remove", mq="q", channel="c")
    until(lambda: entries(broker) == 1)
    client.do(**create(channel="c", channelMask=1))
    client.do(cmd="remove", mq="q")
    until(lambda: entries(broker) == 1)


def test_what_is_known_already_is_not_written_again(broker, ws):
    clients = [ws() for _ in range(5)]
    for client in clients:
        client.do(**create(channel="c", mqMask=4))
        client.do(cmd="remove", mq="q", channel="nothing")
    assert broker.queue(BOOK).stats().put == 1


def test_the_book_itself_is_no_queue_of_clients(broker, ws):
    client = ws()
    client.do(**create())
    for command in ("create", "remove"):
        assert client.do(cmd=command, mq=BOOK, channel="c")["status"] == 403
    for command in ("pub", "sub", "take", "query"):
        assert client.do("x", cmd=command, mq=BOOK, channel="c")["status"] == 404
    assert [each["name"] for each in client.do(cmd="query")["body"]] == ["q"]
    assert entries(broker) == 1


def test_who_may_not_remove_a_channel_changes_nothing_about_it(broker, tmp_path, ends):
    tokens = tmp_path / "tokens"
    tokens.touch(0o600)
    tokens.write_text("admin one\nreader[consume] two\n")
    listener = broker.listen(URL, auth=TokenFile(tokens))
    client = Ws(listener)
    ends.append(client)
    assert ask(client, signed({"headers": create(channel="c", channelMask=2)}, "admin", "one"))
    remove = {"headers": {"cmd": "remove", "mq": "q", "channel": "c"}}
    assert ask(client, signed(remove, "reader", "two")) == 403
    client.tell(signed({"headers": query(channel="c")}, "admin", "one"))
    assert client.next()["body"]["mask"] == 2


def test_clients_wait_until_the_book_is_read(tmp_path, monkeypatch):
    path = tmp_path / "q.db"
    restarted(path, create(mqMask=4), {"cmd": "remove", "mq": "q"})
    read, failures = book.read_book, iter([StoreBusy("not now")])

    def fails_first(broker):
        for failure in failures:
            raise failure
        return read(broker)

    monkeypatch.setattr(hub, "read_book", fails_first)
    with Broker(path) as broker:
        listener = broker.listen(URL)
        with closing(Ws(listener)) as client:
            assert client.do(**query())["status"] == 404
        assert listener.stats.counts["not_read store_busy"] == 1
