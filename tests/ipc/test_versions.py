"""Versions of the wire: the one before is understood, others are refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from embedq.broker.endings import DONE
from embedq.errors import QueueFull, WrongVersion
from embedq.ipc import frames, verbs
from embedq.ipc.remote import RemoteDesk
from embedq.policy import QueuePolicy
from tests.ipc import golden
from tests.ipc.conftest import Served
from tests.ipc.peer import eventually

NOW, BEFORE = frames.VERSIONS


@pytest.fixture
def served(unstarted: Served) -> Served:
    unstarted.start(verbs=verbs.served(unstarted.desk.office))
    return unstarted


class Speaking(RemoteDesk):
    """A client that speaks other versions than this code."""

    versions: tuple[int, ...] = ()

    def _hello(self) -> frames.Hello:
        return msgspec.structs.replace(super()._hello(), versions=list(self.versions))


@contextmanager
def client(path: Path, *versions: int) -> Iterator[RemoteDesk]:
    desk = Speaking(path)
    desk.versions = versions
    desk.open(20)
    yield desk
    desk.close()


def test_this_code_speaks_a_version_and_the_one_before_it() -> None:
    assert (NOW, BEFORE) == (BEFORE + 1, NOW - 1)


@pytest.mark.parametrize("name", golden.FIELDS)
def test_frames_begin_as_in_the_version_before_and_what_was_added_has_a_default(name: str) -> None:
    tag, fields = golden.FIELDS[name]
    now = getattr(frames, name)
    known = fields.split()
    assert now.__struct_config__.tag == tag
    assert list(now.__struct_fields__[: len(known)]) == known
    added = len(now.__struct_fields__) - len(known)
    assert len(now.__struct_defaults__) >= added


@pytest.mark.parametrize("name", golden.ANSWERS)
def test_what_a_host_of_the_version_before_said_is_understood(name: str) -> None:
    data, first = golden.ANSWERS[name]
    (answer,) = frames.decode_answers(bytes.fromhex(data))
    assert type(answer) is getattr(frames, name)
    assert msgspec.structs.astuple(answer)[: len(first)] == first


def test_a_client_of_the_version_before_is_served(served: Served) -> None:
    peer = served.peer(hello=False)
    peer.socket.send(bytes.fromhex(golden.HELLO))
    assert peer.get(frames.Welcome).version == BEFORE
    peer.socket.send(bytes.fromhex(golden.PUT))
    assert isinstance(peer.answer_to(1), frames.Stored_)
    peer.socket.send(bytes.fromhex(golden.PUT_ROWS))
    assert isinstance(peer.answer_to(2), frames.Receipts)
    peer.socket.send(bytes.fromhex(golden.CLAIM))
    claimed = peer.answer_to(3)
    assert isinstance(claimed, frames.Exchanged)
    assert [each.message.body for each in claimed.leases] == [b"urgent", b"a", b"b"]
    seqs = [(each.message.seq, each.counter) for each in claimed.leases]
    ends = [golden.ending(1, seq, counter, 0) for seq, counter in seqs[:2]]
    ends.append(golden.ending(1, *seqs[2], 3))
    peer.socket.send(msgspec.msgpack.encode([[4, 4, ends, 1, 0, 0, None, False, 3]]))
    settled = peer.answer_to(4)
    assert isinstance(settled, frames.Exchanged)
    assert settled.stale == []
    assert [message.body for message in served.desk.peek(served.queue)] == [b"b"]
    peer.socket.send(bytes.fromhex(golden.BYE))
    assert isinstance(peer.answer_to(9), frames.Done)


def test_a_put_of_the_version_before_waits_for_room_until_it_is_cancelled(served: Served) -> None:
    served.desk.queue("orders", QueuePolicy(max_length=2))
    served.desk.put(served.queue, b"first")
    peer = served.peer(hello=False)
    peer.socket.send(bytes.fromhex(golden.HELLO))
    peer.get(frames.Welcome)
    peer.socket.send(bytes.fromhex(golden.PUT))
    eventually(lambda: served.queue.space)
    peer.socket.send(msgspec.msgpack.encode([[5, 99], [5, 1]]))
    refused = peer.answer_to(1)
    assert isinstance(refused, frames.Failed)
    assert refused.code == QueueFull.code
    assert not served.queue.space


@pytest.mark.parametrize("spoken", [(NOW,), (BEFORE,), (NOW + 1, NOW), (BEFORE, BEFORE - 1)])
def test_both_ends_agree_on_the_best_version_they_share(
    served: Served, spoken: tuple[int, ...]
) -> None:
    with client(served.path, *spoken) as desk:
        queue = desk.declare("orders", {})
        group = desk.group(queue)
        desk.put_many(queue, [b"one", b"two"])
        first, second = desk.wait_claim(group, 2, 5)
        assert desk.settle([(first, DONE), (second, DONE)]) == []
        assert desk.version == next(v for v in frames.VERSIONS if v in spoken)
    assert served.group.acked == 2


@pytest.mark.parametrize("spoken", [(NOW + 1,), (BEFORE - 1,), (BEFORE - 1, BEFORE - 2), ()])
def test_versions_too_far_apart_are_refused_and_both_are_named(
    served: Served, spoken: tuple[int, ...]
) -> None:
    near = served.peer()
    with pytest.raises(WrongVersion) as told, client(served.path, *spoken):
        pass
    text = str(told.value)
    assert f"the host speaks the versions {NOW} and {BEFORE}" in text
    assert f"speaks {' and '.join(map(str, spoken)) or 'none'}" in text
    assert "neighbouring releases" in text
    near.put(served.q, b"nobody else notices")
    assert served.server.stats.refused == 1


def test_a_refusal_of_an_older_host_is_an_error_of_the_same_kind(served: Served) -> None:
    (refused,) = frames.decode_answers(bytes.fromhex(golden.ANSWERS["Refused"][0]))
    assert isinstance(refused, frames.Refused)
    assert refused.code == WrongVersion.code
