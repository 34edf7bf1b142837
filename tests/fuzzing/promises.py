"""What a server owes a client: which of its messages are stored, for what came and was answered.

Knows: for each protocol when a message counts, and when a server may close; who has put what.
Does not know: mutations, connections, how a round ends (arena.py).

Nothing here is a tolerance: what is `certain` has to be stored, what is not `possible` must not
be, and between the two lies only what a client that was refused or cut cannot know.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from embedq.broker.port import QueuePort
from embedq.errors import EmbedqError, InvalidName
from embedq.message import Draft, Receipt
from embedq.names import check_queue_name, from_wire
from embedq.net.puts import Puts, Putter, Stored
from embedq_transports.mmqp import client as mmqp_client, faults as mmqp_faults
from embedq_transports.mmqp.answers import Record
from embedq_transports.mmqp.requests import GroupPoll, Ping, Poll, Send as MmqpSend
from embedq_transports.mmqp.session import draft_of
from embedq_transports.phpmq import wire as phpmq
from embedq_transports.sspq import wire as sspq


class Message(NamedTuple):
    """What is told apart of a message that was put."""

    queue: str
    body: bytes
    key: str | None = None


@dataclass
class Account:
    """What a client has sent, and what it has heard.

    `events`: what that means, read as one piece; nothing that came after the server had closed.
    `has_stayed`: until the server closed, and it has read everything. `is_early`: the server
    closed before the client had said that it sends no more, and `is_within` a frame.
    """

    events: Sequence[Any]
    answer: bytes
    cause: str
    has_stayed: bool
    is_early: bool
    is_within: bool


@dataclass
class Owed:
    """Messages in the order in which they were sent; `wrong`: why the client was told wrongly."""

    certain: list[Message] = field(default_factory=list)
    possible: list[Message] = field(default_factory=list)
    wrong: str | None = None

    def refuted_by(self, stored: Sequence[Message]) -> str | None:
        """Return what is wrong with what was stored, in its order."""
        certain, possible, found = map(by_queue, (self.certain, self.possible, stored))
        for queue in certain.keys() | found.keys():
            least, most, there = certain[queue], possible[queue], found[queue]
            if not len(least) <= len(there) <= len(most):
                bounds = f"{len(least)} to {len(most)}"
                return f"{bounds} messages to {queue!r} were sent, {len(there)} are stored"
            if there[: len(least)] != least or most[: len(there)] != there:
                return f"the messages in {queue!r} are not what was sent, in its order"
        return None


def by_queue(messages: Sequence[Message]) -> defaultdict[str, list[Message]]:
    """Messages of each queue: only those of one queue keep their order."""
    found: defaultdict[str, list[Message]] = defaultdict(list)
    for message in messages:
        found[message.queue].append(message)
    return found


class Book(Puts):
    """The puts of a loop, with who has put what and what came of it."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._entries: list[tuple[object, Message, list[Receipt | EmbedqError]]] = []

    def add(self, queue: QueuePort, draft: Draft, stored: Stored, owner: Putter) -> None:
        result: list[Receipt | EmbedqError] = []
        message = Message(queue.name, draft.body, draft.ordering_key)
        self._entries.append((owner, message, result))

        def noted(outcome: Receipt | EmbedqError) -> None:
            result.append(outcome)
            stored(outcome)

        super().add(queue, draft, noted, owner)

    def of(self, owner: object) -> list[Message]:
        """What of somebody's is stored."""
        return [message for whose, message, _ in self.stored() if whose is owner]

    def stored(self) -> Iterator[tuple[object, Message, str]]:
        """Everything that is stored: whose, what, its id."""
        for owner, message, result in self._entries:
            if result and isinstance(result[0], Receipt):
                yield owner, message, result[0].id

    @property
    def unanswered(self) -> int:
        """Puts of which nobody knows what became of them, or that were answered twice."""
        return sum(len(result) != 1 for _, _, result in self._entries)


