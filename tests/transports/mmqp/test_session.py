"""MMQP sessions on real sockets: what is stored, what is answered, and how it ends."""

from __future__ import annotations

import json
import logging
import socket
import time

import pytest

from embedq.errors import InvalidOption
from embedq.net import NetLimits
from embedq.net.port import Identity
from embedq_transports.mmqp import MMQP
from embedq_transports.mmqp.requests import GroupPoll, Ping, Poll, Send, encode_request
from tests.interop.mmqp_client import Mack, Poller, Reader, Refused, messages

URL = "mmqp://127.0.0.1:0"


def ask(address, data: bytes, *, half_close: bool = False) -> bytes:
    with socket.create_connection(address, 30) as sock:
        sock.sendall(data)
        if half_close:
            sock.shutdown(socket.SHUT_WR)
        parts = []
        while part := sock.recv(65_536):
            parts.append(part)
    return b"".join(parts)


def until(condition) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.005)


# --- messages ------------------------------------------------------------------------------------


def test_the_original_client_sends_a_message_with_its_group_and_hears_nothing(orders, address):
    assert Mack(address, "bob", "pw").send("orders", "héllo ☃") == ""
    with orders.get(timeout=60) as delivery:
        assert delivery.body == "héllo ☃"
        assert delivery.ordering_key == "mg1"


@pytest.mark.parametrize("group", [None, "", "main"])
def test_a_message_without_a_group_of_its_own_has_no_ordering_key(orders, address, group):
    assert ask(address, encode_request(Send("orders", b"text", group))) == b""
    with orders.get(timeout=60) as delivery:
        assert delivery.ordering_key is None


def test_a_form_that_does_not_end_is_complete_after_a_pause(orders, address):
    data = encode_request(Send("orders", b"four fields"), ending=b"")
    assert ask(address, data) == b""
    assert orders.get(timeout=60).body == "four fields"


def test_a_request_that_comes_in_two_pieces_is_read_wherever_it_is_cut(orders, broker):
    # A pause is no end of a request here: some cuts are, where a shorter form would end.
    address = broker.listen(URL, transport=MMQP, quiet="5s").address
    request = Mack(address).request("orders", "hello")
    for cut in range(1, len(request)):
        with socket.create_connection(address, 30) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.sendall(request[:cut])
            sock.sendall(request[cut:])
            assert sock.recv(1) == b""
    assert [each.body for each in orders.peek(100)] == [b"hello"] * (len(request) - 1)


def test_what_a_client_cuts_off_by_its_end_is_not_stored_and_counted(orders, broker):
    # It knows that it has not sent it: its end is one in good order.
    listener = broker.listen(URL, transport=MMQP)
    request = Mack(listener.address).request("orders", "hello")
    whole = len(request) - 1  # the zero byte may be missing
    for cut in range(1, whole):
        assert ask(listener.address, request[:cut], half_close=True) == b""
    # Where the group is complete and no bar follows, it is the body of the shorter form.
    (short,) = orders.get_many(100)
    assert short.body == "mg1"
    assert listener.stats.faults == {"truncated": whole - 2}


def test_what_a_client_cuts_off_of_a_poll_takes_nothing_out_until_a_count_is_there(
    orders, address
):
    orders.put_many(["a", "b"])
    head = Poller(address).head(b"P", "orders")
    for cut in range(1, len(head) + 1):
        assert ask(address, head[:cut], half_close=True) == b""
    for behind in (b"\x01\x01g|", b"\x01\x01g|\x01", b"\x01\x01g|\x01\x02x"):
        assert ask(address, head + behind, half_close=True) == b""
    assert orders.stats().length == 2


def test_messages_before_one_that_is_cut_off_are_stored(orders, address):
    request = Mack(address).request("orders", "hello")
    assert ask(address, request + request[:-3], half_close=True) == b""
    assert [each.body for each in orders.peek(9)] == [b"hello"]


def test_an_answer_that_is_on_its_way_is_not_taken_back_by_what_is_cut_off_behind_it(
    orders, address
):
    orders.put("a")
    data = encode_request(Poll("orders", 1)) + Mack(address).request("orders", "hello")[:-3]
    assert [each.body for each in messages(ask(address, data, half_close=True))] == ["a"]


def test_several_messages_at_once_are_all_stored_in_order(orders, address):
    data = b"".join(encode_request(Send("orders", b"%d" % n)) for n in range(300))
    assert ask(address, data) == b""
    assert [each.body for each in orders.get_many(500)] == [str(n) for n in range(300)]


