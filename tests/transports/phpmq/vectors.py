"""PHPMQ messages as bytes and as events. The numbers are those of the specification, with gaps.

`text`: bars are for reading and removed; `/` between two spaces is where the bytes were cut.
`canonical`: whether encoding the events in `form` gives the same bytes.
"""

from typing import Final, NamedTuple

from embedq_transports.phpmq.wire import (
    Ack,
    Consume,
    DeadLetter,
    Dispatch,
    Event,
    FaultCode,
    Form,
    Publish,
    Receipt,
)

BARE: Final = Form()
ID: Final = b"d7e7f68761d34838494b233148b5486c"
CUT: Final = b" / "


class Vector(NamedTuple):
    name: str
    text: bytes
    events: list[Event | FaultCode]
    form: Form | None = BARE
    canonical: bool = True
    from_server: bool = False

    @property
    def pieces(self) -> list[bytes]:
        return [part.replace(b"|", b"") for part in self.text.split(CUT)]

    @property
    def data(self) -> bytes:
        return b"".join(self.pieces)


def fault(name: str, text: bytes, code: FaultCode, form: Form | None = BARE) -> Vector:
    return Vector(name, text, [code], form, canonical=False)


HELLO: Final = Publish(b"Foo", b"Hello World")
BIG: Final = bytes(at % 251 for at in range(5 << 20))

