"""A client's connection: what it does when hosts come, go, stop, refuse and talk nonsense."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from embedq.errors import ForkedBroker, HostGone, NoHost, StoreClosed
from embedq.ipc import frames
from embedq.ipc.frames import ProtocolError
from embedq.ipc.ledger import Asked
from embedq.ipc.link import Link
from tests.ipc.scripted import SOON, Scene, ScriptedHost, hello, scene, until
from tests.processes import line_of
from tests.vanishing import vanishing


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Scene]:
    with scene(tmp_path) as made:
        yield made


def put(link: Link, body: bytes = b"x", *, repeat: bool = True) -> Asked:
    return link.send(
        lambda n, seen: frames.Put(n, 1, 0, [body], seen), lambda _: None, repeat=repeat
    )


def answered(asked: Asked) -> bool:
    return asked.answer is not None or asked.error is not None


def connected(stage: Scene, **options: object) -> tuple[ScriptedHost, Link]:
    host = stage.host()
    link = stage.link(**options)
    host.welcome()
    until(lambda: link.welcome is not None)
    return host, link


def test_a_request_is_answered(stage: Scene) -> None:
    host, link = connected(stage)
    asked = put(link)
    assert host.get(frames.Put) == frames.Put(1, 1, 0, [b"x"], 0)
    host.say(frames.Stored_(1, 5))
    until(lambda: asked.answer == frames.Stored_(1, 5))


@pytest.mark.parametrize("looks", range(2))
def test_a_host_that_ends_right_behind_its_welcome_was_there_or_was_not(looks: int) -> None:
    link = vanishing(Link, "welcome", looks)(lambda: None, hello)
    link.welcome = welcome = frames.Welcome(1, 1, 7, 1, bytes(16), 0)
    link._welcomed.set()
    link.begin = lambda: None  # type: ignore[method-assign]
    if looks:
        assert link.start(0) is welcome
    else:
        with pytest.raises(NoHost):
            link.start(0)
    link.close()


def test_ticks_come_when_the_one_before_has_said(stage: Scene) -> None:
    pauses = [0.01, 0.01, 0.01, 1_000.0]
    ticks: list[float] = []

    def tick() -> float:
        ticks.append(pauses[len(ticks)])
        return ticks[-1]

    host, link = connected(stage, on_tick=tick)
    until(lambda: ticks == pauses)
    asked = put(link)  # who waits for long is woken all the same
    host.get(frames.Put)
    host.say(frames.Stored_(1, 5))
    until(lambda: answered(asked))


def test_answers_come_in_any_order(stage: Scene) -> None:
    host, link = connected(stage)
    asked = [put(link) for _ in range(3)]
    for _ in asked:
        host.get(frames.Put)
    host.say(frames.Stored_(3, 3), frames.Stored_(1, 1), frames.Stored_(99, 99))
    host.say(frames.Stored_(2, 2))
    until(lambda: all(map(answered, asked)))
    assert [each.answer.first for each in asked] == [1, 2, 3]  # type: ignore[union-attr]


def test_an_unanswered_put_is_repeated_to_the_next_host_under_its_number(stage: Scene) -> None:
    host, link = connected(stage)
    asked = put(link)
    first = host.get(frames.Put)
    host.end()
    following = stage.host()
    following.welcome()
    assert following.get(frames.Put) == first
    following.say(frames.Stored_(1, 5))
    until(lambda: answered(asked))
    assert asked.error is None


def test_a_call_that_must_not_be_repeated_fails_with_its_host(stage: Scene) -> None:
    host, link = connected(stage)
    asked = put(link, repeat=False)
    host.get(frames.Put)
    host.end()
    until(lambda: answered(asked))
    assert isinstance(asked.error, HostGone)


def test_what_is_asked_while_there_is_no_host_waits_for_one(stage: Scene) -> None:
    missing = threading.Event()
    link = stage.link(on_missing=missing.set)
    asked = put(link)
    assert missing.wait(SOON)
    host = stage.host()
    host.welcome()
    host.get(frames.Put)
    host.say(frames.Stored_(1, 1))
    until(lambda: answered(asked))


def test_patience_ends(stage: Scene) -> None:
    link = stage.link(patience_s=0.2)
    asked = put(link)
    until(lambda: answered(asked))
    assert isinstance(asked.error, NoHost)


def test_what_is_told_at_the_welcome_reaches_the_next_host_before_what_is_repeated(
    stage: Scene,
) -> None:
    def welcomed(_: frames.Welcome) -> None:
        link.tell(frames.Listen(["dead"]))

    host = stage.host()
    link = Link(stage.find, hello, on_welcome=welcomed)
    stage.links.append(link)
    link.begin()
    host.welcome()
    host.get(frames.Listen)
    put(link)
    host.get(frames.Put)
    host.end()
    following = stage.host()
    following.welcome()
    following.get(frames.Put)
    assert list(following.inbox) == [frames.Listen(["dead"])]  # it came first


def test_a_wait_that_is_cancelled_while_there_is_no_host_ends_at_the_next(stage: Scene) -> None:
    host, link = connected(stage)
    asked = put(link)
    host.get(frames.Put)
    host.end()
    until(lambda: link.welcome is None)
    link.cancel(asked.n)
    following = stage.host()
    following.welcome()
    following.get(frames.Put)
    assert following.get(frames.Cancel).n == asked.n


def test_thousands_of_requests_of_many_threads_wake_the_link_each_time(
    stage: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What a lost wake-up would wait for.
    monkeypatch.setattr("embedq.ipc.link.TICK_S", 3_600.0)
    host, link = connected(stage)
    answers: list[frames.Answer] = []
    stop = threading.Event()

    def serve() -> None:
        while not stop.is_set():
            if host.socket.poll(20):
                host.client, data = host.socket.recv_multipart()
                requests = frames.decode_requests(data)
                host.say(*[frames.Stored_(each.n, 1) for each in requests])  # type: ignore[union-attr]

    def ask() -> None:
        answers.extend(
            link.ask(lambda n, seen: frames.Put(n, 1, 0, [b"x"], seen)) for _ in range(300)
        )

    server = threading.Thread(target=serve)
    server.start()
    askers = [threading.Thread(target=ask, daemon=True) for _ in range(8)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join(60)
    stop.set()
    server.join()
    assert len(answers) == 2_400


def test_an_idle_link_sleeps(stage: Scene) -> None:
    _host, link = connected(stage)
    link._nudge.signalled = True  # as one leaves it that is between its mark and its byte
    link._nudge.send()
    link._nudge.signalled = False
    thread = link._thread.native_id
    clock = Path(f"/proc/self/task/{thread}/stat")
    if not clock.exists():
        pytest.skip("only on Linux: the time of one thread")

    def ticks() -> int:
        fields = clock.read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    before = ticks()
    threading.Event().wait(0.5)
    assert ticks() - before < 20  # hundredths of a second: it would be 50 if it never slept


def test_progress_is_told_on_the_caller_s_thread(stage: Scene) -> None:
    host, link = connected(stage)
    told: list[tuple[int, int, int]] = []

    def progress(done: int, total: int) -> None:
        told.append((threading.get_ident(), done, total))

    def serve() -> None:
        n = host.get(frames.Put).n
        host.say(frames.Progress(n, 1, 2), frames.Progress(n, 2, 2), frames.Done(n))

    server = threading.Thread(target=serve)
    server.start()
    answer = link.ask(lambda n, seen: frames.Put(n, 1, 0, [], seen), progress=progress)
    server.join()
    here = threading.get_ident()
    assert (answer, told) == (frames.Done(1), [(here, 1, 2), (here, 2, 2)])


def test_progress_that_raises_ends_the_call_and_not_the_link(stage: Scene) -> None:
    host, link = connected(stage)

    def serve() -> None:
        n = host.get(frames.Put).n
        host.say(frames.Progress(n, 1, 2), frames.Done(n))

    def stop(_: int, __: int) -> None:
        raise RuntimeError("enough")

    server = threading.Thread(target=serve)
    server.start()
    with pytest.raises(RuntimeError, match="enough"):
        link.ask(lambda n, seen: frames.Put(n, 1, 0, [], seen), progress=stop)
    server.join()
    asked = put(link)
    host.get(frames.Put)
    host.say(frames.Stored_(asked.n, 1))
    until(lambda: answered(asked))


@pytest.mark.parametrize("data", [b"", b"\xc1garbage", b"\x91\x92\xcc\xff\x00", b"\x80"])
def test_garbage_fails_what_was_asked_and_the_link_looks_for_a_host_again(
    stage: Scene, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    host, link = connected(stage)
    asked = put(link)
    host.get(frames.Put)
    with caplog.at_level(logging.CRITICAL):
        host.raw(data)
        until(lambda: answered(asked))
    assert isinstance(asked.error, ProtocolError)
    host.welcome()
    again = put(link)
    host.get(frames.Put)
    host.say(frames.Stored_(again.n, 1))
    until(lambda: answered(again))
    assert again.error is None


def test_a_host_of_another_version_refuses_for_good(stage: Scene) -> None:
    host = stage.host()
    link = stage.link()
    host.get(frames.Hello)
    host.say(frames.Refused("wrong_version", "the host speaks 9", [9]))
    until(lambda: link.ended)
    with pytest.raises(Exception, match="the host speaks 9") as told:
        put(link)
    assert "[9]" in str(getattr(told.value, "hint", ""))


def test_closing_says_goodbye_and_wakes_those_who_wait(stage: Scene) -> None:
    host, link = connected(stage)
    asked = put(link)
    closer = threading.Thread(target=link.close)
    closer.start()
    bye = host.get(frames.Bye)
    host.say(frames.Done(bye.n))
    closer.join(SOON)
    until(lambda: answered(asked))
    assert isinstance(asked.error, StoreClosed)
    with pytest.raises(StoreClosed):
        put(link)


def test_closing_one_that_was_never_started_leaves_nothing_open(stage: Scene) -> None:
    link = Link(stage.find, hello)
    link.close()
    link.close()
    assert link._nudge.closed


def test_closing_while_nobody_answers_ends(stage: Scene) -> None:
    _, link = connected(stage)
    link.close()
    link._thread.join(SOON)
    assert not link._thread.is_alive()


FORK = """
import os, sys
from embedq.ipc import frames
from embedq.ipc.link import Link
from embedq.errors import ForkedBroker
from tests.ipc.scripted import ScriptedHost, hello
from embedq.ipc.place import Found
from pathlib import Path
host = ScriptedHost(Path(sys.argv[1]), 1)
link = Link(lambda: Found(1, 1, host.endpoint), hello)
link.begin()
host.welcome()
child = os.fork()
if child == 0:
    try:
        link.ask(lambda n, seen: frames.Put(n, 1, 0, [b"x"], seen))
    except ForkedBroker:
        link.close()
        os._exit(7)
    os._exit(1)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