def owed_by_sspq(queue: str, account: Account) -> Owed:
    """Every complete SEND is stored, however the connection ends."""
    sent = [Message(queue, each.payload) for each in account.events if isinstance(each, sspq.Send)]
    return Owed(sent, sent)


def owed_by_phpmq(account: Account) -> Owed:
    """Every complete package whose queue can be is stored, however the connection ends."""
    published = [each for each in account.events if isinstance(each, phpmq.Publish)]
    sent = [
        Message(from_wire(each.queue), each.content) for each in published if is_name(each.queue)
    ]
    return Owed(sent, sent)


def owed_by_mmqp(account: Account) -> Owed:
    """Silence and an orderly end mean that all is stored; what is refused is answered."""
    owed = _heard_out(account) if account.has_stayed else _left_alone(account)
    # Who has sent one request is closed at once, who sends several when it shuts its side: a pause
    # does not pass here before that. A pong is the last answer.
    count = len(account.events)
    ends = count == 1 or (count > 0 and isinstance(account.events[-1], Ping))
    if account.is_early and account.cause == "end" and (account.is_within or not ends):
        owed.wrong = f"is closed after {count} requests, though it sends more"
    return owed


def _heard_out(account: Account) -> Owed:
    """Who was answered knows what is stored."""
    owed, heard = Owed(), Heard(account.answer)
    is_refused = may_be_refused = False
    for event in account.events:
        if isinstance(event, MmqpSend):
            message = message_of(event)
            is_refused = is_refused or message is None
            if message is not None:
                owed.possible.append(message)
                # Behind one that is refused may be some that had come with it.
                owed.certain += [message] * (not is_refused)
        elif is_refused:
            break  # it waits for what is refused
        elif not isinstance(event, Poll | GroupPoll):
            may_be_refused = isinstance(event, mmqp_faults.Fault)
            break
        elif not heard.next_list():
            is_refused = True  # there is no such queue
            break
    if is_refused and not heard.is_refused:
        owed.wrong = "is not told that something is refused"
    elif heard.is_refused and not (is_refused or may_be_refused):
        owed.wrong = "is refused, for nothing that it has sent"
    elif heard.lists:
        owed.wrong = "is answered more often than it has asked"
    return owed


def _left_alone(account: Account) -> Owed:
    """Who has gone, or does not read, is owed what it sent before it had to wait for an answer."""
    owed, is_certain = Owed(), True
    for event in account.events:
        if isinstance(event, mmqp_faults.Fault | Ping):
            break
        message = message_of(event) if isinstance(event, MmqpSend) else None
        if message is None:
            is_certain = False
            continue
        owed.possible.append(message)
        owed.certain += [message] * is_certain
    return owed


class Heard:
    """What a client of MMQP was answered. `lists`: so many answers to polls are left."""

    def __init__(self, answer: bytes) -> None:
        reader = mmqp_client.ClientWire()
        events = [*reader.feed(answer), *reader.end()]
        self.lists = sum(isinstance(each, mmqp_client.EndOfRecords) for each in events)
        self.is_refused = any(isinstance(each, mmqp_client.ErrorLine) for each in events)
        records = [each for each in events if isinstance(each, Record)]
        self.ids = [each.message_id.rstrip(b"\0").decode("latin-1") for each in records]

    def next_list(self) -> bool:
        """Whether the next poll was answered with a list."""
        is_there = self.lists > 0
        self.lists -= is_there
        return is_there


def message_of(request: MmqpSend) -> Message | None:
    """What a request puts; None if it is refused: not every group is an ordering key."""
    try:
        draft = draft_of(request)
    except InvalidName:
        return None
    name = request.queue.encode()
    if not is_name(name):
        return None
    return Message(from_wire(name), draft.body, draft.ordering_key)


def is_name(name: bytes) -> bool:
    """Whether a queue can have this name of a wire."""
    try:
        check_queue_name(from_wire(name))
    except InvalidName:
        return False
    return True
