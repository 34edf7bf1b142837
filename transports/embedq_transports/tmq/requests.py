"""The frames that TMQ clients send, as stock clients fill them.

Knows: which fields each request has (docs/protocols/tmq.md, sections Hello, Commands, Pull).
Does not know: connections; tests and our own clients encode these with a ClientWire.
"""

from embedq_transports.tmq.commands import QueueOptions, encode_options
from embedq_transports.tmq.frames import Content, Frame, Kind
from embedq_transports.tmq.hello import encode_hello


def hello(
    properties: tuple[tuple[str, str], ...], *, message_id: bytes = b"", source: bytes = b""
) -> Frame:
    """Return the Hello with these properties, in this order."""
    return Frame(
        Kind.SERVER,
        Content.HELLO,
        message_id,
        source,
        payload=encode_hello(properties),
        first_acquirer=True,
    )


def command(
    content: int,
    channel: bytes,
    *,
    message_id: bytes = b"",
    source: bytes = b"",
    payload: bytes = b"",
    response: bool = True,
) -> Frame:
    """Return a command to the server about a channel: Join, Leave and the like."""
    return Frame(
        Kind.SERVER, content, message_id, source, channel, payload, response_required=response
    )


def queue_payload(queue: int | QueueOptions) -> bytes:
    """Return the payload of CreateQueue: two bytes for an id, lines for options."""
    if isinstance(queue, int):
        return queue.to_bytes(2, "little")
    return encode_options(queue)


def push(
    channel: bytes,
    queue: int,
    payload: bytes,
    *,
    message_id: bytes = b"",
    source: bytes = b"",
    priority: bool = False,
    acknowledge: bool = False,
    response: bool = False,
) -> Frame:
    """Return a message for a queue of a channel."""
    return Frame(
        Kind.CHANNEL,
        queue,
        message_id,
        source,
        channel,
        payload,
        priority=priority,
        acknowledge=acknowledge,
        response_required=response,
    )


def pull(channel: bytes, queue: int, *, message_id: bytes, source: bytes = b"") -> Frame:
    """Return the request for one message of a pull queue: an empty push with RS."""
    return push(channel, queue, b"", message_id=message_id, source=source, response=True)


def peer(
    target: bytes,
    content_type: int,
    payload: bytes,
    *,
    message_id: bytes = b"",
    source: bytes = b"",
    response: bool = False,
) -> Frame:
    """Return a message for another client, or for `@name:` or `@type:` and a text."""
    return Frame(
        Kind.CLIENT,
        content_type,
        message_id,
        source,
        target,
        payload,
        response_required=response,
    )


def delivery(received: Frame, consumer: bytes) -> Frame:
    """Return the acknowledgement of a received message, as 2.8.5 builds it."""
    is_peer = received.kind == Kind.CLIENT
    return Frame(
        Kind.DELIVERY,
        received.content_type,
        received.message_id,
        consumer,
        received.source if is_peer else received.target,
        first_acquirer=received.first_acquirer,
        priority=is_peer,
    )


def response(request: Frame, content_type: int, payload: bytes, *, source: bytes = b"") -> Frame:
    """Return the answer to a received message.

    For a channel message stock clients name the channel as the target, not the producer: the
    server has to remember who asked.
    """
    return Frame(
        Kind.RESPONSE,
        content_type,
        request.message_id,
        source,
        request.target if request.kind == Kind.CHANNEL else request.source,
        payload,
        first_acquirer=request.first_acquirer,
    )
