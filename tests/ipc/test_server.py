"""The server with real sockets: puts, claims, settlements, and clients that break the rules."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

from embedq.broker.host import open_engine
from embedq.ipc import frames
from embedq.ipc.place import find_host
from embedq.ipc.server import Server
from embedq.storage.rows import Row
from tests.ipc.conftest import Served
from tests.ipc.peer import Peer, done, eventually, released


def test_a_welcome_says_whom_one_is_talking_to(served: Served) -> None:
    peer = served.peer(hello=False)
    welcome = peer.hello()
    assert welcome.version == frames.VERSIONS[0]
    assert welcome.epoch == served.desk.store.epoch
    assert welcome.key == served.desk.store.key
    assert served.desk.store.session_names([welcome.session]) == {welcome.session: "peer"}
    assert abs(welcome.now_ms - served.desk.now_ms()) < 5_000


def test_the_lock_file_names_the_socket_while_it_is_served(unstarted: Served) -> None:
    assert find_host(unstarted.path) is None
    unstarted.start()
    found = find_host(unstarted.path)
    assert found is not None
    assert (found.epoch, found.endpoint) == (1, unstarted.server.endpoint)
    unstarted.server.stop()
    assert find_host(unstarted.path) is None
    assert not Path(found.endpoint.removeprefix("ipc://")).exists()


def test_what_is_put_is_stored_and_the_seq_comes_back(served: Served) -> None:
    peer = served.peer()
    first = peer.put(served.q, b"a", b"b", b"c")
    assert [m.body for m in served.desk.peek(served.queue)] == [b"a", b"b", b"c"]
    assert [m.seq for m in served.desk.peek(served.queue)] == [first, first + 1, first + 2]


def test_many_puts_of_many_clients_get_their_own_seqs(served: Served) -> None:
    peers = [served.peer() for _ in range(3)]
    for peer in peers:
        peer.send(*[frames.Put(n, served.q, 0, [b"%d" % n]) for n in range(1, 21)])
    seqs = []
    for peer in peers:
        answers = [peer.answer_to(n) for n in range(1, 21)]
        mine = [a.first for a in answers if isinstance(a, frames.Stored_)]
        assert mine == sorted(mine)
        seqs += mine
    assert sorted(seqs) == list(range(min(seqs), min(seqs) + 60))


def test_rows_keep_their_options(served: Served) -> None:
    peer = served.peer()
    row = Row(0, 0, 7, None, None, None, 3, None, b"urgent", "once", 1 << 50)
    answer = peer.ask(lambda n: frames.PutRows(n, served.q, [row, row]))
    assert isinstance(answer, frames.Receipts)
    assert answer.seqs[0] == answer.seqs[1]
    assert answer.known == [1]
    (message,) = served.desk.peek(served.queue)
    assert (message.priority, message.max_attempts) == (7, 3)


def test_a_claim_is_settled_with_the_next_one(served: Served) -> None:
    peer = served.peer()
    peer.put(served.q, b"a", b"b")
    (lease,) = peer.exchange(group=served.g, most=1).leases
    assert (lease.message.body, lease.attempt, lease.suspect) == (b"a", 1, False)
    assert 29_000 < lease.lease_ms <= 30_000
    answer = peer.exchange(done(lease, served.g), group=served.g, most=5)
    assert [each.message.body for each in answer.leases] == [b"b"]
    assert answer.stale == []
    assert served.group.acked == 1


def test_a_claim_waits_for_a_message(served: Served) -> None:
    peer, other = served.peer(), served.peer()
    n = peer.n()
    peer.send(frames.Exchange(n, [], served.g, 1, None))
    assert not peer.receive(0.1)
    other.put(served.q, b"late")
    answer = peer.answer_to(n)
    assert isinstance(answer, frames.Exchanged)
    assert answer.leases[0].message.body == b"late"


def test_a_claim_that_waits_long_enough_comes_back_empty(served: Served) -> None:
    peer = served.peer()
    began = time.monotonic()
    assert peer.exchange(group=served.g, most=1, wait_ms=150).leases == []
    assert time.monotonic() - began >= 0.14


def test_a_cancelled_claim_is_answered_and_what_it_settles_is_settled(served: Served) -> None:
    peer = served.peer()
    peer.put(served.q, b"a")
    (lease,) = peer.exchange(group=served.g, most=1).leases
    n = peer.n()
    peer.send(frames.Exchange(n, [done(lease, served.g)], served.g, 1, None), frames.Cancel(n))
    answer = peer.answer_to(n)
    assert isinstance(answer, frames.Exchanged)
    assert (answer.leases, answer.stale) == ([], [])
    assert served.group.acked == 1
    peer.put(served.q, b"b")
    assert served.group.index.has_ready  # nobody waits for it any more
    assert not served.group.waiters


def test_a_stale_token_changes_nothing(served: Served) -> None:
    peer, other = served.peer(), served.peer()
    peer.put(served.q, b"a")
    (lease,) = peer.exchange(group=served.g, most=1).leases
    token = done(lease, served.g)
    assert other.exchange(token).stale == [0]  # somebody else's
    wrong = frames.WireEnding(served.g, lease.message.seq + 1, lease.counter)
    assert peer.exchange(wrong, token).stale == [0]
    assert peer.exchange(token).stale == [0]
    assert served.group.acked == 1


def test_an_extended_lease_ends_later(served: Served) -> None:
    peer = served.peer()
    peer.put(served.q, b"a")
    (lease,) = peer.exchange(group=served.g, most=1, lease_ms=60_000).leases
    token = frames.Token(served.g, lease.message.seq, lease.counter)
    assert isinstance(peer.ask(lambda n: frames.Extend(n, token, 500_000)), frames.Done)
    assert served.group.leases[lease.message.seq].deadline > served.desk.monotonic() + 400
    unknown = token.__class__(served.g, lease.message.seq, lease.counter + 1)
    answer = peer.ask(lambda n: frames.Extend(n, unknown, 1))
    assert isinstance(answer, frames.Failed)
    assert answer.code == "stale_lease"


def test_a_kept_lease_is_renewed_and_another_one_is_lost(served: Served) -> None:
    peer = served.peer()
    peer.put(served.q, b"kept", b"left")
    (kept,) = peer.exchange(group=served.g, most=1, lease_ms=100, keep=True).leases
    (left,) = peer.exchange(group=served.g, most=1, lease_ms=100).leases
    assert peer.get(frames.Lost).counters == [left.counter]
    assert served.group.leases[kept.message.seq].counter == kept.counter
    assert peer.exchange(done(kept, served.g)).stale == []


def test_a_host_looks_at_leases_only_while_there_are_any(served: Served) -> None:
    peer, sessions = served.peer(), served.server._sessions
    peer.put(served.q, b"x")
    (lease,) = peer.exchange(group=served.g, most=1).leases
    assert sessions._looking
    # As idle workers do: the last message is settled with the wait for the next one.
    peer.send(frames.Exchange(peer.n(), [done(lease, served.g)], served.g, 1, None))
    eventually(lambda: served.group.acked == 1 and not sessions._looking)


def test_bye_gives_everything_back_without_an_attempt(served: Served) -> None:
    peer = served.peer()
    peer.put(served.q, b"a", b"b")
    peer.exchange(group=served.g, most=2, keep=True)
    peer.send(frames.Exchange(peer.n(), [], served.g, 1, None))
    peer.bye()
    assert served.group.leases == {}
    assert not served.group.waiters
    again = served.peer().exchange(group=served.g, most=5).leases
    assert [lease.attempt for lease in again] == [1, 1]
    assert served.server.stats.sessions == 1


def test_a_repeated_number_is_one_message(served: Served) -> None:
    peer = served.peer()
    put = frames.Put(peer.n(), served.q, 0, [b"once"])
    peer.send(put)
    first = peer.answer_to(put.n)
    peer.send(put)
    assert peer.answer_to(put.n) == first
    row = Row(0, 0, 0, None, None, None, None, None, b"row")
    rows = frames.PutRows(peer.n(), served.q, [row])
    peer.send(rows, rows)
    told = peer.answer_to(rows.n)
    peer.send(rows)
    assert peer.answer_to(rows.n) == told
    assert served.queue.stored == 2


def test_a_session_goes_on_over_another_connection(served: Served) -> None:
    numbers = itertools.count(1)
    peer = served.peer(numbers=numbers)
    put = frames.Put(peer.n(), served.q, 0, [b"a", b"b", b"c"])
    peer.send(put)
    stored = peer.answer_to(put.n)
    kept, lost = peer.exchange(group=served.g, most=2, keep=True).leases
    peer.close()
    back = served.peer(session=peer.token, numbers=numbers, hello=False)
    epoch = served.desk.store.epoch
    held = [
        frames.Held(served.g, 4711, 4711, started=False),
        frames.Held(served.g, kept.message.seq, kept.counter, started=True),
    ]
    welcome = back.hello(epoch=epoch, held=held)
    assert welcome.tokens == [(1, kept.counter)]
    back.send(put)
    assert back.answer_to(put.n) == stored
    assert back.exchange(done(kept, served.g), done(lost, served.g)).stale == [1]
    again = back.exchange(group=served.g, most=5).leases
    assert {lease.message.seq: lease.attempt for lease in again} == {
        lost.message.seq: 1,
        lost.message.seq + 1: 1,
    }
    assert served.server.stats.sessions == 1


def test_a_repeated_settlement_is_answered_as_before(served: Served) -> None:
    numbers = itertools.count(1)
    peer = served.peer(numbers=numbers)
    peer.put(served.q, b"a", b"b")
    first, second = peer.exchange(group=served.g, most=2).leases
    settle = frames.Exchange(peer.n(), [done(first, served.g)], served.g, 1)
    peer.send(settle)
    peer.answer_to(settle.n)
    peer.close()
    back = served.peer(session=peer.token, numbers=numbers, hello=False)
    back.hello(
        epoch=1, held=[frames.Held(served.g, second.message.seq, second.counter, started=True)]
    )
    back.send(settle)
    answer = back.answer_to(settle.n)
    assert isinstance(answer, frames.Exchanged)
    assert answer.stale == []
    assert back.exchange(done(second, served.g)).stale == []


def test_who_speaks_before_hello_is_refused_and_may_begin_anew(served: Served) -> None:
    peer = served.peer(hello=False)
    peer.send(frames.Put(1, served.q, 0, [b"x"]))
    assert peer.get(frames.Refused).code == "no_session"
    peer.hello()
    peer.put(served.q, b"x")


def test_a_version_that_nobody_knows_is_refused(served: Served) -> None:
    peer = served.peer(hello=False)
    peer.send(frames.Hello([4711], peer.token, "new", 1))
    refused = peer.get(frames.Refused)
    assert refused.code == "wrong_version"
    assert refused.versions == list(frames.VERSIONS)
    assert peer.hello(versions=[4711, *frames.VERSIONS]).version == frames.VERSIONS[0]


def test_garbage_costs_its_own_session_and_no_other(served: Served) -> None:
    good, bad = served.peer(), served.peer()
    good.put(served.q, b"a")
    (held,) = bad.exchange(group=served.g, most=1, keep=True).leases
    bad.socket.send(b"\xc1 this is no MessagePack")
    assert bad.get(frames.Refused).code == "protocol_error"
    (again,) = good.exchange(group=served.g, most=1, wait_ms=20_000).leases
    assert again.message.seq == held.message.seq
    bad.socket.send_multipart([b"two", b"parts"])
    assert bad.get(frames.Refused).code == "protocol_error"
    bad.hello()
    assert bad.exchange(done(held, served.g)).stale == [0]
    assert good.exchange(done(again, served.g)).stale == []
    assert served.server.stats.refused == 2


def test_a_message_that_is_too_large_costs_the_connection(served: Served) -> None:
    good, bad = served.peer(), served.peer(hello=False)
    bad.hello()
    bad.socket.send(bytes(served.desk.limits.batch_bytes + frames.OVERHEAD + 1))
    eventually(lambda: served.server.stats.sessions == 1)
    good.put(served.q, b"still served")


def test_an_error_names_what_is_wrong_and_harms_nobody_else(served: Served) -> None:
    peer = served.peer()
    unknown = peer.ask(lambda n: frames.Put(n, 4711, 0, [b"x"]))
    assert isinstance(unknown, frames.Failed)
    assert unknown.code == "queue_not_found"
    large = bytes(served.desk.limits.body_bytes + 1)
    peer.send(
        frames.Put(101, served.q, 0, [large]),
        frames.Put(102, served.q, 0, [b"small"]),
        frames.Put(103, served.q, 1 << 40, [b"no kind"]),
    )
    assert [type(peer.answer_to(n)).__name__ for n in (101, 102, 103)] == [
        "Failed",
        "Stored_",
        "Failed",
    ]
    bad = Row(0, 0, 99, None, None, None, None, None, b"priority 99")
    answer = peer.ask(lambda n: frames.PutRows(n, served.q, [bad]))
    assert isinstance(answer, frames.Failed)
    assert answer.code == "invalid_option"
    gone = peer.ask(lambda n: frames.Exchange(n, [], 4711, 1))
    assert isinstance(gone, frames.Failed)
    assert gone.code == "group_not_found"


def test_released_messages_come_again_as_the_first_attempt(served: Served) -> None:
    peer = served.peer()
    peer.put(served.q, b"a")
    (lease,) = peer.exchange(group=served.g, most=1).leases
    (again,) = peer.exchange(
        released(lease, served.g), group=served.g, most=1, wait_ms=20_000
    ).leases
    assert (again.attempt, again.message.seq) == (1, lease.message.seq)
    assert again.counter > lease.counter


def test_leaving_is_told_to_every_client(served: Served) -> None:
    peers = [served.peer() for _ in range(3)]
    served.server.stop("tests are over")
    assert [peer.get(frames.Leaving).reason for peer in peers] == ["tests are over"] * 3


def test_the_server_survives_whatever_a_request_raises(served: Served) -> None:
    peer = served.peer()

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("planted")

    served.desk.asettle = broken  # type: ignore[method-assign, assignment]
    answer = peer.ask(lambda n: frames.Exchange(n, [], 0, 0))
    assert isinstance(answer, frames.Failed)
    assert "planted" in answer.message
    peer.put(served.q, b"a")


def test_peers_close(served: Served) -> None:
    with Peer(served.server.endpoint) as peer:
        peer.hello()
        eventually(lambda: served.server.stats.connections == 1)
    eventually(lambda: served.server.stats.connections == 0)


def test_a_put_whose_answer_was_lost_is_done_once_by_the_next_host(served: Served) -> None:
    numbers = itertools.count(1)
    peer = served.peer(numbers=numbers)
    put = frames.Put(peer.n(), served.q, 0, [b"a", b"b"])
    row = Row(0, 0, 5, None, None, None, None, None, b"row", "key", 1 << 50)
    rows = frames.PutRows(peer.n(), served.q, [row, row])
    peer.send(put, rows)
    eventually(lambda: served.queue.stored == 3)
    peer.close()
    served.server.stop()
    served.desk.close()
    with open_engine(served.path) as desk:
        server = Server(desk, served.path)
        server.start()
        try:
            with Peer(server.endpoint, session=peer.token, numbers=numbers) as back:
                back.hello()
                back.send(put, rows)
                stored = back.answer_to(put.n)
                told = back.answer_to(rows.n)
                assert isinstance(stored, frames.Stored_)
                assert isinstance(told, frames.Receipts)
                messages = {m.seq: m.body for m in desk.peek(desk.queue("orders"))}
                assert messages == {
                    stored.first: b"a",
                    stored.first + 1: b"b",
                    told.seqs[0]: b"row",
                }
                assert (told.seqs[0], told.known) == (told.seqs[1], [1])
                # Both answers have arrived: the next put says so, and they are forgotten.
                back.put(desk.queue("orders").id, b"c", seen=rows.n)
                (session,) = server._sessions.by_token.values()
                assert len(session.numbers.known) == 1
        finally:
            server.stop()


def test_what_follows_hello_at_once_is_served_after_the_welcome(served: Served) -> None:
    peer = served.peer(hello=False)
    peer.send(frames.Hello(list(frames.VERSIONS), peer.token, "hasty", 1))
    peer.send(frames.Put(1, served.q, 0, [b"early"]))
    assert isinstance(peer.find(lambda _: True), frames.Welcome)
    assert isinstance(peer.answer_to(1), frames.Stored_)


def test_nothing_stays_unread_however_requests_and_answers_meet(served: Served) -> None:
    peers = [served.peer() for _ in range(3)]
    count, window = 1_000, 4
    sent, got = [0] * 3, [0] * 3
    while min(got) < count:
        for at, peer in enumerate(peers):
            while sent[at] - got[at] < window and sent[at] < count:
                sent[at] += 1
                peer.send(frames.Exchange(sent[at], [], seen=got[at]))
            if got[at] < count and (peer.inbox or peer.receive(5.0)):
                got[at] += len(peer.inbox)
                peer.inbox.clear()
            else:
                assert got[at] == count, "a request stayed unread"
