"""What version 1 of the wire was, frozen: never change a line here, only remove whole versions.

Knows: the frames of version 1, their fields in order, and bytes that its clients and hosts sent.
Does not know: the present version.
"""

from __future__ import annotations

from typing import Final

#: The number of each frame (None: a part of one) and its fields.
FIELDS: Final[dict[str, tuple[int | None, str]]] = {
    "Token": (None, "group seq counter"),
    "Held": (None, "group seq counter started mark keep"),
    "WireEnding": (None, "group seq counter what error delay_ms outcome reason detail by"),
    "WireLease": (None, "counter attempt mark lease_ms max_attempts suspect message"),
    "Hello": (1, "versions session name pid epoch held marks boss"),
    "Put": (2, "n queue kind bodies seen"),
    "PutRows": (3, "n queue rows wait_ms seen"),
    "Exchange": (4, "n endings group most wait_ms lease_ms keep seen"),
    "Cancel": (5, "n"),
    "Extend": (6, "n token ms"),
    "Keep": (7, "token on"),
    "Call": (8, "n verb args"),
    "Listen": (9, "names"),
    "Bye": (10, "n"),
    "Welcome": (1, "version epoch session pid key now_ms tokens marks"),
    "Stored_": (2, "n first"),
    "Receipts": (3, "n seqs known"),
    "Exchanged": (4, "n leases stale"),
    "Done": (5, "n"),
    "Result": (6, "n value"),
    "Progress": (7, "n done total"),
    "Failed": (8, "n code message hint details"),
    "Told": (9, "name at fields"),
    "Lost": (10, "counters"),
    "Leaving": (11, "reason"),
    "Refused": (12, "code message versions"),
}

#: What a client of version 1 sent: its session is SESSION, queue and group are number 1.
SESSION: Final = b"golden-session-1"
HELLO: Final = "9199019101c410676f6c64656e2d73657373696f6e2d31a36f6c64070090c0c0"
PUT: Final = "91960201010092c40161c4016200"
PUT_ROWS: Final = "9196030201919b00ce2dc4bb0307c0c0c003c0c406757267656e74c0000001"
CLAIM: Final = "9199040390010300c0c202"
BYE: Final = "91920a09"

#: What a host of version 1 sent, and the first fields of what it means.
ANSWERS: Final = {
    "Welcome": ("91990101010107c4106b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b059000", (1, 1, 1, 7)),
    "Stored_": ("919302010b", (1, 11)),
    "Receipts": ("91940302910d90", (2, [13])),
    "Exchanged": ("91940404909101", (4, [], [1])),
    "Lost": ("91920a9105", ([5],)),
    "Leaving": ("91920ba3627965", ("bye",)),
    "Failed": ("91960801a5656d707479a16dc080", (1, "empty", "m")),
    "Told": ("919409a6706175736564cb3ff800000000000081a57175657565a171", ("paused", 1.5)),
    "Refused": ("91940cad77726f6e675f76657273696f6ea16d9101", ("wrong_version", "m", [1])),
}


def ending(group: int, seq: int, counter: int, what: int) -> list[object]:
    """How version 1 wrote the end of a delivery."""
    return [group, seq, counter, what, None, 0, 0, "", "", ""]
