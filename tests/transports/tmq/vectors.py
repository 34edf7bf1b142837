"""TMQ frames as bytes and as fields, in little-endian form.

The numbers are those of the specification; it has gaps. `hexed()` reads the short form: words are
hex, `xx*n` repeats a byte. Swapping bytes 5 and 6 gives the big-endian form of payloads up to 252.
"""

from typing import Final, NamedTuple

from embedq_transports.tmq.frames import PING, PONG, Content, Frame, Kind


class Vector(NamedTuple):
    name: str
    text: str
    frame: Frame

    @property
    def data(self) -> bytes:
        return hexed(self.text)


def hexed(text: str) -> bytes:
    parts = []
    for word in text.split():
        digits, star, count = word.partition("*")
        parts.append(bytes.fromhex(digits) * (int(count) if star else 1))
    return b"".join(parts)


PREAMBLE_HEX: Final = "544d512f312e3031"

HELLO_ID = b"CONNECT /\r\nClient-Id: c1\r\n"
HELLO_ALL = (
    b"CONNECT /\r\nClient-Name: bob\r\nClient-Type: app\r\nClient-Token: tk\r\nClient-Id: c1\r\n"
)
HELLO_EMPTY = b"CONNECT /\r\nClient-Id: \r\n"


def server(content, message_id=b"", target=b"", **flags) -> Frame:
    return Frame(Kind.SERVER, content, message_id, b"", target, first_acquirer=True, **flags)


def hello(message_id, source, payload) -> Frame:
    return Frame(Kind.SERVER, 101, message_id, source, b"", payload, first_acquirer=True)


def status(content, message_id, target) -> Frame:
    return Frame(Kind.RESPONSE, content, message_id, b"", target, first_acquirer=True)


def ask(content, message_id, payload=b"", *, response=True) -> Frame:
    return Frame(
        Kind.SERVER, content, message_id, b"c1", b"ch-1", payload, response_required=response
    )


def hi(source=b"c1", **flags) -> Frame:
    return Frame(Kind.CHANNEL, 101, b"m6", source, b"ch-1", b"hello", **flags)


def sized(length) -> Frame:
    return Frame(Kind.CHANNEL, 1, target=b"ch", payload=b"A" * length)


