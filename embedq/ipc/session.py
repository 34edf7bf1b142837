"""What a host knows of one client: its leases, its open requests, what waits to be sent to it.

Knows: places for marks, which numbers were answered, how much a client may leave unread.
Does not know: sockets, the desk, when a session ends (sessions.py).

Belongs to the thread of the server's loop, but for `is_alive`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from embedq.broker.awaiting import LoopWaiter
from embedq.broker.leases import Lease, is_singular
from embedq.broker.numbered import Numbers
from embedq.ipc import frames
from embedq.ipc.frames import Answer, Hello, Token, WireEnding
from embedq.ipc.marks import Progress, progress_of, read_all
from embedq.message import ErrorInfo

_log = logging.getLogger("embedq.ipc")

#: Bytes of answers that wait for a client that does not read; beyond, nothing is claimed for it.
UNSENT_BYTES: Final = 8 << 20
#: Answers that wait likewise.
UNSENT_COUNT: Final = 1_000
#: Bytes beyond which the client is dropped.
UNSENT_MOST: Final = 256 << 20

#: Answers to other requests than puts that are remembered, should they have to be repeated.
_REMEMBERED: Final = 1_024

#: Bytes of answers that go into one message of the wire, as far as there is more than one.
_MESSAGE_BYTES: Final = 1 << 20
_MESSAGE_FRAMES: Final = 1_000


class Held(NamedTuple):
    """A lease of the session. `mark`: its place in the client's marks, -1 without one.

    `outside`: a client of a listener has it, and none of our code runs with it.
    """

    lease: Lease
    mark: int
    outside: bool = False


class Session:
    """One client, from its first Hello until it leaves or is given up."""

    def __init__(
        self, hello: Hello, numbers: Numbers, places: int, *, expected: bool = False
    ) -> None:
        self.token = hello.session
        self.numbers = numbers
        self.id = numbers.session
        #: Where answers go; None while it is not connected.
        self.address: bytes | None = None
        self.ended = False
        #: An earlier host has left it: it has not said hello to this one.
        self.expected = expected
        #: What came of it, once it has ended.
        self.cause: ErrorInfo | None = None
        self.update(hello)
        self.leases: dict[int, Held] = {}
        #: Counters of leases that a request under way will end.
        self.settling: set[int] = set()
        #: Counters of which the client said that their handlers run.
        self.known_started: set[int] = set()
        #: What the leases of an earlier host were given out as: (epoch, counter), by counter.
        self.inherited: dict[int, tuple[int, int]] = {}
        #: New counters of what was given anew, by the old ones, and the other way round.
        self._renamed: dict[int, int] = {}
        self._formerly: dict[int, int] = {}
        self._words: list[int] | None = None
        self.provide(places)
        self.tasks: dict[int, asyncio.Task[None]] = {}
        self.waiters: dict[int, LoopWaiter] = {}
        self.putting: set[int] = set()
        self._answered: OrderedDict[int, object] = OrderedDict()
        self._seen = 0
        self.listening: dict[str, Callable[[], None]] = {}
        self._out: deque[tuple[Answer, int]] = deque()
        self.unsent_bytes = 0
        self._room: asyncio.Event | None = None
        #: Events that it missed because too much waited.
        self.untold = 0

    def update(self, hello: Hello) -> None:
        """Take over what the client says about itself."""
        self.name = hello.name
        self.pid = hello.pid
        self.marks = hello.marks
        self.boss = hello.boss

    def __str__(self) -> str:
        """Name it for people."""
        return f"{self.name} (process {self.pid})"

    def is_alive(self) -> bool:
        """Whether leases are renewed for it. Called under the broker's lock, from any thread."""
        return not self.ended

    # -------------------------------------------------------------------------- leases

    def provide(self, places: int) -> None:
        """Give out the places of a file of marks, before there are leases."""
        self.places = places
        self._free = list(range(places - 1, -1, -1))

    def inherit(self, lease: Lease, epoch: int, counter: int) -> None:
        """Enter a lease of an earlier host, which had given it out as `counter`."""
        self.leases[lease.counter] = Held(lease, -1)
        self.inherited[lease.counter] = (epoch, counter)

    def give_anew(self, lease: Lease, told: frames.Held) -> None:
        """The client goes on holding a lease, under its new counter."""
        mark = -1
        if told.mark in self._free:
            self._free.remove(told.mark)
            mark = told.mark
        self.leases[lease.counter] = Held(lease, mark, told.outside)
        self.inherited.pop(lease.counter, None)
        self._renamed[told.counter] = lease.counter
        self._formerly[lease.counter] = told.counter
        if told.started:
            self.known_started.add(lease.counter)

    def find(self, token: Token | WireEnding | frames.Held) -> Held | None:
        """Return a lease by its token, as this host or the one before has given it out."""
        held = self.leases.get(token.counter)
        if held is None or not _is_of(held, token):
            held = self.leases.get(self._renamed.get(token.counter, 0))
            if held is None or not _is_of(held, token):
                return None
        return held

    def add(self, lease: Lease, *, outside: bool = False) -> int:
        """Enter a lease; return its place for marks."""
        mark = self._free.pop() if self._free else -1
        self.leases[lease.counter] = Held(lease, mark, outside)
        return mark

    def take(self, endings: Iterable[WireEnding]) -> tuple[list[Held | None], list[int]]:
        """Find the leases that are to end, None for those that no longer count.

        Also returns their counters, for `dropped` or `kept`: none of them can be taken twice.
        """
        found: list[Held | None] = []
        taken = []
        for ending in endings:
            held = self.find(ending)
            if held is None or held.lease.counter in self.settling:
                found.append(None)
                continue
            self.settling.add(held.lease.counter)
            taken.append(held.lease.counter)
            found.append(held)
        return found, taken

    def dropped(self, counters: Iterable[int]) -> None:
        """Leases have ended: their places are free."""
        for counter in counters:
            self.settling.discard(counter)
            self.known_started.discard(counter)
            self.inherited.pop(counter, None)
            self._formerly.pop(counter, None)
            held = self.leases.pop(counter, None)
            if held is not None and held.mark >= 0:
                self._free.append(held.mark)

    def kept(self, counters: Iterable[int]) -> None:
        """What was to end these leases failed: they still count."""
        self.settling.difference_update(counters)

    @property
    def holds(self) -> bool:
        """Whether any lease is still held: one may be settled whose request waits for others."""
        return any(held.lease.is_held for held in self.leases.values())

    def lost(self) -> list[int]:
        """Drop the leases that somebody else has ended; return their counters."""
        gone = [
            counter
            for counter, held in self.leases.items()
            if counter not in self.settling and not held.lease.is_held
        ]
        self.dropped(gone)
        return gone

    def progress(self, epoch: int) -> Mapping[int, Progress]:
        """Return how far deliveries have come, by the client's marks; the others only wait.

        Where nobody can tell, they have started. `epoch`: of the host that gave them out.
        """
        self.freeze()
        if not self._words:
            return dict.fromkeys(self.leases, Progress.STARTED)
        head, *words = self._words
        noted = progress_of(words)
        found: dict[int, Progress] = {}
        for counter, held in self.leases.items():
            is_marked = held.mark >= 0 or counter in self.inherited
            if counter in self._formerly:
                progress = self._renamed_progress(words, counter, held.mark)
            elif counter in self.inherited:
                progress = self._inherited_progress(head, noted, counter)
            else:
                progress = noted.get(counter) if head in {0, epoch} else None
            if progress is None and (not is_marked or counter in self.known_started):
                progress = Progress.STARTED
            if progress is not None:
                found[counter] = progress
        return found

    def _renamed_progress(self, words: Sequence[int], counter: int, mark: int) -> Progress | None:
        """Look at its own place: the client may have died before it wrote the new name there."""
        noted = progress_of(words[mark : mark + 1] if mark >= 0 else ())
        return noted.get(counter, noted.get(self._formerly[counter]))

    def _inherited_progress(
        self, head: int, noted: Mapping[int, Progress], counter: int
    ) -> Progress | None:
        issued, as_counter = self.inherited[counter]
        if 0 < head < issued:
            # Given anew by a host that died with the client, before that wrote the new name.
            if is_singular(as_counter):
                return noted.get(as_counter)  # it was the old one
            return Progress.STARTED if noted else None
        return noted.get(as_counter) if head in {0, issued} else None

    def freeze(self) -> None:
        """Read the marks for the last time: nobody writes them any more."""
        if self._words is not None or self.marks is None:
            return
        try:
            self._words = list(read_all(self.marks))
        except OSError as error:
            _log.warning("the marks %s cannot be read: %s", self.marks, error)
            self._words = []

    # ------------------------------------------------------------------------- requests

    def is_open(self, n: int) -> bool:
        """Whether request `n` is under way: its answer will come."""
        return n in self.tasks or n in self.putting

    def remember(self, n: int, answer: object) -> None:
        """Keep what came of a request, should the client ask again."""
        self._answered[n] = answer
        if len(self._answered) > _REMEMBERED:
            self._answered.popitem(last=False)

    def remembered(self, n: int) -> object | None:
        """Return what came of an earlier request of this number."""
        return self._answered.get(n)

    def seen(self, n: int) -> None:
        """All answers up to `n` have arrived."""
        if n <= self._seen:
            return
        self._seen = n
        self.numbers.see(n)
        for number in [known for known in self._answered if known <= n]:
            del self._answered[number]

    # -------------------------------------------------------------------------- sending

    def queue(self, answer: Answer, size: int = 64) -> None:
        """Let an answer wait for the end of the loop's turn. `size`: roughly its bytes."""
        self._out.append((answer, size))
        self.unsent_bytes += size

    def next_message(self) -> list[Answer]:
        """Take the answers that go into the next message; empty: nothing waits."""
        message: list[Answer] = []
        size = 0
        while self._out and size < _MESSAGE_BYTES and len(message) < _MESSAGE_FRAMES:
            answer, bytes_ = self._out[0]
            if message and size + bytes_ > _MESSAGE_BYTES:
                break
            self._out.popleft()
            size += bytes_
            message.append(answer)
        self.unsent_bytes -= size
        if self._room is not None and not self.is_full:
            self._room.set()
            self._room = None
        return message

    def discard(self) -> None:
        """Nobody is there to send to: the client asks again when it is back."""
        self._out.clear()
        self.unsent_bytes = 0
        if self._room is not None:
            self._room.set()
            self._room = None

    @property
    def waiting(self) -> int:
        """How many answers are unsent."""
        return len(self._out)

    @property
    def is_full(self) -> bool:
        """Whether so much is unsent that nothing more is claimed."""
        return self.unsent_bytes > UNSENT_BYTES or len(self._out) > UNSENT_COUNT

    async def room(self) -> None:
        """Wait until the client has read some of what waits."""
        while self.is_full and not self.ended:
            if self._room is None:
                self._room = asyncio.Event()
            await self._room.wait()

    def end(self) -> None:
        """The session is over: cancel what it waits for, tell it nothing more."""
        self.ended = True
        self.address = None
        for task in self.tasks.values():
            task.cancel()
        self.tasks.clear()
        for off in self.listening.values():
            off()
        self.listening.clear()
        self.discard()


def _is_of(held: Held, token: Token | WireEnding | frames.Held) -> bool:
    lease = held.lease
    return lease.seq == token.seq and lease.group.id == token.group