asked = link.send(lambda n, seen: frames.Put(n, 1, 0, [b"x"], seen), lambda _: None)
host.get(frames.Put)
host.end()
link.close()
print(code)
"""


def test_a_child_made_by_fork_is_told_that_the_connection_is_its_parent_s(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout.split() == ["7"]
    assert ForkedBroker.code == "forked_broker"


STOPPED = """
import sys
from pathlib import Path
from embedq.ipc import frames
from tests.ipc.scripted import ScriptedHost
host = ScriptedHost(Path(sys.argv[1]), 1)
print("bound", flush=True)
while True:
    host.welcome()
    n = host.get(frames.Put, 60).n
    host.say(frames.Stored_(n, 1))
"""


@pytest.mark.reliability
def test_a_host_that_is_stopped_and_goes_on_answers_what_was_asked_meanwhile(
    tmp_path: Path,
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", STOPPED, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout is not None
    from embedq.ipc.place import Found

    link = Link(lambda: Found(1, 1, f"ipc://{tmp_path}/1"), hello, patience_s=None)
    try:
        assert line_of(process) == "bound\n"
        link.start(SOON)
        os.kill(process.pid, signal.SIGSTOP)
        asked = put(link)
        until(lambda: link.welcome is None, "the heartbeat tells that it is stopped")
        os.kill(process.pid, signal.SIGCONT)
        until(lambda: answered(asked))
        assert asked.error is None
    finally:
        link.close()
        process.kill()
        process.wait()
        process.stdout.close()
