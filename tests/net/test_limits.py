"""Each limit of a listener, on both sides of it; whoever is over it pays alone."""

from __future__ import annotations

import math
import socket

import pytest

from embedq import InvalidOption
from embedq.net import NetLimits, Session
from tests.conformance.transport_suite import dial, eventually, is_cut, reset
from tests.net.client import Client
from tests.net.lines import LinesTransport


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        *((name, -1) for name in NetLimits.__dataclass_fields__),
        ("connections", 0),
        ("connections", True),
        ("connections", 1.0),
        ("frame_s", math.nan),
        ("frame_s", math.inf),
        ("frame_s", "5s"),
        ("pending_puts", 0),
    ],
)
def test_a_limit_that_cannot_be_meant_is_named(name, wrong):
    with pytest.raises(InvalidOption, match=f"limit {name}="):
        NetLimits(**{name: wrong})


def test_no_bound_no_queue_and_no_body_can_be_meant():
    limits = NetLimits(login_s=0, idle_s=0, created_queues=0, message_bytes=0)
    assert limits.login_s == limits.created_queues == 0


def alive(client: Client) -> bool:
    return client.say("PUT q x").startswith("STORED")


def test_as_many_connections_as_allowed_and_none_more(listen):
    listener = listen(connections=2)
    first, second, third = Client(listener), Client(listener), dial(listener)
    assert is_cut(third)
    assert alive(first)
    assert alive(second)
    assert listener.stats.refused == {"connections": 1}
    for each in (first.socket, second.socket, third):
        each.close()


def test_one_address_may_have_so_many_and_none_more(listen):
    listener = listen(connections_per_peer=1)
    first, second = Client(listener), dial(listener)
    assert is_cut(second)
    second.close()
    first.close()
    eventually(lambda: not listener.stats.connections)
    third = Client(listener)
    assert alive(third)
    third.close()


def test_a_body_of_exactly_the_limit_is_stored_a_longer_one_refused(listen):
    client = Client(listen(message_bytes=10))
    assert client.say(f"PUT q {'x' * 10}").startswith("STORED")
    assert client.say(f"PUT q {'x' * 11}") == "ERROR limit_exceeded"
    assert alive(client)
    client.close()


def test_a_name_that_no_queue_can_have_is_an_answer_and_costs_nothing(listen):
    listener = listen()
    client = Client(listener)
    assert client.say(f"PUT {'n' * 255} x").startswith("STORED")
    assert client.say(f"PUT {'n' * 256} x") == "ERROR invalid_name"
    assert client.say(f"GET {'n' * 256}") == "ERROR invalid_name"
    assert alive(client)
    assert not listener.stats.faults
    client.close()


def test_a_frame_over_the_limit_ends_its_connection_before_it_is_complete(listen):
    listener = listen(frame_bytes=100)
    client, other = Client(listener), Client(listener)
    client.socket.sendall(b"PUT q " + b"x" * 94)
    client.socket.sendall(b"y")
    assert is_cut(client.socket)
    assert alive(other)
    assert listener.stats.faults == {"too_long": 1}
    client.close()
    other.close()


def test_subscriptions_of_one_connection_are_counted(listen):
    client = Client(listen(subscriptions=1))
    client.socket.sendall(b"GET a\nGET b\n")
    assert client.line() == "ERROR not_allowed"
    assert alive(client)
    client.close()


def test_queues_that_clients_create_are_counted_for_the_listener(broker, listen):
    listener = listen(created_queues=2)
    first, second = Client(listener), Client(listener)
    assert first.say("PUT a x").startswith("STORED")
    assert second.say("PUT b x").startswith("STORED")
    assert first.say("PUT c x") == "ERROR limit_exceeded"
    assert second.say("GET c") == "ERROR limit_exceeded"
    assert alive(first)  # what is there can be used
    assert second.say("PUT a x").startswith("STORED")
    broker.queue("c").stats()
    assert first.say("PUT c x").startswith("STORED")
    assert {each.name for each in broker.stats().queues} == {"q", "a", "b", "c"}
    other = Client(listen(created_queues=1))
    assert other.say("PUT d x").startswith("STORED")
    assert other.say("PUT e x") == "ERROR limit_exceeded"
    for each in (first, second, other):
        each.close()


def test_what_a_transport_creates_for_clients_is_counted_and_what_it_was_told_is_not(broker):
    made: list[object] = []
    listener = broker.listen(
        "lines://127.0.0.1:0",
        transport=Maker(made),
        limits=NetLimits(created_queues=1),
    )
    eventually(lambda: len(made) == 4)
    codes = [getattr(each, "code", "made") for each in made]
    assert sorted(codes) == ["limit_exceeded", "made", "made", "made"]
    assert {"own", "again", "a"} <= {each.name for each in broker.stats().queues}
    listener.close()


