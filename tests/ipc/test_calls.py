"""Calls by name and events: on threads of their own, and never in anybody's way."""

from __future__ import annotations

import logging
import threading

import msgspec
import pytest

from embedq.errors import QueueNotFound
from embedq.ipc import frames
from embedq.ipc.calls import ProgressFn
from embedq.ipc.session import UNSENT_COUNT
from tests.ipc.conftest import Served
from tests.ipc.peer import Peer, eventually

GATE = threading.Event()


def echo(args: bytes, _: ProgressFn) -> bytes:
    return args


def counting(args: bytes, progress: ProgressFn) -> bytes:
    (most,) = msgspec.msgpack.decode(args, type=tuple[int])
    for done in range(1, most + 1):
        progress(done, most)
    return msgspec.msgpack.encode("counted")


def failing(_: bytes, __: ProgressFn) -> bytes:
    raise QueueNotFound("there is no queue 'x'", hint="look", queue="x")


def waiting(_: bytes, __: ProgressFn) -> bytes:
    assert GATE.wait(20)
    return msgspec.msgpack.encode(None)


class Reading:
    """A call that is done in turn: it notes how many are at work at once."""

    in_turn = True

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.at_work: list[int] = []
        self.most = 0

    def __call__(self, args: bytes, progress: ProgressFn) -> bytes:
        self.at_work.append(1)
        self.most = max(self.most, len(self.at_work))
        self.begun.release()
        try:
            return waiting(args, progress)
        finally:
            self.at_work.pop()


VERBS = {"echo": echo, "counting": counting, "failing": failing, "waiting": waiting}


@pytest.fixture
def called(unstarted: Served) -> Served:
    GATE.clear()
    unstarted.start(verbs=VERBS)
    unstarted.stack.callback(GATE.set)
    return unstarted


def call(peer: Peer, verb: str, *args: object) -> frames.Answers:
    raw = msgspec.Raw(msgspec.msgpack.encode(args))
    return peer.ask(lambda n: frames.Call(n, verb, raw))


def test_a_call_returns_what_its_verb_returns(called: Served) -> None:
    answer = call(called.peer(), "echo", "a", 1, [b"x"])
    assert isinstance(answer, frames.Result)
    assert msgspec.msgpack.decode(answer.value) == ["a", 1, [b"x"]]


def test_progress_comes_before_the_result(called: Served) -> None:
    peer = called.peer()
    answer = call(peer, "counting", 5)
    assert isinstance(answer, frames.Result)
    told = [each for each in peer.inbox if isinstance(each, frames.Progress)]
    assert [(each.done, each.total) for each in told] == [(n, 5) for n in range(1, 6)]


def test_an_error_travels_with_its_code_and_details(called: Served) -> None:
    answer = call(called.peer(), "failing")
    assert isinstance(answer, frames.Failed)
    assert (answer.code, answer.hint) == ("queue_not_found", "look")
    assert answer.details == {"queue": "x"}


def test_an_unknown_call_is_refused_and_harms_nothing(called: Served) -> None:
    peer = called.peer()
    answer = call(peer, "no_such")
    assert isinstance(answer, frames.Failed)
    assert "no_such" in answer.message
    bad = call(peer, "worker_died", "not", "these")
    assert isinstance(bad, frames.Failed)
    assert isinstance(call(peer, "echo"), frames.Result)


def test_a_slow_call_is_in_nobodys_way(called: Served) -> None:
    peer = called.peer()
    n = peer.n()
    peer.send(frames.Call(n, "waiting", msgspec.Raw(b"\x90")))
    peer.put(called.q, b"a")
    assert isinstance(call(peer, "echo"), frames.Result)
    GATE.set()
    assert isinstance(peer.answer_to(n), frames.Result)


def test_a_repeated_call_is_done_once(called: Served) -> None:
    done = []

    def once(args: bytes, _: ProgressFn) -> bytes:
        done.append(args)
        return args

    called.server._serving._calls._verbs = {"once": once}
    peer = called.peer()
    request = frames.Call(peer.n(), "once", msgspec.Raw(b"\x90"))
    peer.send(request, request)
    first = peer.answer_to(request.n)
    peer.send(request)
    assert peer.answer_to(request.n) == first
    assert len(done) == 1


