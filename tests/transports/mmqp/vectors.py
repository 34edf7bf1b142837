"""MMQP requests and answers as bytes and as fields, by the numbers of the specification.

`hexed()` reads the short form: words are hex, `xx*n` repeats a byte. The numbers have gaps.
"""

from typing import Any, Final, NamedTuple

from embedq_transports.mmqp.answers import Record
from embedq_transports.mmqp.client import EndOfRecords, ErrorLine, Pong
from embedq_transports.mmqp.faults import FaultCode
from embedq_transports.mmqp.requests import GroupPoll, Ping, Poll, Send


def hexed(text: str) -> bytes:
    parts = []
    for word in text.split():
        digits, star, count = word.partition("*")
        parts.append(bytes.fromhex(digits) * (int(count) if star else 1))
    return b"".join(parts)


M: Final = "4d4d5150 7c 00 2e 01 7c 4d 7c"
P: Final = "4d4d5150 7c 00 2e 01 7c 50 7c"
NOBODY: Final = "00 3a 00 7c"
QUEUE1: Final = "01 06 717565756531 7c"
NOSUCH: Final = "01 06 6e6f73756368 7c"
MG1: Final = "01 03 6d6731 7c"
BOB: Final = "01 03 626f62 3a 01 02 7077 7c"


class RequestVector(NamedTuple):
    """Bytes from a client, the requests in them, and how the stream may fail after those."""

    name: str
    text: str
    size: int
    requests: tuple[Any, ...]
    fault: FaultCode | None = None
    answered: bool = False
    ending: bytes | None = None  # how encode_request() is told to end it
    exact: bool = True  # whether encoding the request gives these bytes

    @property
    def data(self) -> bytes:
        return hexed(self.text)


def send(body, group="mg1", queue="queue1", user="", password="") -> tuple[Send, ...]:
    return (Send(queue, body, group, user, password),)


def poll(count) -> tuple[Poll, ...]:
    return (Poll("queue1", count),)


FROM_CLIENT: Final = [
    RequestVector(
        "M01",
        f"{M} {BOB} {QUEUE1} {MG1} 01 05 68656c6c6f 00",
        45,
        send(b"hello", user="bob", password="pw"),
    ),
    RequestVector("M02", f"{M} {NOBODY} {QUEUE1} {MG1} 01 05 68656c6c6f 00", 38, send(b"hello")),
    RequestVector(
        "M03", f"{M} {NOBODY} {QUEUE1} 01 06 68656c6c6f34", 32, send(b"hello4", None), ending=b""
    ),
    RequestVector(
        "M04",
        f"{M} 01 0a 6d79757365726e616d65 3a 01 08 70617373776f7264 7c"
        " 01 0b 6d7971756575656e616d65 7c 01 09 6d796d657373616765",
        60,
        send(b"mymessage", None, "myqueuename", "myusername", "password"),
        ending=b"",
    ),
    RequestVector("M06", f"{M} {NOBODY} {QUEUE1} {MG1} 00 00", 32, send(b"")),
    RequestVector(
        "M07",
        f"{M} {BOB} 01 04 7175c3a9 7c {MG1} 01 0a 68c3a96c6c6f20e29883 00",
        48,
        send("héllo ☃".encode(), queue="qué", user="bob", password="pw"),
    ),
    RequestVector("M08", f"{M} {NOBODY} {QUEUE1} {MG1} 01 ff 6b*255 00", 288, send(b"k" * 255)),
    RequestVector(
        "M10", f"{M} {NOBODY} {QUEUE1} {MG1} 02 f7e0 6b*63456 00", 63490, send(b"k" * 63456)
    ),
    RequestVector(
        "M11", f"{M} {NOBODY} {QUEUE1} {MG1} 02 ffff 6b*65535 00", 65569, send(b"k" * 65535)
    ),
    RequestVector(
        "M12", f"{M} {NOBODY} {QUEUE1} {MG1} 03 010000 6b*65536 00", 65571, send(b"k" * 65536)
    ),
    RequestVector("M14", f"{P} {NOBODY} {QUEUE1} 01", 25, poll(1)),
    RequestVector("M15", f"{P} {NOBODY} {QUEUE1} ff", 25, poll(255)),
    RequestVector("M16", f"{P} {NOBODY} {QUEUE1} 00", 25, poll(0)),
    RequestVector("M17", f"{P} {NOBODY} {QUEUE1} {MG1} 30 7c", 32, (GroupPoll("queue1", "mg1"),)),
    RequestVector(
        "M19", f"{P} {NOBODY} {QUEUE1} {MG1} {MG1}", 36, (GroupPoll("queue1", "mg1", "mg1"),)
    ),
    RequestVector("M25", "4d4d5150 7c 00 2e 01 7c 58 7c", 11, (), FaultCode.UNKNOWN_COMMAND, True),
    RequestVector(
        "M26", "474554202f70696e6720485454502f312e310d0a486f73743a20780d0a0d0a", 31, (Ping(),)
    ),
    RequestVector(
        "M28", f"58585858 7c 00 2e 01 7c 50 7c {NOBODY} {NOSUCH} 01", 25, (), FaultCode.BAD_MAGIC
    ),
    RequestVector(
        "M29",
        "4d4d5150 3f 00 3f 01 3f 50 3f 00 3f 00 3f 01 06 6e6f73756368 3f 01",
        25,
        (),
        FaultCode.BAD_REQUEST,
        True,
    ),
    RequestVector("M30", "4d4d5150", 4, (), FaultCode.TRUNCATED),
    RequestVector("M32", f"{M} {NOBODY} {QUEUE1} 01 40 616263", 29, (), FaultCode.TRUNCATED),
    RequestVector("M33", f"{M} {NOBODY} {QUEUE1} 01 02 fffe", 28, (), FaultCode.BAD_REQUEST, True),
    RequestVector(
        "M35",
        f"{M} {NOBODY} {QUEUE1} 01 02 7031 {M} {NOBODY} {QUEUE1} 01 02 7032",
        56,
        (*send(b"p1", None), *send(b"p2", None)),
        exact=False,
    ),
    RequestVector(
        "M38",
        f"{M} {NOBODY} {NOSUCH} {MG1} 01 05 68656c6c6f 00",
        38,
        send(b"hello", queue="nosuch"),
    ),
]

