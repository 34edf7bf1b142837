"""Who waits for a Response to a message of a channel, and under which id its puller has it.

Knows: that consumers name the channel and not the producer, that a puller knows the id of its
request alone, that a Response is waited for once, and not for ever.
Does not know: frames, who is online.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, TypeVar

#: Messages whose Response is waited for; of more the oldest are forgotten.
_MOST: Final = 10_000


class Question:
    """A message whose producer waits for a Response. `channel`: by what it is looked up."""

    __slots__ = ("channel", "message_id", "producer", "pull", "until")

    def __init__(self, channel: str, message_id: bytes, producer: bytes) -> None:
        self.channel = channel
        self.message_id = message_id
        self.producer = producer
        self.until = 0.0
        #: Who has pulled it, the id of the request, and the producer as the answer names it.
        self.pull: tuple[object, bytes, bytes] | None = None


#: The id of a request, and the target of its Response: a channel (str) or a client (bytes).
_Named = tuple[bytes, str | bytes]
_Questions = dict[Question, None]  # the oldest first
_K = TypeVar("_K")


class Asked:
    """The questions of one listener. `waits_s`: seconds for which each is kept."""

    def __init__(self, now: Callable[[], float], waits_s: float) -> None:
        self._now = now
        self._waits_s = waits_s
        #: In the order in which they end.
        self._all: OrderedDict[tuple[str, bytes, bytes], Question] = OrderedDict()
        self._by_id: dict[tuple[str, bytes], _Questions] = {}
        self._pulled: dict[object, dict[_Named, _Questions]] = {}

    def __len__(self) -> int:
        """Return how many are kept."""
        return len(self._all)

    def asks(self, channel: str, message_id: bytes, producer: bytes) -> None:
        """Keep a question. A producer that uses an id again cannot tell the Responses apart."""
        key = (channel, message_id, producer)
        question = self._all.get(key)
        if question is None:
            question = self._all[key] = Question(channel, message_id, producer)
            self._by_id.setdefault((channel, message_id), {})[question] = None
        self._all.move_to_end(key)
        question.until = self._now() + self._waits_s
        self._forget()

    def _forget(self) -> None:
        now = self._now()
        while self._all:
            oldest = next(iter(self._all.values()))
            if len(self._all) <= _MOST and oldest.until > now:
                break
            self.end(oldest)

    def pulled(
        self, asked: tuple[str, bytes, bytes], puller: object, request_id: bytes, source: bytes
    ) -> None:
        """A message is with a client that pulled it, and no more with who did so before.

        `asked`: as it was given to asks(). `source`: the producer, as the puller knows it.
        """
        question = self._all.get(asked)
        if question is None:
            return
        self._let_go(question)
        question.pull = (puller, request_id, source)
        mine = self._pulled.setdefault(puller, {})
        for target in (question.channel, source):
            mine.setdefault((request_id, target), {})[question] = None

    def of_pull(self, puller: object, request_id: bytes, target: str | bytes) -> Question | None:
        """Return the oldest question that a Response of a puller means."""
        self._forget()
        return next(iter(self._pulled.get(puller, {}).get((request_id, target), ())), None)

    def of_channel(self, channel: str, message_id: bytes) -> Question | None:
        """Return the oldest question that a Response of a member of the channel means."""
        self._forget()
        return next(iter(self._by_id.get((channel, message_id), ())), None)

    def end(self, question: Question) -> None:
        """It is answered: the next Response is for nobody."""
        self._let_go(question)
        key = (question.channel, question.message_id)
        del self._all[(*key, question.producer)]
        _drop(self._by_id, key, question)

    def left(self, puller: object) -> None:
        """A client is gone: what it has pulled may be answered by the next one that gets it."""
        for questions in self._pulled.pop(puller, {}).values():
            for question in questions:
                question.pull = None

    def _let_go(self, question: Question) -> None:
        if question.pull is None:
            return
        puller, request_id, source = question.pull
        question.pull = None
        mine = self._pulled[puller]
        for target in (question.channel, source):
            _drop(mine, (request_id, target), question)
        if not mine:
            del self._pulled[puller]


def _drop(index: dict[_K, _Questions], key: _K, question: Question) -> None:
    same = index[key]
    del same[question]
    if not same:
        del index[key]
