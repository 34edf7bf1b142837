"""What a client has asked and not been told yet: request numbers, answers, what to repeat.

Knows: which request an answer belongs to, which ones may be repeated after a reconnect.
Does not know: sockets, threads that wait, what a request means.

Used under the lock of its link.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from embedq.ipc.frames import Answer, Request

Answered = Callable[["Asked"], object]
OnProgress = Callable[[int, int], object]


class Asked:
    """One request on its way. `answered` is called once, with `answer` or `error` set.

    `repeat`: whether it may be sent again to the next host if this one ends before it answers.
    """

    __slots__ = ("answer", "answered", "error", "frame", "n", "progress", "repeat", "sent")

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

    def __repr__(self) -> str:
        """Show the number and the kind."""
        return f"<Asked {self.n}: {type(self.frame).__name__}>"


class Ledger:
    """The requests of one session, in the order of their numbers."""

    __slots__ = ("_asked", "_last")

    def __init__(self) -> None:
        self._asked: dict[int, Asked] = {}
        self._last = 0

    def __len__(self) -> int:
        """How many wait for their answer."""
        return len(self._asked)

    def number(self) -> int:
        """Return the next request number."""
        self._last += 1
        return self._last

    @property
    def seen(self) -> int:
        """All answers up to this number have arrived: the host need not remember them."""
        return next(iter(self._asked), self._last + 1) - 1

    def enter(self, asked: Asked) -> None:
        """Enter a request, with the number that was given out last."""
        self._asked[asked.n] = asked

    def get(self, n: int) -> Asked | None:
        """Return a request that waits for its answer."""
        return self._asked.get(n)

    def settle(self, n: int) -> Asked | None:
        """Take out the request that is answered; None: nobody waits for it any more."""
        return self._asked.pop(n, None)

    def lost(self) -> list[Asked]:
        """Take out what the host may or may not have done, and what must not be asked twice."""
        unknown = [asked for asked in self._asked.values() if asked.sent and not asked.repeat]
        for asked in unknown:
            del self._asked[asked.n]
        return unknown

    def again(self) -> Iterable[Asked]:
        """Go through what is to be sent to the next host, in order."""
        return list(self._asked.values())

    def drain(self) -> list[Asked]:
        """Take out everything: nobody will answer any more."""
        everything = list(self._asked.values())
        self._asked.clear()
        return everything