class Maker:
    """Creates queues by the listener itself when it begins, and then as if a client had asked."""

    name, default_port, has_login = "maker", 7777, False

    def __init__(self, made: list[object]) -> None:
        self.made = made

    def open(self, site):
        office = site.broker.office
        site.broker.declare("own", self.made.append)
        site.broker.declare("again", self.made.append)

        def make() -> None:
            office.declare("a", {})

        site.broker.call(make, lambda _: site.broker.call(refused, self.made.append))

        def refused() -> None:
            self.made.append(office.declare("a", {}) and None)
            office.declare("b", {})

        return lambda connection: Session()


class Shared(LinesTransport):
    """Subscribes to queues by the listener itself, for all its clients, and settles nothing."""

    def __init__(self, *queues: str, window: int | None) -> None:
        self.queues = queues
        self.window = window
        self.got: list[str] = []
        self.failed: list[object] = []

    def open(self, site):
        for queue in self.queues:
            site.broker.subscribe(queue, self.came, window=self.window, failed=self.failed.append)
        return super().open(site)

    def came(self, delivery) -> None:
        self.got.append(delivery.queue)


def test_the_limits_of_one_connection_are_none_of_what_a_listener_does_for_all_of_its(broker):
    shared = Shared("a", "b", "c", window=2)
    for queue in shared.queues:
        broker.queue(queue).put_many(["x"] * 3)
    limits = NetLimits(subscriptions=1, unacked=1)
    broker.listen("lines://127.0.0.1:0", transport=shared, limits=limits)
    eventually(lambda: len(shared.got) == 6)
    assert sorted(shared.got) == ["a", "a", "b", "b", "c", "c"]  # the window holds, of each
    assert not shared.failed


def test_a_subscription_of_a_listener_without_a_window_has_that_of_one_connection(broker):
    shared = Shared("a", "b", window=None)
    for queue in shared.queues:
        broker.queue(queue).put_many(["x"] * 3)
    broker.listen("lines://127.0.0.1:0", transport=shared, limits=NetLimits(unacked=2))
    eventually(lambda: len(shared.got) == 4)
    assert sorted(shared.got) == ["a", "a", "b", "b"]
    assert [broker.queue(queue).group("default").stats().leased for queue in "ab"] == [2, 2]


def test_deliveries_that_are_held_are_counted(broker, listen):
    client = Client(listen(unacked=1))
    for _ in range(2):
        client.put(b"x")
    client.ask()
    client.ask()
    client.get()
    assert client.say("PUT other y").startswith("STORED")  # the second message has not come
    first = client._held
    client.socket.sendall(f"ACK {first}\n".encode())
    assert sorted([client.line()[:7], client.line()[:7]]) == ["MESSAGE", "OK"]
    client.close()


def test_what_is_settled_in_one_queue_makes_room_for_another_queue(broker, listen):
    client = Client(listen(unacked=1))
    broker.queue("a", str).put("x")
    client.socket.sendall(b"GET a\n")
    held = client.line().split()[1]
    client.socket.sendall(b"GET b\n")
    broker.queue("b", str).put("y")
    assert client.say("PUT other z").startswith("STORED")  # the one of b has not come
    client.socket.sendall(f"ACK {held}\n".encode())
    assert sorted([client.line()[:7], client.line()[:7]]) == ["MESSAGE", "OK"]
    client.close()


@pytest.mark.parametrize(
    ("limit", "what"), [("pending_puts", {"pending_puts": 1}), ("bytes", {"pending_bytes": 1})]
)
def test_with_one_put_under_way_a_socket_is_read_on_only_after_its_commit(listen, limit, what):
    client = Client(listen(**what))
    for _ in range(3):
        client.socket.sendall(b"PUT q x\n" * 50)
        for _ in range(50):
            assert client.line().startswith("STORED")
    client.close()


# --------------------------------------------------------------------------------- deadlines


def test_who_does_not_log_in_in_time_is_cut(listen, clock):
    class Everybody:
        def identify(self, _credentials):
            return None

    listener = listen(auth=Everybody(), login_s=10)
    client = Client(listener)
    eventually(lambda: listener.stats.connections == 1)
    clock.advance(9.9)
    listener.look()
    assert client.say("PUT q x") == "ERROR not_allowed"
    clock.advance(0.2)
    listener.look()
    assert is_cut(client.socket)
    assert listener.stats.closed == {"login_timeout": 1}
    client.close()


