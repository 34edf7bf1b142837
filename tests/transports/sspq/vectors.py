"""SSPQ packets as bytes and as events. The numbers are those of the specification, with its gaps.

`text`: words are hex, `xx*n` repeats a byte, `/` is where the bytes were cut on their way.
`canonical`: whether encoding the events gives the same bytes; the others carry junk or faults.
"""

from typing import Final, NamedTuple

from embedq_transports.sspq.wire import (
    Confirm,
    DeadReceive,
    Event,
    FaultCode,
    NoReceive,
    Receive,
    Send,
    Unknown,
)


class Vector(NamedTuple):
    name: str
    text: str
    events: list[Event | FaultCode]
    canonical: bool = True
    from_server: bool = False

    @property
    def pieces(self) -> list[bytes]:
        return [hexed(part) for part in self.text.split("/")]

    @property
    def data(self) -> bytes:
        return b"".join(self.pieces)


def hexed(text: str) -> bytes:
    parts = []
    for word in text.split():
        digits, star, count = word.partition("*")
        parts.append(bytes.fromhex(digits) * (int(count) if star else 1))
    return b"".join(parts)


VECTORS: Final = [
    Vector("S01", "5599 5e 03 00000005 68656c6c6f", [Send(b"hello", 3)]),
    Vector("S02", "5599 5e 02 00000000", [Send(b"", 2)]),
    Vector("S03", "5599 5e 00 00000003 626164", [Send(b"bad", 0)]),
    Vector("S04", "5599 5e ff 00000003 696e66", [Send(b"inf", 255)]),
    Vector("S05", "5599 5e 03 00000006 68c3a9e29883", [Send("hé☃".encode(), 3)]),
    Vector("S07", "5599 5e 03 00000100 61*256", [Send(b"a" * 256, 3)]),
    Vector("S08", "5599 5e 03 00010000 61*65536", [Send(b"a" * 65_536, 3)]),
    Vector("S09", "5599 ec 00 00000000", [Receive()]),
    Vector("S10", "5599 c0 00 00000000", [Confirm()]),
    Vector("S11", "5599 de 00 00000000", [DeadReceive()]),
    Vector("S12", "5599 0e 00 00000000", [NoReceive()], from_server=True),
    Vector("S13", "5599 5e 02 00000005 68656c6c6f", [Send(b"hello", 2)], from_server=True),
    Vector("S14", "5599 5e 00 00000003 626164", [Send(b"bad", 0)], from_server=True),
    # A request with a retry byte and a payload: both are read and thrown away.
    Vector("S15", "5599 ec 07 00000004 6a756e6b", [Receive()], canonical=False),
    Vector("S16", "5599 c0 09 00000005 6a756e6b32", [Confirm()], canonical=False),
    # Several packets in one segment, as the originals send them.
    Vector("S17", "5599 c0 00 00000000 5599 ec 00 00000000", [Confirm(), Receive()]),
    Vector(
        "S18",
        "5599 5e 03 00000001 61 5599 5e 03 00000001 62 5599 ec 00 00000000",
        [Send(b"a", 3), Send(b"b", 3), Receive()],
    ),
    # Cut inside the size: the original queues an empty message and closes.
    Vector("S20", "5599 5e 03 0000 / 0005 68656c6c6f", [Send(b"hello", 3)]),
    Vector("S22", "9955 5e 03 00000001 78", [FaultCode.MAGIC], canonical=False),
    Vector("S23", "474554202f20485454502f312e310d0a0d0a", [FaultCode.MAGIC], canonical=False),
    Vector("S25", "5599 ff 00 00000000", [Unknown(0xFF, 0)], canonical=False),
    Vector("S26", "5599 0e 00 00000000", [Unknown(0x0E, 0)], canonical=False),
    Vector("S27", "5599 5e 03 0000", [FaultCode.TRUNCATED], canonical=False),
    Vector("S29", "5599 5e 03 ffffffff 616263", [FaultCode.SIZE], canonical=False),
    # The size with its least significant byte first.
    Vector("S30", "5599 5e 03 05000000 68656c6c6f", [FaultCode.SIZE], canonical=False),
    Vector("S32", "5599 c0 00 00000000 5599 c0 00 00000000", [Confirm(), Confirm()]),
    # The ten-byte header of versions 0.1 and 0.2.
    Vector("S34", "5599 5e 01 012c 00000005 68656c6c6f", [FaultCode.SIZE], canonical=False),
    Vector("S36", "5599 5e fe 00000001 61", [Send(b"a", 254)]),
    # From the captured sessions: the last tries of a message, and what follows them.
    Vector("session 3", "5599 5e 02 00000002 7274", [Send(b"rt", 2)], from_server=True),
    Vector("session 3 dead", "5599 5e 00 00000002 7274", [Send(b"rt", 0)], from_server=True),
]
BY_NAME: Final = {vector.name: vector for vector in VECTORS}
