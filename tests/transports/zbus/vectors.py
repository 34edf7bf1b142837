r"""The golden vectors: what clients sent to the original server, and its answers.

`golden/*.txt` have them as they were recorded, in one run from an empty server: "> " is what the
client sent, "< " what came back; \r, \n and \xNN are escaped over HTTP; <uuid>, <port>, <ms>
and <accept> stand for what differs each time.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

_HERE = Path(__file__).parent / "golden"
_ESCAPES = re.compile(r"\\(r|n|\\|x[0-9A-Fa-f]{2})")


class Vector(NamedTuple):
    name: str
    title: str
    sent: tuple[str, ...]
    came: tuple[str, ...]


def read(name: str) -> list[Vector]:
    vectors = []
    for block in (_HERE / f"{name}.txt").read_text("utf-8").split("\n\n"):
        head, *lines = block.strip().split("\n")
        label, _, title = head.removeprefix("# ").partition(" ")
        sent = tuple(line[2:] for line in lines if line.startswith("> "))
        came = tuple(line[2:] for line in lines if line.startswith("< "))
        vectors.append(Vector(label, title, sent, came))
    return vectors


def unescaped(text: str) -> bytes:
    """Return the bytes of a line over HTTP."""
    parts = _ESCAPES.split(text)
    out = []
    for at, part in enumerate(parts):
        if at % 2 == 0:
            out.append(part.encode())
        elif part.startswith("x"):
            out.append(bytes.fromhex(part[1:]))
        else:
            out.append({"r": b"\r", "n": b"\n", "\\": b"\\"}[part])
    return b"".join(out)


HTTP = read("http")
WEBSOCKET = read("websocket")

API_KEY = "2ba912a8-4a8d-49d2-1a22-198fd285cb06"
SECRET = "461277322-943d-4b2f-b9b6-3f860d746ffd"  # the sample pair of the original's settings