RECORDS_HEX: Final = "4d4d5150 7c 30 2e 31 7c 4d 7c"
MAIN: Final = "00000000 01 04 6d61696e"


def captured(time: str) -> str:
    """Return the id and the two times of a record as the original wrote them."""
    return f"00*64 00*10 {time} 00*10 {time} {MAIN}"


def record(body, time) -> Record:
    return Record(body, "main", time, time)


class AnswerVector(NamedTuple):
    """Bytes from a server, and the events in them up to the end of the stream."""

    name: str
    text: str
    size: int
    events: tuple[Any, ...]

    @property
    def data(self) -> bytes:
        return hexed(self.text)


FROM_SERVER: Final = [
    AnswerVector(
        "M20",
        f"{RECORDS_HEX} 01 70 {captured('01a21ecd12a8')} 01 03 6d6731 00 00",
        126,
        (record(b"mg1", 0x01A21ECD12A8), EndOfRecords()),
    ),
    AnswerVector(
        "M21",
        f"{RECORDS_HEX} 01 6e {captured('01a21ecd2667')} 01 01 61 00"
        f" 01 6e {captured('01a21ecd282a')} 01 01 62 00 00",
        236,
        (record(b"a", 0x01A21ECD2667), record(b"b", 0x01A21ECD282A), EndOfRecords()),
    ),
    AnswerVector("M22", f"{RECORDS_HEX} 00", 12, (EndOfRecords(),)),
    AnswerVector(
        "M23",
        "4d4d5150 7c 30 2e 31 7c 52 7c 51554555455f4e4f545f464f554e44 7c 6e6f73756368 7c 30",
        35,
        (ErrorLine("QUEUE_NOT_FOUND", "nosuch"),),
    ),
    AnswerVector(
        "M24",
        "485454502f312e3120323030204f4b0d0a 436f6e74656e742d547970653a20746578742f68746d6c3b"
        "20636861727365743d5554462d38 0d0a 0d0a 706f6e67",
        63,
        (Pong(),),
    ),
    AnswerVector(
        "M39",
        f"{RECORDS_HEX} 02 016c {captured('01a21ecd8375')} 01 ff 6b*255 00 00",
        379,
        (record(b"k" * 255, 0x01A21ECD8375), EndOfRecords()),
    ),
]