VECTORS: Final = [
    Vector("V02", "89ff000000000000", PING),
    Vector("V03", "8aff000000000000", PONG),
    Vector("V04", "0810000000000000", Frame(Kind.TERMINATE)),
    Vector(
        "V05", "08100202000000006d316331", Frame(Kind.TERMINATE, message_id=b"m1", source=b"c1")
    ),
    Vector(
        "V06",
        "901002020065001a6d316331434f4e4e454354202f0d0a436c69656e742d49643a2063310d0a",
        hello(b"m1", b"c1", HELLO_ID),
    ),
    Vector(
        "V07",
        "90100202006500506d316331434f4e4e454354202f0d0a436c69656e742d4e616d653a20626f620d0a"
        "436c69656e742d547970653a206170700d0a436c69656e742d546f6b656e3a20746b0d0a"
        "436c69656e742d49643a2063310d0a",
        hello(b"m1", b"c1", HELLO_ALL),
    ),
    Vector(
        "V08",
        "90100200006500186d31434f4e4e454354202f0d0a436c69656e742d49643a200d0a",
        hello(b"m1", b"", HELLO_EMPTY),
    ),
    Vector("V10", "9010020002ca000073316331", server(Content.ACCEPTED, b"s1", b"c1")),
    Vector("V11", "9010000002ca00006331", server(Content.ACCEPTED, b"", b"c1")),
    Vector("V12", "90100200009101007331", server(Content.UNAUTHORIZED, b"s1")),
    Vector("V14", "10900202045902006d32633163682d31", ask(Content.JOIN, b"m2")),
    Vector("V15", "10100202045902006d32633163682d31", ask(601, b"m2", response=False)),
    Vector("V16", "10900202045a02006d33633163682d31", ask(Content.LEAVE, b"m3")),
    Vector("V17", "10900202046202026d34633163682d310101", ask(610, b"m4", b"\x01\x01")),
    Vector("V19", "9410020002c800006d326331", status(Content.OK, b"m2", b"c1")),
    Vector("V20", "94100200029401006d326331", status(Content.NOT_FOUND, b"m2", b"c1")),
    Vector("V21", "9410020002e101006d346331", status(Content.DUPLICATE, b"m4", b"c1")),
    Vector("V22", "94100200049401006d3663682d31", status(404, b"m6", b"ch-1")),
    Vector("V23", "11100202046500056d36633163682d3168656c6c6f", hi()),
    Vector(
        "V24",
        "914f0202046500056d36633163682d3168656c6c6f",
        hi(first_acquirer=True, acknowledge=True, ttl=15),
    ),
    Vector("V25", "114f0202046500056d36633163682d3168656c6c6f", hi(acknowledge=True, ttl=15)),
    Vector("V26", "910f0200046500056d3663682d3168656c6c6f", hi(b"", first_acquirer=True, ttl=15)),
    Vector("V28", "1110000000010000", Frame(Kind.CHANNEL, 1)),
    Vector(
        "V29",
        "93100202046500006d36633263682d31",
        Frame(Kind.DELIVERY, 101, b"m6", b"c2", b"ch-1", first_acquirer=True),
    ),
    Vector(
        "V30",
        "930f0202046500006d36633263682d31",
        Frame(Kind.DELIVERY, 101, b"m6", b"c2", b"ch-1", first_acquirer=True, ttl=15),
    ),
    Vector(
        "V32",
        "12900202023700036d386331633261736b",
        Frame(Kind.CLIENT, 55, b"m8", b"c1", b"c2", b"ask", response_required=True),
    ),
    Vector(
        "V33",
        "128f0202023700036d386331633261736b",
        Frame(Kind.CLIENT, 55, b"m8", b"c1", b"c2", b"ask", response_required=True, ttl=15),
    ),
    Vector(
        "V34",
        "14100202020903056d3863326331706f6e6721",
        Frame(Kind.RESPONSE, 777, b"m8", b"c2", b"c1", b"pong!"),
    ),
    Vector(
        "V36",
        "ffff000000ffff00",
        Frame(
            0x3F,
            0xFFFF,
            first_acquirer=True,
            priority=True,
            response_required=True,
            acknowledge=True,
            ttl=63,
        ),
    ),
    Vector(
        "V38",
        "1110ffffff010001 69*255 73*255 74*255 41",
        Frame(Kind.CHANNEL, 1, b"i" * 255, b"s" * 255, b"t" * 255, b"A"),
    ),
    Vector("V40", "11100000020100fc6368 41*252", sized(252)),
    Vector("V41", "11100000020100fdfd006368 41*253", sized(253)),
    Vector("V42", "11100000020100fdff006368 41*255", sized(255)),
    Vector("V44", "11100000020100fdffff6368 41*65535", sized(65535)),
    Vector(
        "V46",
        "11900202042c01006731633163682d31",
        Frame(Kind.CHANNEL, 300, b"g1", b"c1", b"ch-1", response_required=True),
    ),
    Vector(
        "V47",
        "940f0202042c01036731633163682d316f6e65",
        Frame(Kind.RESPONSE, 300, b"g1", b"c1", b"ch-1", b"one", first_acquirer=True, ttl=15),
    ),
    Vector(
        "V48",
        "11000202046500016d36633163682d3178",
        Frame(Kind.CHANNEL, 101, b"m6", b"c1", b"ch-1", b"x", ttl=0),
    ),
]

# The first 12 hex digits of the SHA-256 of each, from the specification: a typing error shows.
DIGESTS: Final = dict(
    pair.split("=")
    for pair in """
    V01=4dfb2e0d0450 V02=04ec71f7717b V03=d8015cec7407 V04=fd284465e9f2 V05=eaea04273b19
    V06=45cb3b8e11d6 V07=bab064f4fd51 V08=5007ddd43fdf V10=bcc33bd86057 V11=1e4e33e65aff
    V12=cf229af316fa V14=4820ef518b85 V15=a11c61c5aa10 V16=30698b18cd79 V17=f327258b03bd
    V19=862411e89e04 V20=ba3aa4883f78 V21=c631f5ac8055 V22=1a0001d8f91e V23=e61aa2d71f77
    V24=b4d154c4faa9 V25=2dc1eba3fc2a V26=61a4d869dfce V28=1eb8b79493ad V29=d38e332611ed
    V30=18c4da542d1e V32=856adb7d19d2 V33=7b2aaabd1792 V34=1b50a7d23346 V36=427d4344f7b8
    V38=1df2857215b3 V40=2b2b829bab33 V41=e1a8e43e6c81 V42=ad8a4570e17b V44=25c74552b8d0
    V46=7009dabea11a V47=6869be446200 V48=b76cd356b53f
    """.split()
)

BY_NAME: Final = {vector.name: vector for vector in VECTORS}

# Legal forms that are read and never written: decoded, they are these frames.
READ_ONLY: Final = [
    ("a length of 5 after marker 253", "11100000020100fd05006368 41*5", sized(5)),
    ("65536 in eight bytes", "11100000020100ff 00000100 00000000 6368 41*65536", sized(65536)),
    ("300 in eight bytes", "11100000020100ff 2c010000 00000000 6368 41*300", sized(300)),
]
