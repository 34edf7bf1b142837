"""What a client may tell the server to do: join and leave, make, change and remove.

Knows: the status that answers each command (docs/protocols/tmq.md, section Statuses), what has to
be durable before it.
Does not know: frames; how a channel does it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from embedq.errors import (
    EmbedqError,
    LimitExceeded,
    NotAllowed,
    QueueFull,
    QueueNotFound,
    StoreFull,
    UsageError,
)
from embedq_transports.tmq.book import entry
from embedq_transports.tmq.channels import Channel
from embedq_transports.tmq.commands import Command, QueueOptions, QueueStatus
from embedq_transports.tmq.frames import Content, Frame
from embedq_transports.tmq.handout import Member
from embedq_transports.tmq.hub import Hub
from embedq_transports.tmq.names import channel_name, queue_name
from embedq_transports.tmq.queues import Queue
from embedq_transports.tmq.terms import QueueTerms, layered, queue_terms

Answer = Callable[[int], object]
_MANAGE: Final = "manage"


def status_of(error: EmbedqError) -> int:
    """Return the status that says what an operation raised."""
    if isinstance(error, QueueNotFound):
        return Content.NOT_FOUND
    if isinstance(error, NotAllowed):
        return Content.UNAUTHORIZED
    if isinstance(error, QueueFull | StoreFull | LimitExceeded):
        return Content.LIMIT_EXCEEDED
    return Content.BAD_REQUEST if isinstance(error, UsageError) else Content.FAILED


class Order:
    """One command of a client. `answer` is called once, when it is done or refused."""

    def __init__(self, hub: Hub, client: Member, command: Command, answer: Answer) -> None:
        self._hub = hub
        self._client = client
        self._command = command
        self._answer = answer

    def carry_out(self) -> None:
        """Do it, once it is known what there is."""
        self._once_known(self._do)

    def _once_known(self, then: Callable[[], object]) -> None:
        """Look in the broker before saying that there is no such channel or queue."""
        command = self._command
        channel = self._hub.channel(command.channel)
        asks = command.queue if command.content is not Content.CREATE_CHANNEL else None
        if channel is not None and (asks is None or asks in channel.queues):
            then()
            return

        def looked(error: EmbedqError | None) -> None:
            if error is None:
                then()
            else:
                self._answer(status_of(error))

        self._hub.look(looked)

    def _do(self) -> None:
        match self._command.content:
            case Content.JOIN:
                self._answer(self._join())
            case Content.LEAVE:
                self._answer(self._leave())
            case Content.CREATE_CHANNEL:
                self._create_channel()
            case Content.REMOVE_CHANNEL:
                self._remove_channel()
            case Content.CREATE_QUEUE:
                self._create_queue()
            case Content.UPDATE_QUEUE:
                self._update_queue()
            case _:
                self._remove_queue()

    # ------------------------------------------------------------------------ join and leave

    def _join(self) -> int:
        if not self._hub.is_online(self._client):
            return Content.FAILED  # it has gone meanwhile: nobody would ever take it out again
        if not self._client.may("consume", None):
            return Content.UNAUTHORIZED
        hub = self._hub
        channel = hub.channel(self._command.channel)
        if channel is None and hub.terms.create:
            channel = self._made_channel()
        if channel is None:
            return Content.NOT_FOUND
        if self._client not in channel.members and not self._client.may_join(channel):
            hub.tidy(channel)
            return Content.LIMIT_EXCEEDED
        if not channel.join(self._client):
            return Content.LIMIT_EXCEEDED
        hub.look_now_and_then()
        return Content.OK

    def _leave(self) -> int:
        channel = self._hub.channel(self._command.channel)
        if channel is None or not channel.leave(self._client):
            return Content.NOT_FOUND
        self._hub.tidy(channel)
        return Content.OK

    # ----------------------------------------------------------------------------- channels

    def _made_channel(self) -> Channel | None:
        name = channel_name(self._command.channel)
        return None if name is None else self._hub.make_channel(name)

    def _may_manage(self, queue: str | None = None) -> bool:
        return self._client.may(_MANAGE, queue)

    def _create_channel(self) -> None:
        name = channel_name(self._command.channel)
        if not self._may_manage():
            self._answer(Content.UNAUTHORIZED)
        elif name is None:
            self._answer(Content.BAD_REQUEST)
        elif (known := self._hub.channel(self._command.channel)) is not None and (
            known.is_declared or known.queues
        ):
            self._answer(Content.DUPLICATE)
        else:
            options = self._command.options
            self._hub.book.write(
                entry(name, None, options), partial(self._channel_written, name, options)
            )

    def _channel_written(
        self, name: str, options: QueueOptions, error: EmbedqError | None
    ) -> None:
        if error is not None:
            self._answer(status_of(error))
            return
        channel = self._hub.make_channel(name)
        if channel is not None:
            channel.is_declared = True
            channel.options = options
            for queue in channel.queues.values():
                queue.change(queue.options)
        self._answer(Content.OK)

    def _remove_channel(self) -> None:
        channel = self._hub.channel(self._command.channel)
        if not self._may_manage():
            self._answer(Content.UNAUTHORIZED)
        elif channel is None:
            self._answer(Content.NOT_FOUND)
        else:
            self._remove(list(channel.queues.values()), channel)

    # ------------------------------------------------------------------------------- queues

    def _create_queue(self) -> None:
        name = channel_name(self._command.channel)
        content_type = self._command.queue or 0
        if name is None:
            self._answer(Content.BAD_REQUEST)
            return
        channel = self._hub.channel(self._command.channel)
        name = name if channel is None else channel.name
        if not self._may_manage(queue_name(name, content_type)):
            self._answer(Content.UNAUTHORIZED)
        elif channel is not None and content_type in channel.queues:
            self._answer(Content.DUPLICATE)
        elif channel is not None and (status := _refused(channel, content_type)) is not None:
            self._answer(status)
        else:
            self._settle(name, content_type, self._command.options, None)

    def _update_queue(self) -> None:
        queue = self._hub.queue(self._command.channel, self._command.queue or 0)
        if queue is None:
            self._answer(Content.NOT_FOUND)
        elif not self._may_manage(queue.name):
            self._answer(Content.UNAUTHORIZED)
        else:
            options = layered((self._command.options, queue.options))
            self._settle(queue.channel.name, queue.content_type, options, queue)

    def _settle(
        self, channel: str, content_type: int, options: QueueOptions, queue: Queue | None
    ) -> None:
        """Make the broker's queue what the options say, write them down, answer."""
        hub = self._hub
        known = hub.channel(self._command.channel)
        layers = (options, *([] if known is None else [known.options]), hub.terms.options)
        terms = queue_terms(layers, hub.terms.deliveries)
        former = None if queue is None else queue.terms
        name = queue_name(channel, content_type) if queue is None else queue.name
        office = hub.site.broker.office

        def work() -> None:
            office.declare(name, _changes(terms, former))
            is_paused = terms.status is QueueStatus.PAUSED
            if is_paused or (former is not None and former.status is QueueStatus.PAUSED):
                office.pause(name, paused=is_paused)
            if terms.status is QueueStatus.STOPPED:
                office.purge(name)

        def written(error: EmbedqError | None) -> None:
            if error is None:
                made = hub.make_channel(channel)
                if made is not None:
                    hub.make_queue(made, content_type).change(options)
            self._answer(Content.OK if error is None else status_of(error))

        def worked(error: EmbedqError | None) -> None:
            if error is None:
                hub.book.write(entry(channel, content_type, options), written)
            else:
                self._answer(status_of(error))

        hub.site.broker.call(work, worked)

    def _remove_queue(self) -> None:
        queue = self._hub.queue(self._command.channel, self._command.queue or 0)
        if queue is None:
            self._answer(Content.NOT_FOUND)
        elif not self._may_manage(queue.name):
            self._answer(Content.UNAUTHORIZED)
        else:
            self._remove([queue], None)

    def _remove(self, queues: Sequence[Queue], channel: Channel | None) -> None:
        """Remove queues one after the other, at the end their channel if that is meant."""
        if queues:
            queue, *rest = queues
            self._remove_one(queue, lambda: self._remove(rest, channel))
        elif channel is None:
            self._answer(Content.OK)
        else:
            self._channel_removed(channel)

    def _remove_one(self, queue: Queue, then: Callable[[], object]) -> None:
        hub, office = self._hub, self._hub.site.broker.office

        def written(error: EmbedqError | None) -> None:
            if error is None:
                hub.remove_queue(queue)
                then()
            else:
                self._answer(status_of(error))

        def purged(error: EmbedqError | None) -> None:
            gone = entry(queue.channel.name, queue.content_type, QueueOptions(), removed=True)
            if error is None:
                hub.book.write(gone, written)
            else:
                written(error)

        def purge() -> None:
            office.purge(queue.name)

        hub.site.broker.call(purge, purged)

    def _channel_removed(self, channel: Channel) -> None:
        def written(error: EmbedqError | None) -> None:
            if error is None:
                channel.is_declared = False
                channel.options = QueueOptions()
                for member in list(channel.members):
                    channel.leave(member)
                self._hub.tidy(channel)
            self._answer(Content.OK if error is None else status_of(error))

        gone = entry(channel.name, None, QueueOptions(), removed=True)
        self._hub.book.write(gone, written)


