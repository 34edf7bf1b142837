"""Every bound of a listener in one frozen value.

Knows: the number, the unit and the reason of each limit of the network.
Does not know: where a limit is enforced; what a message may be at all (embedq.limits).
"""

import math
from dataclasses import dataclass, fields
from typing import Final

from embedq.errors import InvalidOption, shown

KIB: Final = 1024
MIB: Final = 1024 * KIB


@dataclass(frozen=True, slots=True)
class NetLimits:
    """Bounds of one listener. Each comment is `unit: reason`. A time of 0 is no bound.

    Raises InvalidOption for what cannot be meant: with 0 of most others nobody could do anything.
    """

    # Connections

    #: connections: open at once. Each costs a descriptor and some 10 KiB.
    connections: int = 4_096
    #: connections: of one address at once, whose clients still send. One machine must not take all
    #: places.
    connections_per_peer: int = 1_024
    #: subscriptions: of one connection.
    subscriptions: int = 1_024
    #: queues: created by all clients of the listener since it began. A queue stays for ever.
    created_queues: int = 4_096

    # What comes in

    #: bytes: one body. Never more than embedq.limits.Limits.body_bytes.
    message_bytes: int = 16 * MIB
    #: bytes: one frame, with all that goes around a body. What a wire may hold of a stream.
    frame_bytes: int = 16 * MIB + 64 * KIB
    #: bytes: a name on a wire whose protocol leaves its length open (PHPMQ, MMQP). A queue's
    #: name has at most 255 in any case.
    name_bytes: int = 255
    #: puts: of one connection that are not durable yet. With more, its socket is not read.
    pending_puts: int = 1_024
    #: bytes: of these puts. One body may go beyond it.
    pending_bytes: int = 1 * MIB

    # What goes out

    #: bytes: unsent, from which on a connection gets no deliveries and is not read.
    unsent_pause_bytes: int = 64 * KIB
    #: bytes: unsent, from which on a connection is cut. One message may go beyond it.
    unsent_most_bytes: int = 4 * MIB
    #: deliveries: held by one connection and not settled.
    unacked: int = 65_535

    # Time

    #: seconds: from the connection to its login (or the end of its TLS handshake).
    login_s: float = 10.0
    #: seconds: from the first byte of a frame to its last.
    frame_s: float = 60.0
    #: seconds: without a byte either way, a subscription or a held message. 0: for ever.
    idle_s: float = 0.0
    #: seconds: in which a connection reads nothing of what waits for it, before it is cut.
    stall_s: float = 30.0
    #: seconds: that a connection which is closed in good order may take to read the rest.
    linger_s: float = 2.0

    def __post_init__(self) -> None:
        for each in fields(self):
            _check(each.name, getattr(self, each.name), is_time=each.type is float)


#: Counts and sizes that may be 0: then no queue is created, and bodies are empty.
_FROM_ZERO: Final = frozenset({"created_queues", "message_bytes"})


def _check(name: str, value: object, *, is_time: bool) -> None:
    least = 0 if is_time or name in _FROM_ZERO else 1
    kinds = (int, float) if is_time else (int,)
    if type(value) not in kinds or not least <= value < math.inf:  # type: ignore[operator]
        wanted = "a number of seconds" if is_time else "a whole number"
        raise InvalidOption(
            f"the limit {name}={shown(value)} is not {wanted} from {least} on",
            hint="a time of 0 is no bound; embedq/net/limits.py says what each of them is for",
            argument=name,
        )


NET_LIMITS: Final = NetLimits()