def test_a_poll_behind_messages_gets_them(orders, address):
    data = encode_request(Send("orders", b"a")) + encode_request(Send("orders", b"b"))
    got = messages(ask(address, data + encode_request(Poll("orders", 9))))
    assert [each.body for each in got] == ["a", "b"]


# --- polls ---------------------------------------------------------------------------------------


def test_a_poll_gets_records_and_removes_them(orders, address):
    before = int(time.time() * 1000) - 1000
    receipts = orders.put_many(["a", "b", "c"])
    got = Poller(address).poll("orders", 2)
    assert [each.body for each in got] == ["a", "b"]
    assert [each.id.rstrip(b"\0").decode() for each in got] == [each.id for each in receipts[:2]]
    assert {each.group for each in got} == {"main"}
    assert all(before < each.received_ms == each.available_ms for each in got)
    assert [each.receive_count for each in got] == [0, 0]
    until(lambda: orders.stats().length == 1)


@pytest.mark.parametrize("half_close", [False, True])
@pytest.mark.parametrize(
    "behind", [b"\x02\n", b"\x02\r\n", b"\x02\x01\x00\n", b"\x02|\n", b"\x02" + b"\n" * 9_999]
)
def test_what_stands_behind_a_count_is_ignored(orders, address, behind, half_close):
    orders.put_many(["a", "b", "c"])
    request = Poller(address).head(b"P", "orders") + behind
    got = messages(ask(address, request, half_close=half_close))
    assert [each.body for each in got] == ["a", "b"]


@pytest.mark.parametrize("behind", [b"\x01\x03mg1\0", b"\x01\x03mg1"])
def test_a_group_without_its_bar_stands_behind_a_count(orders, address, behind):
    orders.put("a")
    got = messages(ask(address, Poller(address).head(b"P", "orders") + behind))
    assert [each.body for each in got] == ["a"]


@pytest.mark.parametrize("half_close", [False, True])
def test_a_message_behind_what_is_ignored_is_stored(orders, address, half_close):
    orders.put("a")
    request = Poller(address).head(b"P", "orders") + b"\x02\n"
    request += encode_request(Send("orders", b"b"), ending=b"")
    got = messages(ask(address, request, half_close=half_close))
    assert [each.body for each in got] == ["a"]
    assert orders.get(timeout=60).body == "b"


def test_an_empty_queue_and_a_poll_for_none_answer_with_an_empty_list(orders, address):
    assert Poller(address).poll("orders", 3) == []
    orders.put("a")
    assert Poller(address).poll("orders", 0) == []
    assert orders.stats().length == 1


def test_the_published_poll_gets_one_message_of_its_group(orders, address):
    for number, group in enumerate(["x", "y", "x", None]):
        orders.put(str(number), ordering_key=group)
    reader = Reader(address)
    assert [each.body for each in reader.poll("orders", "y")] == ["1"]
    assert reader.poll("orders", "y") == []
    assert [each.body for each in reader.poll("orders", "main")] == ["3"]
    assert [each.body for each in reader.poll("orders", "")] == ["0"]
    assert [each.body for each in reader.poll("orders", "0")] == ["2"]


def test_a_second_group_that_differs_is_counted_and_told_once_of_a_connection(
    orders, broker, caplog
):
    caplog.set_level(logging.INFO, "embedq.net")
    listener = broker.listen(URL, transport=MMQP)
    orders.put("mine", ordering_key="x")
    orders.put("not mine", ordering_key="y")
    polls = encode_request(GroupPoll("orders", "x", "y\n")) * 2
    answer = ask(listener.address, polls)
    assert (answer.count(b"MMQP|0.1|M|"), answer.count(b"mine")) == (2, 1)
    assert listener.stats.counts["ignored second_group"] == 2
    (record,) = (each for each in caplog.records if each.name == "embedq.net")
    assert "asks for the group 'x' and then for 'y\\n'" in record.getMessage()
    for second in ("x", "0", "", None):  # the same, or 0
        ask(listener.address, encode_request(GroupPoll("orders", "x", second)))
    assert listener.stats.counts["ignored second_group"] == 2
    ask(listener.address, encode_request(GroupPoll("orders", "", "y")))
    assert listener.stats.counts["ignored second_group"] == 3
    assert len(caplog.records) == 2, "it is another connection"