VECTORS: Final = [
    Vector(
        "V01",
        b"H0100102|P0100000000000000000000000000003|Foo"
        b"|P0200000000000000000000000000011|Hello World",
        [HELLO],
    ),
    Vector(
        "V02",
        b"H0100202|P0100000000000000000000000000003|Foo|P0400000000000000000000000000001|5",
        [Consume(b"Foo", 5)],
    ),
    Vector(
        "V03",
        b"H0100303|P0100000000000000000000000000003|Foo"
        b"|P0200000000000000000000000000011|Hello World"
        b"|P0300000000000000000000000000032|d7e7f68761d34838494b233148b5486c",
        [Dispatch(b"Foo", b"Hello World", ID)],
        from_server=True,
    ),
    Vector(
        "V04",
        b"H0100402|P0100000000000000000000000000003|Foo"
        b"|P0300000000000000000000000000032|d7e7f68761d34838494b233148b5486c",
        [Ack(b"Foo", ID)],
    ),
    # The dialect of 2018: a third package, the time to live.
    Vector(
        "V05",
        b"H0100103|P0100000000000000000000000000003|Foo"
        b"|P0200000000000000000000000000011|Hello World|P0500000000000000000000000000001|0",
        [Publish(b"Foo", b"Hello World", 0)],
    ),
    Vector(
        "V06",
        b"H0100304|P0100000000000000000000000000003|Foo"
        b"|P0200000000000000000000000000011|Hello World"
        b"|P0300000000000000000000000000032|d7e7f68761d34838494b233148b5486c"
        b"|P0500000000000000000000000000004|3300",
        [Dispatch(b"Foo", b"Hello World", ID, 3300)],
        from_server=True,
    ),
    Vector(
        "V08",
        b"H0100602|P0100000000000000000000000000003|Foo"
        b"|P0300000000000000000000000000032|d7e7f68761d34838494b233148b5486c",
        [DeadLetter(b"Foo", ID)],
    ),
    Vector(
        "V09",
        b"H0100502|P0100000000000000000000000000003|Foo"
        b"|P0300000000000000000000000000032|d7e7f68761d34838494b233148b5486c",
        [Receipt(b"Foo", ID)],
        from_server=True,
    ),
    # The other widths and separators.
    Vector(
        "V10",
        b"H0100102|P01000000000000000000000000000000003|Foo"
        b"|P02000000000000000000000000000000011|Hello World",
        [HELLO],
        Form(36),
    ),
    Vector(
        "V11",
        b"H0100102|P0100000000000000000000000000000003|Foo"
        b"|P0200000000000000000000000000000011|Hello World",
        [HELLO],
        Form(35),
    ),
    Vector(
        "V13",
        b"H0100102\n|P01000000000000000000000000000000003\n|Foo\n"
        b"|P02000000000000000000000000000000011\n|Hello World\n",
        [HELLO],
        Form(36, b"\n"),
    ),
    Vector(
        "V14",
        b"H0100102\r\n|P01000000000000000000000000000000003\r\n|Foo\r\n"
        b"|P02000000000000000000000000000000011\r\n|Hello World\r\n",
        [HELLO],
        Form(36, b"\r\n"),
    ),
    Vector(
        "V16",
        b"H0100102|P0100000000000000000000000000003|Foo|P0200000000000000000000000000000",
        [Publish(b"Foo", b"")],
    ),
    Vector(
        "V17",
        b"H0100102|P0100000000000000000000000000000|P0200000000000000000000000000000",
        [Publish(b"", b"")],
    ),
    Vector(
        "V19",
        b"H0100102|P0100000000000000000000000000004|0003|P0200000000000000000000000000001|7",
        [Publish(b"0003", b"7")],
    ),
    Vector(
        "V20",
        b"H0100102|P01000000000000000000000000000000001|5|P02000000000000000000000000000000001|7",
        [Publish(b"5", b"7")],
        Form(36),
    ),
    # Several messages in one segment.
    Vector(
        "V22",
        b"H0100102|P0100000000000000000000000000003|Foo|P0200000000000000000000000000001|1"
        b"|H0100102|P0100000000000000000000000000003|Foo|P0200000000000000000000000000001|2"
        b"|H0100102|P0100000000000000000000000000003|Foo|P0200000000000000000000000000001|3"
        b"|H0100402|P0100000000000000000000000000003|Foo|P0300000000000000000000000000004|nope",
        [
            Publish(b"Foo", b"1"),
            Publish(b"Foo", b"2"),
            Publish(b"Foo", b"3"),
            Ack(b"Foo", b"nope"),
        ],
    ),
    Vector(
        "V23",
        b"H0100102|P0100000000000000000000000000003|Foo|P0200000000000000000000000000001|1"
        b"|H0100202|P0100000000000000000000000000003|Foo|P0400000000000000000000000000001|1",
        [Publish(b"Foo", b"1"), Consume(b"Foo", 1)],
    ),
    # The original server exits at this cut.
    Vector(
        "V24",
        b"H010 / 0102|P0100000000000000000000000000003|Foo|P0200000000000000000000000000001|x",
        [Publish(b"Foo", b"x")],
    ),
    fault(
        "V26",
        b"H0100102|P0100000000000000000000000000003|Foo|P0200000000000000",
        FaultCode.TRUNCATED,
    ),
    fault("V27", b"GET /| HTTP/1.1\r\nHost: x\r\n\r\n", FaultCode.HEADER, None),
    fault(
        "V28",
        b"H9900102|P0100000000000000000000000000003|Foo|P0200000000000000000000000000003|v99",
        FaultCode.VERSION,
        None,
    ),
    fault(
        "V30",
        b"H0100199|P0100000000000000000000000000003|Foo|P0200000000000000000000000000003|c99",
        FaultCode.COUNT,
        None,
    ),
    fault(
        "V31",
        b"H0100102|P0100000000000000000000000000003|Foo|P0100000000000000000000000000003|Bar",
        FaultCode.PACKAGE,
    ),
    Vector(
        "V33",
        b"H0100102|P0200000000000000000000000000007|content|P0100000000000000000000000000003|Foo",
        [Publish(b"Foo", b"content")],
        canonical=False,
    ),
    fault(
        "V34",
        b"H0100303|P0100000000000000000000000000003|Foo|P0200000000000000000000000000001|x"
        b"|P0300000000000000000000000000001|y",
        FaultCode.TYPE,
        None,
    ),
    fault(
        "V35",
        b"H0199902|P0100000000000000000000000000003|Foo|P0200000000000000000000000000001|y",
        FaultCode.TYPE,
        None,
    ),
    fault("V37", b"H0100102|P0110000000000000000000000000000|Foo", FaultCode.LENGTH),
    Vector(
        "V38",
        b"H0100202|P0100000000000000000000000000003|Foo|P0400000000000000000000000000001|0",
        [Consume(b"Foo", 0)],
    ),
    fault(
        "V39",
        b"H0100202|P0100000000000000000000000000003|Foo|P0400000000000000000000000000004|5abc",
        FaultCode.NUMBER,
    ),
    Vector(
        "V44",
        b"H0100102|P0100000000000000000000000000001|L|P0200000000000000000000000005000|"
        + b"z" * 5_000,
        [Publish(b"L", b"z" * 5_000)],
    ),
]
BY_NAME: Final = {vector.name: vector for vector in VECTORS}

#: V45 is 5 MiB long, so that only its hash is kept: the header, then byte i = i mod 251.
V45_SHA256: Final = "c2c2b9fc6539d3021af741ef1653a05349d34d61e4819d74eb6efbc9266a8e36"
V45_HEADER: Final = b"H0100102P0100000000000000000000000000003BigP0200000000000000000000005242880"
