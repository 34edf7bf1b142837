"""What the frames of a client that is logged in do: messages, pulls, commands, answers.

Knows: what each type of frame sets off, and what it is answered.
Does not know: the handshake and the order of frames (session.py), how commands are done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from embedq.errors import EmbedqError
from embedq.message import Receipt
from embedq.net import Connection, Delivery
from embedq_transports.tmq.answers import (
    admitted,
    made_delivery,
    pull_answer,
    relayed,
    status_for,
)
from embedq_transports.tmq.asked import Question
from embedq_transports.tmq.commands import QueueStatus, Unreadable, read_command
from embedq_transports.tmq.envelope import draft_of
from embedq_transports.tmq.frames import PONG, Content, Frame, Kind
from embedq_transports.tmq.handout import Handout, Member
from embedq_transports.tmq.hub import Hub, is_group
from embedq_transports.tmq.names import channel_name, key_of
from embedq_transports.tmq.orders import Order, create_queue, status_of
from embedq_transports.tmq.queues import Queue
from embedq_transports.tmq.terms import Deliveries

if TYPE_CHECKING:
    from embedq_transports.tmq.session import TmqSession


class Traffic:
    """The frames of one client, each admitted first: its source is filled in."""

    def __init__(self, session: TmqSession, connection: Connection, hub: Hub) -> None:
        self._session = session
        self._connection = connection
        self._broker = connection.broker
        self._hub = hub

    def follows_puts(self, frame: Frame) -> bool:
        """Whether it waits until what the client has put is stored: a command, or a pull."""
        return frame.kind == Kind.SERVER or self._is_pull(frame)

    def take(self, frame: Frame) -> None:
        """Do what a frame says."""
        frame = admitted(frame, self._session.client_id)
        match frame.kind:
            case Kind.PING:
                self._session.send(PONG)
            case Kind.SERVER:
                self._command(frame)
            case Kind.CHANNEL:
                self._channel(frame)
            case Kind.CLIENT:
                self._peer(frame)
            case Kind.DELIVERY:
                self._delivery(frame)
            case Kind.RESPONSE:
                self._response(frame)
            case _:
                """A Pong: that it came is all that it says."""

    def _answer(self, request: Frame, status: int) -> None:
        """Answer a request that can be told from others; count what nobody is told."""
        if request.message_id:
            self._session.send(status_for(request, status))
        else:
            self._count("unanswered", status)

    def _answer_if_wanted(self, request: Frame, status: int) -> None:
        if request.response_required:
            self._answer(request, status)

    def _count(self, what: str, of: object) -> None:
        self._connection.site.count(what, str(int(of)) if isinstance(of, int) else str(of))

    # ------------------------------------------------------------------------------- commands

    def _command(self, frame: Frame) -> None:
        command = read_command(frame)
        if isinstance(command, Unreadable):
            self._answer_if_wanted(frame, command.status)
            return
        answered = self._session.asking()

        def answer(status: int) -> None:
            answered(partial(self._answer_if_wanted, frame, status))

        Order(self._hub, self._session, command, answer).carry_out()

    # --------------------------------------------------------------------------------- pushes

    def _channel(self, frame: Frame) -> None:
        """A push, or a pull. A queue that is not known may have been made by others."""
        queue = self._hub.queue(frame.target, frame.content_type)
        if queue is not None:
            self._to_queue(frame, queue)
            return
        if channel_name(frame.target) is None:
            self._answer(frame, Content.NOT_FOUND)
            return
        answered = self._session.asking()

        def looked(error: EmbedqError | None) -> None:
            answered(lambda: self._looked(frame, error))

        self._hub.look(looked)

    def _looked(self, frame: Frame, error: EmbedqError | None) -> None:
        queue = self._hub.queue(frame.target, frame.content_type)
        if error is not None:
            self._answer(frame, status_of(error))
        elif queue is not None:
            self._to_queue(frame, queue)
        elif not self._hub.terms.create:
            self._answer(frame, Content.NOT_FOUND)
        else:
            answered = self._session.asking()

            def created(made: Queue | int) -> None:
                if isinstance(made, int):
                    answered(lambda: self._answer(frame, made))
                else:
                    answered(lambda: self._to_queue(frame, made))

            create_queue(self._hub, self._session, frame, created)

    def _to_queue(self, frame: Frame, queue: Queue) -> None:
        terms = queue.terms
        if self._is_pull(frame):
            self._pull(frame, queue)
        elif not self._broker.may("put", queue.name):
            self._answer(frame, Content.UNAUTHORIZED)
        elif terms.status is QueueStatus.STOPPED:
            self._answer(frame, Content.UNACCEPTABLE)
        elif terms.message_bytes and len(frame.payload) > terms.message_bytes:
            self._answer(frame, Content.LIMIT_EXCEEDED)
        elif terms.status is QueueStatus.ROUTE and not queue.is_heard:
            self._count("dropped", "route")
        else:
            self._put(frame, queue)

    def _put(self, frame: Frame, queue: Queue) -> None:
        now = self._broker.now_ms()
        expires = now + queue.terms.keeps_ms if queue.terms.keeps_ms else None
        stored = partial(self._stored, frame, queue)
        try:
            draft = draft_of(frame, queue.channel.target, expires)
        except EmbedqError as error:
            self._answer(frame, status_of(error))
            return
        if frame.response_required:
            self._hub.asked.asks(key_of(queue.channel.name), frame.message_id, frame.source)
        self._session.unstored.add(queue.name)
        self._broker.put(queue.name, draft, stored)

    def _stored(self, frame: Frame, queue: Queue, result: Receipt | EmbedqError) -> None:
        """Nothing is said of a message that is stored, unless its producer wants a Delivery."""
        self._session.unstored.done(queue.name)
        if isinstance(result, EmbedqError):
            self._answer(frame, status_of(result))
        elif (
            frame.acknowledge and frame.message_id and queue.terms.deliveries is Deliveries.STORED
        ):
            self._session.send(made_delivery(frame))
        self._session.go_on()

    # ---------------------------------------------------------------------------------- pulls

    def _is_pull(self, frame: Frame) -> bool:
        if frame.kind != Kind.CHANNEL or frame.payload:
            return False
        queue = self._hub.queue(frame.target, frame.content_type)
        return (
            frame.response_required
            and bool(frame.message_id)
            and queue is not None
            and queue.terms.status is QueueStatus.PULL
        )

    def _pull(self, frame: Frame, queue: Queue) -> None:
        is_member = self._session in queue.channel.members
        if not is_member or not self._broker.may("consume", queue.name):
            self._answer(frame, Content.UNAUTHORIZED)
            return

        def taken(got: list[Delivery] | EmbedqError) -> None:
            if isinstance(got, EmbedqError):
                self._answer(frame, status_of(got))
            elif not got:
                self._answer(frame, Content.NOT_FOUND)
            else:
                self._pulled(frame, queue, got[0])

        self._broker.take(queue.name, 1, taken, group=self._hub.terms.group)

    def _pulled(self, request: Frame, queue: Queue, delivery: Delivery) -> None:
        if not self._hub.is_online(self._session):
            delivery.release()  # it has ended since it asked, and reads no more
            return
        # What the client will acknowledge is the answer, under the id of its request.
        message, handout = queue.prepare(delivery, request.message_id)
        message = replace(message, first_acquirer=queue.is_new(delivery), acknowledge=handout.asks)
        answer = pull_answer(request, message, hide_source=queue.terms.hides)
        if message.response_required:
            asked = (key_of(queue.channel.name), message.message_id, message.source)
            self._hub.asked.pulled(asked, self._session, request.message_id, answer.source)
        queue.send(handout, [(self._session, answer)])

    # ------------------------------------------------------------------- between the clients

    def _peer(self, frame: Frame) -> None:
        found = self._hub.clients(frame.target)
        if not self._broker.may("put", None):
            self._answer(frame, Content.UNAUTHORIZED)
        elif not found:
            if frame.target and (frame.response_required or not is_group(frame.target)):
                self._answer(frame, Content.NOT_FOUND)
        elif not self._relay(frame, found[:1] if frame.first_acquirer else found):
            self._answer(frame, Content.BUSY)

    def _relay(self, frame: Frame, clients: Sequence[Member]) -> bool:
        """Pass a frame on. False: they all read so slowly that it was dropped."""
        if not frame.message_id:
            frame = replace(frame, message_id=self._hub.new_id())
        passed = relayed(frame)
        if passed is None:
            self._count("dropped", "ttl")
            return True
        ready = [client for client in clients if not client.is_full]
        for client in ready:
            client.send(passed)
        if len(ready) < len(clients):
            self._count("dropped", "slow")
        return bool(ready)

    def _delivery(self, frame: Frame) -> None:
        """An acknowledgement of a message, or of what another client has sent."""
        channel = self._hub.channel(frame.target)
        client = self._hub.client(frame.target)
        if client is not None and (frame.priority or channel is None):
            self._relay(frame, [client])
        elif channel is not None:
            queue = channel.queues.get(frame.content_type)
            handout = None
            if queue is not None:
                handout = self._session.debts.find(queue, frame.message_id)
            if queue is not None and handout is not None:
                handout.acknowledged(self._tell_producer(frame, queue, handout))

    def _tell_producer(
        self, frame: Frame, queue: Queue, handout: Handout
    ) -> Callable[[EmbedqError | None], object]:
        hub, source = self._hub, handout.source
        # The producer waits for the id of its message, not for that of a pull.
        frame = replace(frame, message_id=handout.own_id)
        if queue.terms.hides:
            frame = replace(frame, source=b"")

        def settled(error: EmbedqError | None) -> None:
            producer = hub.client(source)
            wanted = queue.terms.deliveries is Deliveries.ACKNOWLEDGED
            if error is None and wanted and producer is not None:
                passed = relayed(frame)
                if passed is not None and not producer.is_full:
                    producer.send(passed)

        return settled

    def _response(self, frame: Frame) -> None:
        """An answer: for whom it names, or for whoever has asked in the channel that it names."""
        client = self._hub.client(frame.target)
        question = self._question(frame, client)
        if question is not None:
            self._hub.asked.end(question)
            client = self._hub.client(question.producer)
            frame = replace(frame, message_id=question.message_id)
        if client is not None:
            self._relay(frame, [client])
        else:
            self._count("dropped", "response")

    def _question(self, frame: Frame, client: Member | None) -> Question | None:
        """Return which message of a channel it answers.

        Who has pulled that knows the id of the request alone, and may name the channel, or the
        source of what it got, even where that was hidden.
        """
        asked, me = self._hub.asked, self._session
        channel = self._hub.channel(frame.target)
        key = "" if channel is None else key_of(channel.name)
        found = asked.of_pull(me, frame.message_id, frame.target)
        found = found or asked.of_pull(me, frame.message_id, key)
        if found is None and client is None and channel is not None and me in channel.members:
            found = asked.of_channel(key, frame.message_id)
        return found