def test_a_group_is_found_behind_many_messages_of_others(orders, address):
    orders.put_many(["other"] * 700)
    orders.put("mine", ordering_key="x")
    assert [each.body for each in Reader(address).poll("orders", "x")] == ["mine"]
    with orders.get(timeout=60) as first:
        assert first.attempt == 1, "what was passed over has cost an attempt"


def test_bodies_that_are_no_text_stay_where_they_are(orders, broker):
    listener = broker.listen(URL, transport=MMQP)
    orders.put_many([b"\xff", b"a", b"\xfe\xff", b"b"])
    assert [each.body for each in Poller(listener.address).poll("orders", 9)] == ["a", "b"]
    until(lambda: orders.stats().length == 2)
    assert {each.body for each in orders.get_many(9)} == {b"\xff", b"\xfe\xff"}


def test_an_answer_is_full_at_its_limit_and_has_at_least_one_record(orders, broker):
    limits = NetLimits(message_bytes=1_000)
    listener = broker.listen(URL, transport=MMQP, limits=limits, answer_bytes=2_048)
    orders.put_many(["a" * 900] * 5 + ["b" * 5_000, "c"])
    sizes = []
    while got := Poller(listener.address).poll("orders", 255):
        sizes.append([len(each.body) for each in got])
    assert sizes == [[900], [900], [900], [900], [900], [5_000], [1]]


def test_a_message_that_did_not_leave_is_given_back_and_costs_no_attempt(orders, address):
    orders.put("x" * 8_000_000)
    with socket.create_connection(address, 30) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        sock.sendall(encode_request(Poll("orders", 1)))
        assert sock.recv(1) == b"M"
    with orders.get(timeout=30) as delivery:
        assert delivery.attempt == 1


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_", [Send("nö", b"x"), Poll("nö", 1), Poll("nö", 0), GroupPoll("nö", "g")]
)
def test_an_unknown_queue_is_named_as_it_came(address, request_):
    assert ask(address, encode_request(request_)) == "MMQP|0.1|R|QUEUE_NOT_FOUND|nö|0".encode()


def test_nothing_behind_a_refused_poll_is_begun(orders, address):
    data = encode_request(Poll("nosuch", 1)) + encode_request(Send("orders", b"late"))
    assert ask(address, data) == b"MMQP|0.1|R|QUEUE_NOT_FOUND|nosuch|0"
    assert orders.stats().length == 0


def test_messages_that_come_with_a_refused_one_may_be_stored_and_nothing_behind_them(
    orders, address
):
    data = encode_request(Send("nosuch", b"refused")) + encode_request(Send("orders", b"with it"))
    data += encode_request(Poll("orders", 9)) + encode_request(Send("orders", b"late"))
    assert ask(address, data) == b"MMQP|0.1|R|QUEUE_NOT_FOUND|nosuch|0"
    assert [each.body for each in orders.peek(9)] in ([], [b"with it"])


def test_a_queue_is_made_by_its_first_message_where_that_is_wanted(broker):
    address = broker.listen(URL, transport=MMQP, create=True).address
    assert Mack(address).send("new", "text") == ""
    assert broker.queue("new").get(timeout=60).body == "text"


def test_a_full_queue_says_so(broker):
    queue = broker.queue("full", max_length=1, when_full="reject")
    address = broker.listen(URL, transport=MMQP).address
    assert Mack(address).send("full", "a") == ""
    assert Mack(address).send("full", "b").startswith("MMQP|0.1|R|QUEUE_FULL|")
    assert queue.stats().length == 1


def test_a_large_message_is_refused_before_it_is_there(orders, broker):
    address = broker.listen(URL, transport=MMQP, limits=NetLimits(message_bytes=100)).address
    assert Mack(address).send("orders", "x" * 100) == ""
    refused = Mack(address).send("orders", "x" * 101)
    assert refused.startswith("MMQP|0.1|R|TOO_LARGE|")
    assert orders.stats().length == 1


@pytest.mark.parametrize(
    ("data", "answer"),
    [
        (b"XXXX|\0.\1|P|", b""),
        (b"MMQP|\0.\1|X|", b"MMQP|0.1|R|UNKNOWN_COMMAND|"),
        (b"MMQP|\0.\2|M|", b"MMQP|0.1|R|BAD_VERSION|"),
        (b"MMQP?\0.\1?M?", b"MMQP|0.1|R|BAD_REQUEST|"),
    ],
)
def test_what_is_no_request_is_answered_in_the_shape_of_the_original(address, data, answer):
    found = ask(address, data)
    assert found.startswith(answer)
    assert bool(found) is bool(answer)


