"""What a claim brings whose caller has left goes back, as often as it takes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from embedq.ipc import frames
from embedq.ipc.frames import Exchange
from embedq.ipc.handles import Holdings
from embedq.ipc.returns import Returns
from embedq.storage.rows import Stored
from tests.ipc.scripted import Scene, ScriptedHost, scene, until

MESSAGE = Stored(7, 1, 0, 0, 0, 0, None, None, None, None, None, b"body")
LEASE = frames.WireLease(5, 1, -1, 30_000, 0, suspect=False, message=MESSAGE)
BACK = [frames.WireEnding(2, 7, 5, 3)]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Scene]:
    with scene(tmp_path) as made:
        yield made


def left(stage: Scene) -> tuple[ScriptedHost, Returns]:
    """Leave a claim that the host answers."""
    host, link = stage.host(), stage.link()
    host.welcome()
    until(lambda: link.welcome is not None)
    returns = Returns(link, Holdings())
    asked = link.send(lambda n, seen: Exchange(n, [], 2, 1, None, seen=seen), lambda _: None)
    assert host.get(Exchange).group == 2
    returns.give_up([asked], ())
    assert host.get(frames.Cancel).n == asked.n
    host.say(frames.Exchanged(asked.n, [LEASE], []))
    return host, returns


def test_what_the_host_cannot_store_now_is_given_back_later(stage: Scene) -> None:
    host, returns = left(stage)
    for code in ("store_busy", "store_full"):
        back = host.get(Exchange)
        assert (back.endings, back.most) == (BACK, 0)
        host.say(frames.Failed(back.n, code, "not now", None, {}))
        until(lambda: returns.waits)
        returns.again()
    back = host.get(Exchange)
    assert back.endings == BACK
    host.say(frames.Exchanged(back.n, [], []))
    assert not returns.waits


def test_what_the_host_refuses_for_good_is_given_back_no_more(stage: Scene) -> None:
    host, returns = left(stage)
    back = host.get(Exchange)
    host.say(frames.Failed(back.n, "store_failed", "never", None, {}))
    asked = stage.links[0].send(lambda n, _: frames.Bye(n), lambda _: None)
    host.say(frames.Done(asked.n))
    until(lambda: asked.answer is not None)
    assert not returns.waits
