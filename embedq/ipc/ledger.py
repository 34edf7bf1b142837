"""What a client has asked and not been told yet: request numbers, answers, what to repeat.

Knows: which request an answer belongs to, what goes out next, what is asked of the next host.
Does not know: sockets, threads that wait, what a request means.

Used under the lock of its link.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from embedq.ipc import frames
from embedq.ipc.failures import raised
from embedq.ipc.frames import Answer, Request

Answered = Callable[["Asked"], object]
OnProgress = Callable[[int, int], object]

#: Bytes of bodies that go into one message of the wire, as far as there is more than one.
_MESSAGE_BYTES: Final = 1 << 20
_MESSAGE_FRAMES: Final = 1_000


class Asked:
    """One request on its way. `answered` is called once, with `answer` or `error` set.

    `repeat`: whether it may be sent again to the next host if this one ends before it answers.
    `cancelled`: whoever asked does not want to wait any longer.
    """

    __slots__ = (
        "answer",
        "answered",
        "cancelled",
        "error",
        "frame",
        "n",
        "progress",
        "repeat",
        "sent",
    )

    def __init__(
        self,
        n: int,
        frame: Request,
        answered: Answered,
        *,
        repeat: bool,
        progress: OnProgress | None = None,
    ) -> None:
        self.n = n
        self.frame = frame
        self.answered = answered
        self.repeat = repeat
        self.progress = progress
        self.answer: Answer | None = None
        self.error: Exception | None = None
        self.sent = False
        self.cancelled = False

    def __repr__(self) -> str:
        """Show the number and the kind."""
        return f"<Asked {self.n}: {type(self.frame).__name__}>"


class Ledger:
    """The requests of one session, in the order of their numbers, and what is to be sent."""

    __slots__ = ("_asked", "_last", "_repeat_to", "outbox")

    def __init__(self) -> None:
        self._asked: dict[int, Asked] = {}
        self._last = 0
        self._repeat_to = 0
        self.outbox: deque[Request] = deque()

    def __len__(self) -> int:
        """How many wait for their answer."""
        return len(self._asked)

    def number(self) -> int:
        """Return the next request number."""
        self._last += 1
        return self._last

    @property
    def seen(self) -> int:
        """All answers up to this number have arrived: the host need not remember them.

        Ask before `number`: that request has not been answered.
        """
        return next(iter(self._asked), self._last + 1) - 1

    def enter(self, asked: Asked) -> None:
        """Enter a request, with the number that was given out last, and let it be sent."""
        self._asked[asked.n] = asked
        self.outbox.append(asked.frame)

    def get(self, n: int) -> Asked | None:
        """Return a request that waits for its answer."""
        return self._asked.get(n)

    def settle(self, n: int) -> Asked | None:
        """Take out the request that is answered; None: nobody waits for it any more."""
        return self._asked.pop(n, None)

    def cancel(self, n: int) -> None:
        """Let a request be answered with what there is, by this host or by the next."""
        asked = self._asked.get(n)
        if asked is not None:
            asked.cancelled = True
            self.outbox.append(frames.Cancel(n))

    def next_message(self) -> list[Request]:
        """Take out what goes into one message of the wire."""
        message: list[Request] = []
        size = 0
        while self.outbox and len(message) < _MESSAGE_FRAMES and size < _MESSAGE_BYTES:
            frame = self.outbox.popleft()
            message.append(frame)
            size += _size_of(frame)
            asked = self._asked.get(getattr(frame, "n", 0))
            if asked is not None:
                asked.sent = True
        return message

    # ---------------------------------------------------------------- from host to host

    def lost(self) -> list[Asked]:
        """Take out what the host may or may not have done, and what must not be asked twice."""
        self.outbox.clear()  # what has no answer went with the host
        unknown = [asked for asked in self._asked.values() if asked.sent and not asked.repeat]
        for asked in unknown:
            del self._asked[asked.n]
        return unknown

    def sent(self) -> list[Asked]:
        """Take out what the host has been asked: one of these it may have misunderstood."""
        self.outbox.clear()
        sent = [asked for asked in self._asked.values() if asked.sent]
        for asked in sent:
            del self._asked[asked.n]
        return sent

    def restart(self) -> None:
        """There is a host: what is told from now on goes before what is repeated."""
        self.outbox.clear()
        self._repeat_to = self._last

    def repeat(self) -> None:
        """Let all that waits since before `restart` be sent to this host, in order."""
        for asked in self._asked.values():
            if asked.n > self._repeat_to:
                break
            self.outbox.append(asked.frame)
            if asked.cancelled:
                self.outbox.append(frames.Cancel(asked.n))

    def drain(self) -> list[Asked]:
        """Take out everything: nobody will answer any more."""
        self.outbox.clear()
        everything = list(self._asked.values())
        self._asked.clear()
        return everything


def answer_of(asked: Asked) -> Answer:
    """Return the answer to a request. Raises what it failed with."""
    if asked.error is not None:
        raise asked.error
    answer = asked.answer
    assert answer is not None  # noqa: S101 - one of the two is set
    if isinstance(answer, frames.Failed):
        raise raised(answer)
    return answer


def _size_of(frame: Request) -> int:
    if isinstance(frame, frames.Put):
        return sum(map(len, frame.bodies))
    if isinstance(frame, frames.PutRows):
        return sum(len(row.body) for row in frame.rows)
    return 64