def _changes(terms: QueueTerms, former: QueueTerms | None) -> dict[str, object]:
    """Return the settings of the broker's queue that options stand for."""
    if terms.messages:
        return {"max_length": terms.messages, "when_full": "reject"}
    return {"max_length": None} if former is not None and former.messages else {}


def _refused(channel: Channel, content_type: int) -> int | None:
    """Return why a channel may not have one more queue."""
    options = channel.options
    if options.allowed_queues and content_type not in options.allowed_queues:
        return Content.UNAUTHORIZED
    most = options.queue_limit or 0
    if options.allow_multiple_queues is False:
        most = 1
    return Content.LIMIT_EXCEEDED if most and len(channel.queues) >= most else None


def create_queue(
    hub: Hub, client: Member, push: Frame, then: Callable[[Queue | int], object]
) -> None:
    """Make the queue of a push; `then` gets it, or the status that says why not."""
    name = channel_name(push.target)
    if name is None:
        then(Content.NOT_FOUND)
        return
    known = hub.channel(push.target)
    name = name if known is None else known.name
    content_type = push.content_type
    if not client.may("put", queue_name(name, content_type)):
        then(Content.UNAUTHORIZED)
    elif known is not None and (status := _refused(known, content_type)) is not None:
        then(status)
    elif (channel := hub.make_channel(name)) is None:
        then(Content.NOT_FOUND)
    elif not hub.was_removed(channel, content_type):
        then(hub.make_queue(channel, content_type))
    else:

        def written(error: EmbedqError | None) -> None:
            if error is None:
                then(hub.make_queue(channel, content_type))
            else:
                then(status_of(error))

        hub.book.write(entry(name, content_type, QueueOptions()), written)