def test_events_are_told_to_those_who_listen(called: Served) -> None:
    peer, other = called.peer(), called.peer()
    peer.send(frames.Listen(["paused", "no such event", "resumed"]))
    call(peer, "echo")
    called.desk.pause(called.queue)
    told = peer.get(frames.Told)
    assert (told.name, told.fields) == ("paused", {"queue": "orders"})
    assert abs(told.at - called.desk.clock.time()) < 5
    peer.send(frames.Listen(["resumed"]))
    call(peer, "echo")
    called.desk.pause(called.queue)
    called.desk.pause(called.queue, paused=False)
    assert peer.get(frames.Told).name == "resumed"
    call(other, "echo")
    assert not [each for each in other.inbox if isinstance(each, frames.Told)]


def test_a_request_that_a_program_is_too_late_to_do_is_left_to_the_next_host(
    called: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    peer = called.peer()
    with monkeypatch.context() as ending:
        # As concurrent.futures does it when the main thread is over.
        ending.setattr("concurrent.futures.thread._shutdown", True)
        n = peer.n()
        request = frames.Call(n, "echo", msgspec.Raw(msgspec.msgpack.encode("x")))
        peer.send(request)
        assert not peer.receive(0.2)
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]
    peer.send(request)  # as the client does at the next host
    assert isinstance(peer.answer_to(n), frames.Result)


def test_nobody_listens_any_more_after_the_end_of_a_session(called: Served) -> None:
    peer = called.peer()
    peer.send(frames.Listen(["paused"]))
    call(peer, "echo")
    assert "paused" in called.desk.events._listeners
    peer.bye()
    assert "paused" not in called.desk.events._listeners


def test_events_for_a_client_that_does_not_read_are_dropped_and_counted(
    without_heartbeats: None, called: Served
) -> None:
    peer = called.peer(rcvhwm=1)
    peer.send(frames.Listen(["redriven"]))
    call(peer, "echo")
    (session,) = called.server._sessions.by_token.values()
    large = "x" * 50_000

    def flood() -> bool:
        for _ in range(200):
            called.desk.events.emit("redriven", queue="q", count=1, by=large)
        assert called.desk.events.flush()
        return session.untold > 0

    eventually(flood, 30)
    assert session.waiting <= UNSENT_COUNT + 1
    other = called.peer()
    assert isinstance(call(other, "echo"), frames.Result)


def test_of_calls_that_are_done_in_turn_one_is_at_work_and_others_pass_them(
    unstarted: Served,
) -> None:
    GATE.clear()
    reading = Reading()
    unstarted.start(verbs={**VERBS, "reading": reading})
    unstarted.stack.callback(GATE.set)
    peers = [unstarted.peer() for _ in range(6)]
    numbers = [peer.n() for peer in peers]
    for peer, n in zip(peers, numbers, strict=True):
        peer.send(frames.Call(n, "reading", msgspec.Raw(b"\x90")))
    assert reading.begun.acquire(timeout=20)
    for peer in peers:
        assert isinstance(call(peer, "echo"), frames.Result)
    assert reading.most == 1
    GATE.set()
    for peer, n in zip(peers, numbers, strict=True):
        assert isinstance(peer.answer_to(n), frames.Result)
    assert reading.most == 1


def test_a_call_at_the_end_of_a_program_is_left_to_the_next_host(
    called: Served, caplog: pytest.LogCaptureFixture
) -> None:
    peer = called.peer()
    # So a thread of the pool leaves it that has seen the end of Python's main thread.
    called.server._serving._calls._callers.shutdown(wait=False)
    n = peer.n()
    peer.send(frames.Call(n, "echo", msgspec.Raw(b"\x90")))
    peer.put(called.q, b"answered later than a call would be")
    assert not [told for told in peer.inbox if getattr(told, "n", None) == n]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
