"""PHPMQ messages as bytes: what servers and clients send, in any form and dialect.

Knows: the order in which packages are written, that a message is one piece of bytes.
Does not know: which form a peer speaks, when something is due, sockets.

Numbers in brackets, as in (2), are the sections of docs/protocols/phpmq.md.
"""

from functools import lru_cache
from typing import Final, NoReturn

from embedq.errors import InvalidOption, LimitExceeded
from embedq_transports.phpmq.wire.messages import (
    CONTENT,
    FROM_CLIENT,
    FROM_SERVER,
    ID,
    QUEUE,
    TTL,
    WINDOW,
    WIRE_LIMITS,
    Consume,
    Dispatch,
    Form,
    Message,
    Publish,
    Requeue,
    WireLimits,
)

_USUAL: Final = Form()

# A message with a time to live has a header of its own.
_HEADER: Final[dict[tuple[type[Message], bool], bytes]] = {
    (shape.message, TTL in shape.packages): shape.header for shape in FROM_CLIENT + FROM_SERVER
}


def encode(message: Message, form: Form = _USUAL, limits: WireLimits = WIRE_LIMITS) -> bytes:
    """Return the message as one piece of bytes, to be written with one call (4).

    A client reads its header once and takes what came for the whole. Raises LimitExceeded for a
    name, a content or an id beyond `limits` or an empty id, InvalidOption for a negative number.
    """
    packages = _packages(message)
    header = _HEADER[type(message), packages[-1][0] == TTL]
    separator, digits = form.separator, form.width - 3
    parts = [header, separator]
    for kind, content in packages:
        _check(message, kind, content, limits)
        parts += (_package_header(kind, digits, len(content)), separator, content, separator)
    return b"".join(parts)


@lru_cache(maxsize=1024)
def _package_header(kind: int, digits: int, length: int) -> bytes:
    """Return "P", the kind and the length. The same few come again and again."""
    return b"P%02d%0*d" % (kind, digits, length)


def _packages(message: Message) -> list[tuple[int, bytes]]:
    """Return the packages in the order in which every program writes them (2)."""
    packages = [(QUEUE, message.queue)]
    if isinstance(message, Consume):
        packages.append((WINDOW, b"%d" % message.window))
        return packages
    if isinstance(message, (Publish, Dispatch)):
        packages.append((CONTENT, message.content))
    if not isinstance(message, Publish):
        packages.append((ID, message.id))
    if isinstance(message, (Publish, Dispatch, Requeue)) and message.ttl is not None:
        packages.append((TTL, b"%d" % message.ttl))
    return packages


def _check(message: Message, kind: int, content: bytes, limits: WireLimits) -> None:
    """Refuse what the other end would have to refuse, while somebody can still be told."""
    length = len(content)
    if kind >= WINDOW:
        if not content.isdigit() or length > limits.number_digits:
            raise InvalidOption(
                f"a number of a PHPMQ {type(message).__name__} is {content[:40].decode()}",
                hint=f"windows and times to live have 1 to {limits.number_digits} digits",
            )
    elif kind == QUEUE and length > limits.name_bytes:
        _refuse(message, "queue name", length, limits.name_bytes)
    elif kind == CONTENT and length > limits.content_bytes:
        _refuse(message, "content", length, limits.content_bytes)
    elif kind == ID and not 1 <= length <= limits.id_bytes:
        _refuse(message, "id", length, limits.id_bytes)


def _refuse(message: Message, what: str, length: int, most: int) -> NoReturn:
    name = type(message).__name__
    raise LimitExceeded(
        f"the {what} of a PHPMQ {name} has {length} bytes; at most {most}, an id at least 1"
    )
