"""Where a listener listens: addresses, Unix sockets, who may come from where, what is refused."""

from __future__ import annotations

import errno
import os
import re
import shutil
import socket
import stat
import tempfile
import threading
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from embedq import (
    Broker,
    InsecureListener,
    InvalidOption,
    ListenFailed,
    NotRunning,
    TransportNotFound,
)
from embedq.net import finding, sockets
from embedq.net.allow import AllowList, is_loopback
from embedq.net.url import Place, parse_url
from tests.conformance.transport_suite import dial, is_cut
from tests.net.client import Client
from tests.net.lines import LINES


def test_an_address_says_protocol_host_port_and_options():
    place = parse_url("sspq://[::1]:8888?queue=a%20b&dead")
    assert (place.transport, place.host, place.port) == ("sspq", "::1", 8888)
    assert place.options == {"queue": "a b", "dead": ""}
    assert parse_url("sspq://").host == "127.0.0.1"
    assert parse_url("sspq://localhost").port is None
    assert parse_url("a+unix:///run/a.sock?x=1").path == "/run/a.sock"
    assert parse_url("a://?unix=/run/a.sock").path == "/run/a.sock"


@pytest.mark.parametrize(
    "url",
    [
        "nonsense",
        "://",
        "sspq:8888",
        "sspq://h:99999",
        "sspq://h:x",
        "sspq://me@h",
        "sspq://h/path",
        "sspq://h?a=1&a=2",
        "sspq://h#x",
        "sspq+unix://h/path",
        "sspq+unix:///",
        "sspq://h:1?unix=/x",
        "sspq+unix:///a%00b",
        "sspq://a..b:0",
        f"sspq://{'a' * 300}:0",
        5,
        None,
    ],
)
def test_an_address_that_cannot_be_meant_is_refused_with_an_example(url):
    with pytest.raises(InvalidOption, match="cannot be used") as caught:
        parse_url(url)
    assert re.search(r"sspq(\+unix)?://", str(caught.value.hint))


def test_a_protocol_that_is_not_installed_and_an_unknown_option_are_named(broker, listen):
    with pytest.raises(TransportNotFound, match="gopher"):
        broker.listen("gopher://127.0.0.1:0")
    with pytest.raises(InvalidOption, match="colour") as caught:
        listen(colour="red")
    assert "create" in str(caught.value.hint)
    with pytest.raises(InvalidOption, match="create"):
        listen("lines://127.0.0.1:0?create=perhaps")


@pytest.mark.parametrize(
    ("value", "error", "told"),
    [
        ("nowhere:X", TransportNotFound, "cannot be loaded from nowhere:X: ModuleNotFoundError"),
        ("tests.net.lines:MISSING", TransportNotFound, "AttributeError"),
        ("tests.net.lines:LinesTransport", InvalidOption, "has no open"),
        ("tests.net.lines:LinesWire", InvalidOption, "has no name, default_port, has_login"),
    ],
    ids=["module", "name", "class", "other"],
)
def test_a_package_whose_protocol_cannot_be_had_is_named(broker, monkeypatch, value, error, told):
    point = EntryPoint("broken", value, "embedq.transports")
    monkeypatch.setattr(finding, "entry_points", lambda **_: (point,))
    with pytest.raises(error, match="broken") as caught:
        broker.listen("broken://127.0.0.1:0")
    assert told in str(caught.value)


def test_a_host_that_nobody_knows_is_told_as_such(listen, monkeypatch):
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(ListenFailed, match="not known") as caught:
        listen("lines://nowhere.invalid:0", insecure=True)
    assert "address of this machine" in str(caught.value.hint)


def test_an_address_in_use_is_told(listen):
    listener = listen()
    with pytest.raises(ListenFailed, match="in use"):
        listen(listener.url)


