"""The frames that a TMQ server makes or changes on the way through.

Knows: what it sets in each (docs/protocols/tmq.md, sections Rules, Statuses, Pull, Acknowledge).
Does not know: queues, members, pending deliveries: it is told what to say.
"""

from msgspec.structs import replace

from embedq_transports.tmq.frames import Content, Frame, Kind


def is_foreign(frame: Frame, client_id: bytes) -> bool:
    """Tell whether the frame claims to come from somebody else: the connection is to be closed.

    Big-endian clients of the oldest kind send payloads from 253 bytes on without a marker; that
    is read out of step, and shows up here.
    """
    return bool(frame.source) and frame.source != client_id


def admitted(frame: Frame, client_id: bytes) -> Frame:
    """Return an inbound frame as the server works with it (section Rules).

    An empty source becomes the client's id. Without a message id nobody could match a response,
    so none is required.
    """
    return replace(
        frame,
        source=frame.source or client_id,
        response_required=frame.response_required and bool(frame.message_id),
    )


def relayed(frame: Frame) -> Frame | None:
    """Return a frame as it is passed on: one hop less; None when its last hop is used up."""
    return replace(frame, ttl=frame.ttl - 1) if frame.ttl > 1 else None


def delivered(
    push: Frame,
    *,
    first_acquirer: bool,
    acknowledge: bool,
    hide_source: bool = False,
    message_id: bytes | None = None,
) -> Frame:
    """Return a push as a consumer gets it: the server alone decides about FA and AC.

    One hop less, but never none: the consumer would drop it, and a stored message is owed.
    `message_id` replaces the producer's.
    """
    return replace(
        push,
        kind=Kind.CHANNEL,
        first_acquirer=first_acquirer,
        acknowledge=acknowledge,
        ttl=max(1, push.ttl - 1),
        source=b"" if hide_source else push.source,
        message_id=push.message_id if message_id is None else message_id,
    )


def accepted(client_id: bytes, message_id: bytes = b"") -> Frame:
    """Return the answer to a Hello: the target is the id that the client has from now on."""
    return Frame(Kind.SERVER, Content.ACCEPTED, message_id, target=client_id, first_acquirer=True)


def refused(status: int, message_id: bytes = b"") -> Frame:
    """Return the answer to a Hello before closing: 400, 401, or 503 when the id is online."""
    return Frame(Kind.SERVER, status, message_id, first_acquirer=True)


def status_for(request: Frame, status: int) -> Frame:
    """Return a status answer: the request's id; the target is the channel for a push.

    `request` is admitted(): its source is filled in.
    """
    return Frame(
        Kind.RESPONSE,
        status,
        request.message_id,
        target=request.target if request.kind == Kind.CHANNEL else request.source,
        first_acquirer=True,
    )


def pull_answer(request: Frame, message: Frame, *, hide_source: bool = False) -> Frame:
    """Return the message for a pull: a Response with the request's id (section Pull)."""
    return replace(
        message,
        kind=Kind.RESPONSE,
        message_id=request.message_id,
        content_type=request.content_type,
        source=b"" if hide_source else message.source,
        target=request.target,
        ttl=max(1, message.ttl - 1),
    )


def made_delivery(push: Frame) -> Frame:
    """Return the server's own acknowledgement of a push, which completes a waiting producer."""
    return Frame(
        Kind.DELIVERY, push.content_type, push.message_id, target=push.target, first_acquirer=True
    )
