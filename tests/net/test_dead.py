"""Dead letters are handed out one at a time, in order, once; what is not removed comes again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from embedq.broker.desk import Desk
from embedq.broker.host import open_engine
from embedq.broker.office import Which
from embedq.clock import VirtualClock
from embedq.errors import EmbedqError, StoreBusy
from embedq.net.dead import Asking, DeadDesk, HeldLetter, dead_desk
from embedq.net.network import Network

T = TypeVar("T")
SOON = 20.0


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def desk(clock: VirtualClock) -> Iterator[Desk]:
    with open_engine(":memory:", clock=clock, upkeep=False) as desk:
        yield desk


@pytest.fixture
def network(desk: Desk) -> Iterator[Network]:
    network = Network(desk)
    yield network
    network.stop()


class Client:
    """Somebody who asks, from another thread than the loop's."""

    def __init__(self, network: Network, letters: DeadDesk) -> None:
        self.network = network
        self.letters = letters
        self.got: list[HeldLetter] = []
        self.came = threading.Event()
        self.asking: Asking | None = None

    def _on_loop(self, call: Callable[[], T]) -> T:
        async def run() -> T:
            return call()

        return self.network.run(run(), SOON)

    def ask(self) -> None:
        self.came.clear()
        self.asking = self._on_loop(lambda: self.letters.ask(self._taken))

    def _taken(self, letter: HeldLetter) -> None:
        self.got.append(letter)
        self.came.set()

    def get(self) -> bytes:
        self.ask()
        return self.wait()

    def wait(self) -> bytes:
        assert self.came.wait(SOON)
        return self.got[-1].body

    def cancel(self) -> None:
        assert self.asking is not None
        self._on_loop(self.asking.cancel)

    def remove(self) -> EmbedqError | None:
        done = threading.Event()
        found: list[EmbedqError | None] = []

        def removed(error: EmbedqError | None) -> None:
            found.append(error)
            done.set()

        self._on_loop(lambda: self.got[-1].remove(removed))
        assert done.wait(SOON)
        return found[0]

    def give_back(self) -> None:
        self._on_loop(self.got[-1].give_back)


@pytest.fixture
def client(network: Network) -> Callable[[], Client]:
    letters = dead_desk(network, "q")
    return lambda: Client(network, letters)


def until(condition: Callable[[], object]) -> None:
    pause = threading.Event()
    for _ in range(2_000):
        if condition():
            return
        pause.wait(0.005)
    raise AssertionError("it did not happen")


def bury(desk: Desk, *bodies: bytes, group: str = "default") -> None:
    queue = desk.queue("q")
    side = desk.group(queue, group, "beginning")
    for body in bodies:
        desk.put(queue, body)
        (lease,) = desk.claim(side, 1)
        desk.reject(lease, "no")


def bodies(desk: Desk) -> list[bytes]:
    return [row.body for row in desk.store.dead(desk.queue("q").id, 0, 99)]


def test_each_letter_goes_to_one_client_the_oldest_first(desk, client):
    bury(desk, b"1", b"2", b"3")
    one, two = client(), client()
    assert [one.get(), two.get(), one.get()] == [b"1", b"2", b"3"]


def test_a_letter_is_there_until_it_is_removed(desk, client):
    bury(desk, b"1", b"2")
    one = client()
    assert one.get() == b"1"
    assert bodies(desk) == [b"1", b"2"]
    assert one.remove() is None
    assert bodies(desk) == [b"2"]


def test_what_is_given_back_comes_after_what_had_died_by_then(desk, clock, client):
    bury(desk, b"1", b"2")
    one = client()
    assert one.get() == b"1"
    clock.advance(1)
    one.give_back()
    clock.advance(1)
    bury(desk, b"3")
    assert [one.get() for _ in range(3)] == [b"2", b"1", b"3"]


def test_several_come_back_in_the_order_of_their_return(desk, client):
    bury(desk, b"1", b"2", b"3")
    a, b, c = client(), client(), client()
    assert [x.get() for x in (a, b, c)] == [b"1", b"2", b"3"]
    for each in (c, a, b):
        each.give_back()
    assert [a.get() for _ in range(3)] == [b"3", b"1", b"2"]


def test_what_is_given_back_or_removed_twice_counts_once(desk, client):
    bury(desk, b"1")
    one = client()
    assert one.get() == b"1"
    letter = one.got[-1]
    one.give_back()
    one.give_back()
    one.network.post(letter.remove)
    two = client()
    assert two.get() == b"1"
    one.ask()
    assert not one.came.wait(0.05)
    assert bodies(desk) == [b"1"]
    one.cancel()


def test_who_waits_gets_what_dies_later_and_the_first_is_the_first(desk, client):
    one, two = client(), client()
    one.ask()
    two.ask()
    bury(desk, b"1", b"2")
    assert (one.wait(), two.wait()) == (b"1", b"2")


def test_no_letter_is_spent_on_who_waits_no_more(desk, client):
    one, two = client(), client()
    one.ask()
    two.ask()
    one.cancel()
    bury(desk, b"1")
    assert two.wait() == b"1"
    assert not one.got


def test_nobody_listens_when_nobody_waits(desk, client):
    one = client()
    one.ask()
    until(lambda: desk.events._listeners)
    one.cancel()
    assert not desk.events._listeners


def test_what_others_removed_or_put_again_is_passed_over(desk, client):
    bury(desk, b"1", b"2", b"3")
    one = client()
    assert one.get() == b"1"
    one.give_back()
    first, second, _ = desk.store.dead(desk.queue("q").id, 0, 9)
    office = desk.office
    for row in (first, second):
        office.purge_dead("q", Which((desk.ids.encode(row.seq),)))
    assert one.get() == b"3"
    assert one.remove() is None


def test_letters_of_other_groups_are_not_touched(desk, client):
    bury(desk, b"theirs", group="audit")
    one = client()
    one.ask()
    bury(desk, b"mine")
    assert one.wait() == b"mine"
    assert one.remove() is None
    assert b"theirs" in bodies(desk)


def test_who_waits_gets_what_dies_just_after_nothing_was_found(desk, network, monkeypatch):
    letters = dead_desk(network, "q")
    find, late = letters._find, [b"late"]

    def find_too_early(*args):
        found = find(*args)
        if late:
            bury(desk, late.pop())
        return found

    monkeypatch.setattr(letters, "_find", find_too_early)
    assert Client(network, letters).get() == b"late"


def test_a_letter_that_cannot_be_removed_comes_again(desk, client, monkeypatch):
    bury(desk, b"1")
    one = client()
    assert one.get() == b"1"

    def busy(*_: object) -> int:
        raise StoreBusy("not now")

    with monkeypatch.context() as patched:
        patched.setattr(type(desk.office), "purge_dead", busy)
        assert isinstance(one.remove(), StoreBusy)
    assert one.get() == b"1"
    assert one.remove() is None


def test_listeners_of_one_broker_share_what_is_held(network):
    assert dead_desk(network, "q") is dead_desk(network, "q")
    assert dead_desk(network, "q") is not dead_desk(network, "other")