def test_an_address_that_is_not_bound_in_time_is_told_and_stays_unbound(listen, monkeypatch):
    network, free = listen().inner._network, threading.Event()
    bound: list[Place] = []
    bind = sockets.bind

    def noted(place: Place, port: int) -> list[socket.socket]:
        bound.append(place)
        return bind(place, port)

    monkeypatch.setattr(sockets, "bind", noted)
    monkeypatch.setattr("embedq.net.listener._BIND_S", 0.05)
    network.post(lambda: free.wait(60))
    with pytest.raises(ListenFailed, match=r"127\.0\.0\.1:0 was not ready within 0\.05 seconds"):
        listen()
    free.set()
    monkeypatch.undo()
    Client(listen()).close()
    assert not bound


def test_a_broker_that_cannot_listen_at_one_address_listens_at_none(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        broker = Broker(tmp_path / "q.db")
        free = broker.listen("lines://127.0.0.1:0", transport=LINES)
        wish = f"lines://127.0.0.1:{taken.getsockname()[1]}"
        in_use = broker.listen(wish, transport=LINES)
        with pytest.raises(ListenFailed, match="in use"):
            broker.start()
        later = broker.listen("lines://127.0.0.1:0", transport=LINES)
        for listener in (free, in_use, later):
            with pytest.raises(NotRunning):
                _ = listener.address
    broker.start()
    assert len({listener.address for listener in (free, in_use, later)}) == 3
    broker.stop()


def test_what_other_machines_reach_needs_to_know_who_they_are(listen):
    for url in ("lines://0.0.0.0:0", "lines://[::]:0", "lines://some.host:1"):
        with pytest.raises(InsecureListener, match="other machines"):
            listen(url)
    client = Client(listen("lines://0.0.0.0:0", insecure=True))
    client.put(b"x")
    client.close()


def test_loopback_is_what_only_this_machine_reaches():
    assert all(map(is_loopback, ["127.0.0.1", "127.9.9.9", "::1", "localhost"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "10.0.0.1", "example.org", ""]))


# ------------------------------------------------------------------------------ allow-lists


def test_addresses_and_networks_are_allowed():
    allowed = AllowList(["10.0.0.0/8", "::1", "192.168.1.7"])
    assert all(map(allowed.has, ["10.1.2.3", "::1", "192.168.1.7", "::ffff:10.0.0.1", ""]))
    assert not any(map(allowed.has, ["11.0.0.1", "192.168.1.8", "::2", "?", "fe80::1%eth0"]))
    with pytest.raises(InvalidOption, match=r"10\.0\.0\.1/8"):
        AllowList(["10.0.0.1/8"])


def test_who_comes_from_elsewhere_is_closed_at_once(listen):
    listener = listen(allow=["10.0.0.0/8"])
    with dial(listener) as sock:
        assert is_cut(sock)
    assert listener.stats.refused == {"address": 1}


# ----------------------------------------------------------------------------- Unix sockets


def test_a_unix_socket_is_its_owners_and_goes_with_the_listener(listen, tmp_path):
    path = tmp_path / "a.sock"
    listener = listen(f"lines+unix://{path}")
    assert listener.address == str(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    client = Client(listener)
    client.put(b"x")
    client.close()
    listener.close()
    assert not path.exists()


def test_a_socket_whose_listener_died_is_replaced_a_live_one_and_a_file_stay(listen, tmp_path):
    path = tmp_path / "a.sock"
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(path))
    dead.close()
    listener = listen(f"lines+unix://{path}")
    with pytest.raises(ListenFailed, match="somebody listens"):
        listen(f"lines+unix://{path}")
    client = Client(listener)
    client.put(b"x")
    client.close()
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ListenFailed, match="no socket"):
        listen(f"lines+unix://{tmp_path}/file")
    with pytest.raises(ListenFailed, match="98 bytes"):
        listen(f"lines+unix://{tmp_path}/{'x' * 120}")


def test_a_successor_at_the_same_path_is_not_removed(listen, tmp_path):
    path = tmp_path / "a.sock"
    listener = listen(f"lines+unix://{path}")
    path.unlink()
    with socket.socket(socket.AF_UNIX) as successor:
        successor.bind(str(path))
        listener.close()
        assert path.exists()