def test_a_frame_has_no_deadline_while_it_is_we_who_do_not_read(broker, listen, clock):
    full = broker.queue("full", max_length=1)
    listener = listen(frame_s=10, pending_puts=2)
    client = Client(listener)
    client.socket.sendall(b"PUT full a\nPUT full b\nPUT full c\nPUT fu")
    assert client.line().startswith("STORED")
    eventually(lambda: listener.stats.bytes_in == 39)
    clock.advance(11)
    listener.look()
    client.socket.sendall(b"ll d\n")
    bodies = set()
    for _ in range(4):
        with full.get(60) as message:
            bodies.add(message.body)
    assert bodies == {b"a", b"b", b"c", b"d"}
    for _ in range(3):
        assert client.line().startswith("STORED")
    client.close()


def test_a_frame_has_its_time_and_each_frame_begins_anew(listen, clock):
    listener = listen(frame_s=10)
    client, other = Client(listener), Client(listener)
    for _ in range(3):
        client.socket.sendall(b"PUT q x\nPUT q")  # always inside a frame, always another one
        client.line()
        clock.advance(6)
        listener.look()
        client.socket.sendall(b" x\n")
        assert client.line().startswith("STORED")
    got = listener.stats.bytes_in
    client.socket.sendall(b"P")
    eventually(lambda: listener.stats.bytes_in == got + 1)
    for letter in (b"U", b"T"):  # a byte now and then does not help
        clock.advance(6)
        client.socket.sendall(letter)
    listener.look()
    assert is_cut(client.socket)
    assert alive(other)
    client.close()
    other.close()


def test_an_idle_connection_is_cut_unless_it_waits_for_a_message(listen, clock):
    listener = listen(idle_s=10)
    idle, waiting, busy = Client(listener), Client(listener), Client(listener)
    waiting.socket.sendall(b"GET q2\n")
    assert alive(busy)
    clock.advance(9)
    assert alive(busy)
    eventually(lambda: listener.stats.connections == 3)
    clock.advance(2)
    listener.look()
    assert is_cut(idle.socket)
    assert busy.say("PUT q2 x").startswith("STORED")
    assert waiting.line().startswith("MESSAGE")
    for each in (idle, waiting, busy):
        each.close()


def test_who_reads_nothing_is_not_read_either_and_cut_in_the_end(broker, listen, clock):
    body = b"b" * 8_000_000  # more than any kernel takes for a client that reads nothing
    broker.queue("large").put(body)
    listener = listen(unsent_pause_bytes=2_000, stall_s=30)
    client, other = Client(listener), Client(listener)
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.socket.sendall(b"GET large\n")
    assert client.socket.recv(1) == b"M"
    read = listener.stats.bytes_in
    client.socket.sendall(b"PUT q y\n" * 1_000)
    for _ in range(5):
        assert alive(other)
    assert listener.stats.bytes_in == read + 5 * len("PUT q x\n")
    assert broker.queue("q").stats().stored == 5
    clock.advance(29)
    listener.look()
    assert listener.stats.connections == 2
    clock.advance(2)
    listener.look()
    eventually(lambda: listener.stats.connections == 1)
    assert listener.stats.closed == {"stalled": 1}
    assert alive(other)
    client.close()
    other.close()


def test_who_leaves_while_a_full_queue_lets_it_wait_leaves_nothing(broker, listen):
    broker.queue("full", max_length=1)
    listener = listen()
    client = Client(listener)
    assert client.say("PUT full x").startswith("STORED")
    client.socket.sendall(b"PUT full y\n" * 10)
    eventually(lambda: listener.stats.bytes_in > 100)
    reset(client)
    eventually(lambda: not listener.stats.connections)
    broker.queue("full").purge()
    other = Client(listener)
    assert other.say("PUT full z").startswith("STORED")
    assert broker.queue("full").stats().stored == 1
    other.close()


def test_who_shuts_its_side_while_a_full_queue_lets_it_wait_loses_nothing(broker, listen):
    full = broker.queue("full", max_length=1)
    listener = listen()
    client = Client(listener)
    client.socket.sendall(b"PUT full x\nPUT full y\n")
    assert client.line().startswith("STORED")
    client.socket.shutdown(socket.SHUT_WR)
    with full.get(0):
        pass
    assert client.line().startswith("STORED")
    assert is_cut(client.socket)
    client.close()


def test_what_comes_together_pushes_out_the_oldest_together(broker, listen):
    newest = broker.queue("newest", max_length=4, when_full="drop_oldest")
    client = Client(listen())
    assert client.say("PUT newest first").startswith("STORED")
    before = broker.stats().commits
    client.socket.sendall(b"".join(b"PUT newest %d\n" % n for n in range(40)))
    assert all(client.line().startswith("STORED") for _ in range(40))
    assert broker.stats().commits - before < 40
    assert [each.body for each in newest.peek(9)] == [b"36", b"37", b"38", b"39"]
    client.close()
