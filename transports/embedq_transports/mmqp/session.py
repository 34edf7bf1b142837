"""One MMQP connection: its requests become operations, one after the other, then it is closed.

Knows: the order of answers, who has to be known first, what closing means.
Does not know: bytes of requests, sockets, how messages are stored.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from embedq.errors import (
    EmbedqError,
    LimitExceeded,
    NotAllowed,
    QueueFull,
    QueueNotFound,
    StoreFull,
    UsageError,
    shown,
)
from embedq.message import Draft, Receipt, draft
from embedq.names import from_wire
from embedq.net import ANYBODY, Connection, Credentials, Delivery, Identity, Session
from embedq.net.timers import Timer
from embedq.payload import TEXT
from embedq_transports.mmqp.answers import END, PONG, encode_error, encode_records
from embedq_transports.mmqp.faults import Fault
from embedq_transports.mmqp.limits import MmqpLimits
from embedq_transports.mmqp.polling import Polling, record_of
from embedq_transports.mmqp.requests import MAIN_GROUP, GroupPoll, Ping, Poll, Send
from embedq_transports.mmqp.strings import Code
from embedq_transports.mmqp.wire import Event, ServerWire

_log = logging.getLogger("embedq.net")
#: Seconds without a byte after which a request that may end here does.
QUIET_S: Final = 0.075


@dataclass(frozen=True, slots=True)
class Terms:
    """What holds for all connections of a listener. `queues`: made if they are missing."""

    limits: MmqpLimits
    create: bool
    queues: frozenset[str]
    quiet_s: float


class MmqpSession(Session):
    """Answers what has come, in order, and closes: success of a message is nothing but that.

    Because an orderly end means success, anything else must look different: until all is done
    the connection is one that the kernel resets if this process dies.
    """

    def __init__(self, connection: Connection, terms: Terms) -> None:
        self._connection = connection
        self._terms = terms
        self._wire = ServerWire(terms.limits)
        self._waiting: deque[Event] = deque()
        self._asking = False  # a login or a poll is under way, and what follows waits for it
        self._is_within_list = False  # a part of the answer to a poll is written
        self._is_leaving = False  # all of it is written, and much of it waits
        self._puts = 0
        self._who: tuple[str, str] | None = None
        self._quiet: Timer | None = None
        self._has_paused = False  # since something came
        self._has_ended = False
        self._over = False
        self._has_told = False  # that a second group is passed over
        self._resets = False  # the kernel does, if this process dies
        self._must_reset(on=True)

    # ------------------------------------------------------------------ called by the network

    def received(self, data: bytes) -> None:
        """Read requests; those that may be complete are, unless more comes soon."""
        connection = self._connection
        if connection.identity is None and not connection.site.asks:
            connection.admit(ANYBODY)  # only now: who sends nothing has login_s
        if self._quiet is not None:
            self._quiet.cancel()
            self._quiet = None
        self._has_paused = False
        self._came(self._wire.feed(data))
        if self._wire.waits_for_quiet and not self._over:
            self._quiet = connection.later(self._terms.quiet_s, self._is_quiet)

    def ended(self) -> bool:
        """No more comes: what is complete is still answered."""
        self._has_ended = True
        self._came(self._wire.end())
        return not self._over

    def lost(self, cause: str) -> None:  # noqa: ARG002  # each cause means the same
        """Keep nothing of what is incomplete."""
        self._wire.end()

    def draining(self) -> None:
        """Say so to those who would take an end for success."""
        if self._over:
            return
        is_asked = self._asking and not (self._is_within_list or self._is_leaving)
        self._end_list()
        if self._wire.pending or self._waiting or is_asked or self._connection.has_unread:
            self._waiting.clear()
            self._refuse(Code.SHUTTING_DOWN, "")
        elif self.frames and not self._puts:
            self._finish("drain")

    def _is_quiet(self) -> None:
        self._quiet = None
        self._has_paused = True
        self._came(self._wire.quiet())

    def _came(self, events: list[Event]) -> None:
        self._waiting += events
        self.frames += len(events)
        self.pending = self._wire.pending
        self._go()

    # ------------------------------------------------------------------------------ in order

    def _go(self) -> None:
        """Begin what can begin; close once there is nothing more."""
        while self._waiting and not self._asking and not self._over:
            event = self._waiting[0]
            if isinstance(event, Ping | Fault):
                if self._puts:
                    break
                self._last(event)
            elif self._must_ask(event):
                self._ask(event)
            elif isinstance(event, Send):
                self._waiting.popleft()
                self._put(event)
            elif self._puts:
                break
            else:
                self._waiting.popleft()
                self._poll(event)
        if self._waiting and not self._over:
            self._connection.hold()
            return
        self._connection.unhold()
        if not (self._asking or self._puts or self._over):
            self._idle()

    def _idle(self) -> None:
        """Close, unless something may still come: it would be lost, and look stored."""
        reading = self._wire.pending and not self._wire.closed
        if self._has_ended or self._connection.site.is_draining:
            self._finish("end")
        elif self.frames and not reading:  # who has asked for nothing yet may still do so
            # A large write of requests is cut where one of them ends, once in a while: who has
            # sent several gets a pause to go on.
            self._close(waits=self.frames > 1 and not self._has_paused)

    def _close(self, *, waits: bool) -> None:
        """Close, once the client has sent nothing for a moment if that `waits`."""
        if not waits and not self._connection.has_unread:
            self._finish("end")
        elif self._quiet is None:
            self._quiet = self._connection.later(self._terms.quiet_s, self._is_over)

    def _is_over(self) -> None:
        self._quiet = None
        if not self._over:
            self._close(waits=False)

    def _last(self, event: Ping | Fault) -> None:
        """Answer what nothing can follow."""
        if isinstance(event, Ping):
            self._connection.write(PONG)
            self._finish("end")
            return
        connection = self._connection
        connection.site.faulty(connection, event.code.value, event.text)
        # Who has cut its request off itself knows that it has not sent it: an end in good order
        # tells it nothing else.
        connection.write(event.answer)
        self._finish("protocol")

    def _must_reset(self, *, on: bool) -> None:
        """Whether an end that nobody has decided must not look like one in good order."""
        if on is not self._resets:
            self._resets = on
            self._connection.reset_if_killed(on=on)

    def _finish(self, cause: str) -> None:
        self._over = True
        self._waiting.clear()
        self._connection.unhold()
        if self._connection.is_open:  # else it was cut
            self._must_reset(on=False)
        # Closing before the client has sent its last byte would reset the connection.
        self._connection.finish(cause, linger=True)

    def _refuse(self, code: Code, detail: str) -> None:
        """Send an error line, behind which nothing can stand."""
        self._connection.write(encode_error(code, detail), ends=True)
        self._finish("refused")

    # ---------------------------------------------------------------------------------- login

    def _must_ask(self, request: Send | Poll | GroupPoll) -> bool:
        who = (request.user, request.password)
        return self._connection.site.asks and who != self._who

    def _ask(self, request: Send | Poll | GroupPoll) -> None:
        """Every request says who it is of; the queue is looked for afterwards."""
        self._asking = True
        credentials = Credentials(request.user, request.password.encode())

        def known(identity: Identity | None) -> None:
            self._asking = False
            if self._over:
                return
            if identity is None:
                self._refuse(Code.AUTH_FAILED, "")
            else:
                self._who = (request.user, request.password)
                self._go()

        self._connection.login(credentials, known)

    # ------------------------------------------------------------------------------- requests

    def _put(self, request: Send) -> None:
        self._puts += 1
        self._must_reset(on=True)

        def stored(result: Receipt | EmbedqError) -> None:
            self._puts -= 1
            if not self._over:
                if isinstance(result, EmbedqError):
                    self._failed(result, request.queue)
                else:
                    self._go()

        try:
            message = draft_of(request)
        except EmbedqError as error:
            refusal = error
            self._connection.site.soon(lambda: stored(refusal))
            return
        queue = from_wire(request.queue.encode())
        create = self._terms.create or queue in self._terms.queues
        self._connection.broker.put(queue, message, stored, create=create)

    def _poll(self, request: Poll | GroupPoll) -> None:
        self._asking = True
        # A reset would take away what the kernel is still sending of the answer, which is settled;
        # and where it ends is seen without the end of the connection.
        self._must_reset(on=bool(self._waiting))
        group, most = None, 1
        if isinstance(request, Poll):
            most = request.count
        else:
            group = None if request.any_group else request.group
            if request.differs:
                self._pass_over_second(request)

        def found(result: Sequence[Delivery] | EmbedqError) -> None:
            for _ in range(polling.not_utf8):
                self._connection.site.count("passed_over", "not_utf8")
            if isinstance(result, EmbedqError):
                self._asking = False
                self._end_list()
                self._failed(result, request.queue)
            else:
                self._answer(result)

        polling = Polling(
            self._connection.broker,
            from_wire(request.queue.encode()),
            most,
            self._terms.limits.answer_bytes,
            found,
            self._answer_in_part,
            group=group,
        )
        polling.start()

    def _pass_over_second(self, request: GroupPoll) -> None:
        """Count it, and tell it once: a client that names two groups may want the other one."""
        connection = self._connection
        connection.site.count("ignored", "second_group")
        if not self._has_told:
            self._has_told = True
            text = "%s at %s asks for the group %s and then for %s: the first counts"
            groups = shown(request.group), shown(request.second)
            _log.info(text, connection.peer, connection.site.url, *groups)

    def _answer(self, found: Sequence[Delivery]) -> None:
        """End the list of a poll."""
        if self._over:  # it is shutting down, and has said so
            for delivery in found:
                delivery.release()
            return

        def left(gone: bool) -> None:  # noqa: FBT001 - what Connection.write says
            for delivery in found:
                delivery.left(gone)
            if gone and self._is_leaving:
                self._asking = self._is_leaving = False
                self._go()

        records = map(record_of, found)
        begins, self._is_within_list = not self._is_within_list, False
        self._connection.write(encode_records(records, begins=begins), left)
        if self._connection.is_clogged:
            self._is_leaving = True  # what follows would be too much
        else:
            self._asking = False
            self._go()

    def _answer_in_part(self, found: Sequence[Delivery], go_on: Callable[[], None]) -> None:
        """Begin the list of a poll, or continue it; go on once what is in it is settled."""
        if self._over:
            for delivery in found:
                delivery.release()
            return
        unsettled = len(found)

        def settled(_error: EmbedqError | None) -> None:
            nonlocal unsettled
            unsettled -= 1
            if not unsettled:
                go_on()

        def left(gone: bool) -> None:  # noqa: FBT001 - what Connection.write says
            for delivery in found:
                if gone:
                    delivery.ack(settled)
                else:
                    delivery.release()

        records = map(record_of, found)
        begins = not self._is_within_list
        self._is_within_list = True
        self._connection.write(encode_records(records, begins=begins, ends=False), left)

    def _end_list(self) -> None:
        """End the answer to a poll that has begun and is not gone on with."""
        if self._is_within_list and not self._over:
            self._is_within_list = False
            self._connection.write(END, ends=True)

    def _failed(self, error: EmbedqError, queue: str) -> None:
        if self._over:
            return
        code = code_of(error)
        if code is Code.QUEUE_NOT_FOUND:
            self._refuse(code, queue)
        else:
            # Who may not use a queue does not learn whether there is one.
            self._refuse(code, "" if code is Code.AUTH_FAILED else error.message)


def draft_of(request: Send) -> Draft:
    """Return the message of a request: text, its group as ordering key unless it is "main".

    Raises InvalidName for a group that is no key.
    """
    group = request.ordering_group
    if group == MAIN_GROUP:
        return Draft(request.body, TEXT)
    return draft(request.body, TEXT, ordering_key=group)


def code_of(error: EmbedqError) -> Code:
    """Return the word of an error line for what an operation raised."""
    if isinstance(error, QueueNotFound):
        return Code.QUEUE_NOT_FOUND
    if isinstance(error, NotAllowed):
        return Code.AUTH_FAILED
    if isinstance(error, QueueFull | StoreFull):
        return Code.QUEUE_FULL
    if isinstance(error, LimitExceeded):
        # No queue is made any more: to a client that is the same as where none is made at all.
        is_unmade = error.details.get("limit") == "created_queues"
        return Code.QUEUE_NOT_FOUND if is_unmade else Code.TOO_LARGE
    return Code.BAD_REQUEST if isinstance(error, UsageError) else Code.SHUTTING_DOWN