# ----------------------------------------------------------------------------- with a broker


def test_a_listener_runs_while_its_broker_does(tmp_path):
    from embedq import Broker

    broker = Broker(tmp_path / "again.db")
    listener = broker.listen("lines://127.0.0.1:0", transport=LINES)
    with pytest.raises(NotRunning, match="not listened"):
        _ = listener.address
    for _ in range(2):
        with broker:
            client = Client(listener)
            client.put(b"x")
        assert is_cut(client.socket)
        client.close()
    with Broker(tmp_path / "again.db") as other:
        assert other.queue("q").stats().stored == 2


def test_a_client_of_another_host_can_listen_too(broker, tmp_path):
    from embedq import Broker

    with Broker(tmp_path / "q.db", role="client") as second:
        client = Client(second.listen("lines://127.0.0.1:0", transport=LINES))
        client.put(b"through both")
        assert client.get() == b"through both"
        client.settle()
        client.close()
    assert broker.queue("q").stats().stored == 0


def test_a_path_that_is_too_long_for_a_socket_is_refused_and_leaves_nothing(listen, tmp_path):
    folder = tmp_path / ("d" * 50) / ("e" * 50)
    folder.mkdir(parents=True)
    with pytest.raises(ListenFailed, match="at most 98 bytes"):
        listen(f"lines+unix://{folder}/s")
    assert list(folder.iterdir()) == []


def test_the_longest_path_of_a_socket_is_one(listen, monkeypatch, tmp_path):
    short = Path(tempfile.mkdtemp(dir="/tmp"))
    monkeypatch.setattr(os, "getpid", lambda: 4_194_303)  # the longest there is
    try:
        path = str(short / "s").ljust(98, "s")
        with dial(listen(f"lines+unix://{path}")) as sock:
            sock.sendall(b"PUT q x\n")
            assert sock.recv(6) == b"STORED"
    finally:
        shutil.rmtree(short)


def places_of(address: str, *more: str) -> list[tuple[object, ...]]:
    return [
        (socket.AF_INET6 if ":" in each else socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, 0))
        for each in (address, *more)
    ]


def test_an_address_that_this_machine_does_not_have_is_left_out_if_there_is_another(monkeypatch):
    found = places_of("192.0.2.1", "127.0.0.1")  # the first one is for documentation
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    (sock,) = sockets.bind(parse_url("lines://localhost:0"), 0)
    assert sock.getsockname()[0] == "127.0.0.1"
    sock.close()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found[:1])
    with pytest.raises(OSError, match="assign"):
        sockets.bind(parse_url("lines://localhost:0"), 0)


def test_a_free_port_is_free_at_all_addresses_of_a_host(monkeypatch):
    found = places_of("127.0.0.1", "127.0.0.2")
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    real = sockets._bind_one
    taken: list[int] = []

    def bind_one(family, kind, protocol, address, **options):
        if address[1] and len(taken) < 3:
            taken.append(address[1])
            raise OSError(errno.EADDRINUSE, "taken")
        return real(family, kind, protocol, address, **options)

    monkeypatch.setattr(sockets, "_bind_one", bind_one)
    first, second = sockets.bind(parse_url("lines://localhost:0"), 0)
    assert len(taken) == 3
    assert first.getsockname()[1] == second.getsockname()[1]
    first.close()
    second.close()


def test_the_kernel_asks_after_clients_that_have_said_nothing_for_a_while():
    (sock,) = sockets.bind(parse_url("lines://127.0.0.1:0"), 0)
    with sock, socket.create_connection(sock.getsockname()):
        there, _ = sock.accept()
        with there:
            assert there.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            if hasattr(socket, "TCP_KEEPIDLE"):
                assert there.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60


def test_a_listener_may_be_closed_more_than_once_and_by_several_threads(broker, listen):
    listener = listen()
    client = Client(listener)
    client.put(b"x")
    threads = [threading.Thread(target=listener.close) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert is_cut(client.socket)
    listener.close()
    broker.stop()
    listener.close()
    client.close()
