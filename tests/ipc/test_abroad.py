"""The door for other machines, with real sockets: who gets in, and what the others notice."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zmq

from embedq.events import Notice
from embedq.ipc import frames, keys
from embedq.ipc.abroad import Listening
from embedq.ipc.line import Line
from tests.ipc.abroad import free_port, make_keys
from tests.ipc.conftest import Served
from tests.ipc.peer import Peer, done, eventually


class Abroad(Served):
    """A served desk that listens at a port, too."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.keys = make_keys(path.parent / "keys", "ada", "bob")
        self.endpoint = f"tcp://127.0.0.1:{free_port()}"
        self.heard: list[Notice] = []
        self.desk.events.on("*", self.heard.append)

    def serve(self) -> None:
        self.start(listening=Listening(self.endpoint, keys.host_keys(self.keys)))

    def told(self, name: str) -> list[Notice]:
        return [notice for notice in self.heard if notice.name == name]

    def far(self, name: str = "ada", *, hello: bool = True, **options: Any) -> Peer:
        known = keys.client_keys(self.keys / f"{name}.secret")

        def prepare(made: zmq.Socket[bytes]) -> None:
            made.setsockopt(zmq.CURVE_SERVERKEY, known.host)
            made.setsockopt(zmq.CURVE_PUBLICKEY, known.pair.public)
            made.setsockopt(zmq.CURVE_SECRETKEY, known.pair.secret)

        return self.peer_with(prepare, hello=hello, **options)

    def peer_with(
        self, prepare: Callable[[zmq.Socket[bytes]], object], *, hello: bool, **options: Any
    ) -> Peer:
        made = Peer(self.endpoint, prepare=prepare, **options)
        peer = self.stack.enter_context(made)
        if hello:
            peer.hello()
        return peer


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Abroad]:
    served = Abroad(tmp_path / "q.db")
    with served.stack:
        yield served


@pytest.fixture
def abroad(closed: Abroad) -> Abroad:
    closed.serve()
    return closed


def test_near_and_far_clients_share_a_queue(abroad: Abroad) -> None:
    near, far = abroad.peer(), abroad.far()
    far.put(abroad.q, b"from afar")
    near.put(abroad.q, b"from here")
    (lease,) = near.exchange(group=abroad.g, most=1).leases
    assert lease.message.body == b"from afar"
    near.exchange(done(lease, abroad.g))
    (lease,) = far.exchange(group=abroad.g, most=1).leases
    assert lease.message.body == b"from here"
    far.exchange(done(lease, abroad.g))
    assert abroad.group.acked == 2
    assert abroad.told("reachable")[0].fields == {"endpoint": abroad.endpoint}


def test_a_client_is_called_by_the_name_of_its_key(abroad: Abroad) -> None:
    welcome = abroad.far("bob", hello=False).hello()
    assert abroad.desk.store.session_names([welcome.session]) == {welcome.session: "bob/peer"}


def test_a_name_without_end_is_cut(abroad: Abroad) -> None:
    welcome = abroad.peer(hello=False).hello(name="x" * 1_000_000)
    (name,) = abroad.desk.store.session_names([welcome.session]).values()
    assert name == "x" * 200


def test_a_file_that_a_far_client_names_is_not_touched(abroad: Abroad, tmp_path: Path) -> None:
    marks = tmp_path / "q.db.ipc" / f"{'0' * 32}.marks"
    marks.write_bytes(bytes(80))
    welcome = abroad.far(hello=False).hello(marks=str(marks))
    assert welcome.marks == 0
    assert marks.exists()


def test_what_a_far_client_holds_goes_back_when_its_connection_is_lost(abroad: Abroad) -> None:
    far = abroad.far()
    far.put(abroad.q, b"x")
    (lease,) = far.exchange(group=abroad.g, most=1).leases
    far.close()
    (again,) = abroad.peer().exchange(group=abroad.g, most=1, wait_ms=20_000).leases
    # Nobody can tell how far it had come: it counts as started.
    assert (again.message.seq, again.attempt) == (lease.message.seq, 2)
    assert abroad.told("client_lost")[0].fields["started"] == 1


def test_what_a_listener_of_a_far_client_handed_out_is_no_suspect_when_that_is_lost(
    abroad: Abroad,
) -> None:
    far = abroad.far()
    far.put(abroad.q, b"x")
    far.exchange(group=abroad.g, most=1, outside=True)
    far.close()
    (again,) = abroad.peer().exchange(group=abroad.g, most=1, wait_ms=20_000).leases
    assert (again.attempt, again.suspect) == (2, False)
    assert not abroad.told("crashed_delivery")


def test_a_far_client_that_comes_back_in_time_keeps_what_it_holds(abroad: Abroad) -> None:
    far = abroad.far()
    far.put(abroad.q, b"x")
    (lease,) = far.exchange(group=abroad.g, most=1).leases
    far.close()
    back = abroad.far(hello=False, session=far.token, numbers=far.numbers)
    held = frames.Held(abroad.g, lease.message.seq, lease.counter, True)
    welcome = back.hello(epoch=abroad.desk.store.epoch, held=[held])
    assert welcome.tokens == [(0, lease.counter)]
    assert back.exchange(done(lease, abroad.g)).stale == []
    assert abroad.group.acked == 1