def test_a_health_check_hears_pong(address):
    answer = ask(address, encode_request(Ping()))
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\npong")


# --- who may ------------------------------------------------------------------------------------


class Bob:
    """Knows bob, who may only use one queue."""

    def identify(self, credentials):
        if (credentials.name, credentials.secret) == ("bob", b"pw"):
            return Identity("bob", queues=frozenset({"orders"}))
        return None


def test_who_is_unknown_does_not_learn_which_queues_there_are(orders, broker):
    address = broker.listen(URL, transport=MMQP, auth=Bob()).address
    for client in (Mack(address), Mack(address, "bob", "wrong"), Mack(address, "eve", "pw")):
        assert client.send("orders", "x") == "MMQP|0.1|R|AUTH_FAILED||0"
        assert client.send("nosuch", "x") == "MMQP|0.1|R|AUTH_FAILED||0"
    assert Mack(address, "bob", "pw").send("nosuch", "x") == "MMQP|0.1|R|AUTH_FAILED||0"
    assert Mack(address, "bob", "pw").send("orders", "x") == ""
    with pytest.raises(Refused, match="AUTH_FAILED"):
        Poller(address).poll("orders", 1)
    assert [each.body for each in Poller(address, "bob", "pw").poll("orders", 1)] == ["x"]


def test_every_request_of_a_connection_says_who_it_is_of(orders, broker):
    address = broker.listen(URL, transport=MMQP, auth=Bob()).address
    data = encode_request(Send("orders", b"a", None, "bob", "pw"))
    data += encode_request(Send("orders", b"b", None, "eve", "pw"))
    assert ask(address, data) == b"MMQP|0.1|R|AUTH_FAILED||0"
    assert orders.stats().length == 1


# --- configuration -------------------------------------------------------------------------------


def test_the_originals_file_of_queues_is_read(broker, tmp_path):
    file = tmp_path / "queue_config.json"
    entries = [
        {"name": "a", "pending_mode": "Read"},
        {"name": "qué", "pending_mode": "Push", "x": 1},
    ]
    file.write_text(json.dumps(entries))
    address = broker.listen(f"{URL}?config={file}", transport=MMQP).address
    assert Mack(address).send("qué", "x") == ""
    assert Poller(address).poll("a", 1) == []
    with pytest.raises(Refused, match="QUEUE_NOT_FOUND"):
        Poller(address).poll("b", 1)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "malformed|truncated|data"),
        ("{}", "not a list"),
        ("[1]", "entry 1 is not an object"),
        ('[{"name": "a"}]', "no text 'pending_mode'"),
        ('[{"pending_mode": "Read"}]', "no text 'name'"),
        ('[{"name": "a", "pending_mode": "read"}]', "pending_mode 'read'"),
    ],
)
def test_faults_of_that_file_are_told(broker, tmp_path, text, why):
    file = tmp_path / "queue_config.json"
    file.write_text(text)
    with pytest.raises(InvalidOption, match=why):
        broker.listen(URL, transport=MMQP, config=str(file))


def test_a_missing_file_is_told(broker, tmp_path):
    with pytest.raises(InvalidOption, match="cannot be read"):
        broker.listen(URL, transport=MMQP, config=str(tmp_path / "none.json"))


# --- how it ends ---------------------------------------------------------------------------------


def test_who_is_within_a_request_at_the_end_is_not_told_that_it_is_stored(orders, broker):
    listener = broker.listen(URL, transport=MMQP)
    with socket.create_connection(listener.address, 30) as sock:
        sock.sendall(Mack(listener.address).request("orders", "hello")[:-3])
        until(lambda: listener.stats.connections == 1)
        listener.close()
        assert sock.recv(100) == b"MMQP|0.1|R|SHUTTING_DOWN||0"
    assert orders.stats().length == 0


@pytest.mark.parametrize("how", ["closes", "shuts its side"])
def test_who_asks_for_nothing_and_goes_is_let_go(broker, how):
    listener = broker.listen(URL, transport=MMQP)
    with socket.create_connection(listener.address, 30) as sock:
        until(lambda: listener.stats.connections == 1)
        if how == "closes":
            sock.close()
        else:
            sock.shutdown(socket.SHUT_WR)
            assert sock.recv(1) == b""
        until(lambda: listener.stats.connections == 0)