def refused(abroad: Abroad, connect: Callable[[], Peer]) -> None:
    """See that a peer gets nothing, and that somebody else goes on undisturbed."""
    other = abroad.far("bob")
    before = abroad.server.stats.refused
    peer = connect()
    with contextlib.suppress(zmq.Again):
        peer.socket.send(frames.encode([hello(peer)]), zmq.NOBLOCK)
    eventually(lambda: abroad.server.stats.refused > before)
    assert not peer.receive(0.05)
    other.put(abroad.q, b"x")


def hello(peer: Peer) -> frames.Hello:
    return frames.Hello(list(frames.VERSIONS), peer.token, "peer", os.getpid())


def test_an_unknown_key_is_refused_and_counted(abroad: Abroad) -> None:
    (abroad.keys / "clients" / "ada.public").unlink()
    refused(abroad, lambda: abroad.far(hello=False))
    told = abroad.told("client_refused")
    ada = keys.client_keys(abroad.keys / "ada.secret").pair.public
    assert (told[0].fields["address"], ada.hex() in str(told[0].fields["why"])) == (
        "127.0.0.1",
        True,
    )


def test_a_client_that_does_not_encrypt_is_refused(abroad: Abroad) -> None:
    refused(abroad, lambda: abroad.peer_with(lambda _: None, hello=False))
    # Either end may be the first to see that.
    assert "does not encrypt" in str(abroad.told("client_refused")[0].fields["why"])


def test_a_client_with_the_key_of_another_host_is_refused(abroad: Abroad) -> None:
    def prepare(made: zmq.Socket[bytes]) -> None:
        ada = keys.client_keys(abroad.keys / "ada.secret")
        made.setsockopt(zmq.CURVE_SERVERKEY, ada.pair.public)
        made.setsockopt(zmq.CURVE_PUBLICKEY, ada.pair.public)
        made.setsockopt(zmq.CURVE_SECRETKEY, ada.pair.secret)

    refused(abroad, lambda: abroad.peer_with(prepare, hello=False))
    assert "another host" in str(abroad.told("client_refused")[0].fields["why"])


def test_why_a_host_serves_nobody_is_known_to_who_was_slower_than_its_end(abroad: Abroad) -> None:
    ada = keys.client_keys(abroad.keys / "ada.secret")
    wrong = replace(ada, host=ada.pair.public)
    ours, theirs = socket.socketpair()
    with ours, theirs, Line(abroad.endpoint, 1_000, ours, wrong) as line:
        eventually(lambda: not line.can_send)  # it has hung up, and nobody has looked yet
        line.send(b"hello")
        assert line.is_gone
        assert "has not the key" in line.trouble


def test_what_is_no_zeromq_at_all_costs_itself(abroad: Abroad) -> None:
    port = int(abroad.endpoint.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 10)
        stranger.settimeout(20)
        with contextlib.suppress(ConnectionResetError):
            while stranger.recv(4096):
                pass
    abroad.far().put(abroad.q, b"x")


def test_the_list_of_keys_counts_for_the_next_connection(abroad: Abroad) -> None:
    ada = abroad.far()
    file = abroad.keys / "clients" / "ada.public"
    public = bytes.fromhex(file.read_text())
    file.unlink()
    ada.put(abroad.q, b"this connection stays")
    refused(abroad, lambda: abroad.far(hello=False))
    keys.allow(abroad.keys, "ada", public)
    abroad.far().put(abroad.q, b"back")


def test_an_address_that_somebody_has_is_taken_as_soon_as_it_is_free(closed: Abroad) -> None:
    port = int(closed.endpoint.rpartition(":")[2])
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
        other.listen()
        closed.serve()
        closed.peer().put(closed.q, b"near clients are served")
        eventually(lambda: closed.told("not_served"))
        assert closed.endpoint in str(closed.told("not_served")[0].fields["detail"])
    eventually(lambda: closed.told("reachable"))
    closed.far().put(closed.q, b"x")


FORKING = """
import os, sys
from pathlib import Path
from embedq.broker.host import open_engine
from embedq.ipc import keys
from embedq.ipc.abroad import Listening
from embedq.ipc.server import Server
path, endpoint, folder = sys.argv[1:]
desk = open_engine(path)
server = Server(desk, path, listening=Listening(endpoint, keys.host_keys(folder)))
server.start()
desk.put(desk.queue("orders"), b"x")
print("serving", flush=True)
sys.stdin.readline()
if os.fork() == 0:
    print("child", flush=True)
    sys.stdin.read()
    os._exit(0)
os.wait()
"""


def test_a_child_made_by_fork_does_not_keep_the_port(closed: Abroad) -> None:
    path = closed.path.with_name("other.db")
    command = [sys.executable, "-c", FORKING, str(path), closed.endpoint, str(closed.keys)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        assert parent.stdout.readline() == "serving\n"
        closed.far()
        parent.stdin.write("fork\n")
        parent.stdin.flush()
        assert parent.stdout.readline() == "child\n"
        parent.kill()
        closed.serve()  # the port is free although the child lives
        eventually(lambda: closed.told("reachable"))
        closed.far("bob").put(closed.q, b"x")
