"""The original's queue_config.json: which queues there are.

Knows: its two keys, every fault that the original would have passed over in silence.
Does not know: what is done with a queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from embedq.errors import EmbedqError, InvalidOption, shown
from embedq.names import check_queue_name, from_wire

#: What `pending_mode` may be. It is about messages that become available later on, which no
#: request can ask for: as in the original it changes nothing.
MODES: Final = ("Read", "Push")
_HINT: Final = 'it is a list of {"name": "...", "pending_mode": "Read"}'
#: bytes: what such a file may have. One with thousands of queues has some hundred kilobytes.
_MOST: Final = 8 << 20


def read_queues(path: str) -> tuple[str, ...]:
    """Return the names of the queues in a file, each once, in their order.

    Names are those that embedq.names.from_wire makes. Raises InvalidOption for a file that
    cannot be read and for anything in it that the original would not have taken either.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(_MOST + 1)
        if len(data) > _MOST:
            raise _wrong(path, f"it has more than {_MOST} bytes")
        entries = msgspec.json.decode(data)
    except OSError as error:
        raise _wrong(path, f"it cannot be read: {error.strerror or error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _wrong(path, str(error)) from error
    if not isinstance(entries, list):
        raise _wrong(path, "it is not a list")
    return tuple(dict.fromkeys(_name(path, at, entry) for at, entry in enumerate(entries, 1)))


def _name(path: str, at: int, entry: object) -> str:
    if not isinstance(entry, Mapping):
        raise _wrong(path, f"entry {at} is not an object")
    for key in ("name", "pending_mode"):
        if not isinstance(entry.get(key), str):
            raise _wrong(path, f"entry {at} has no text {key!r}")
    if entry["pending_mode"] not in MODES:
        mode = shown(entry["pending_mode"])
        raise _wrong(path, f"entry {at} has the pending_mode {mode}, not one of {MODES}")
    name = from_wire(entry["name"].encode("utf-8", "surrogatepass"))
    try:
        check_queue_name(name)
    except EmbedqError as error:
        raise _wrong(path, f"entry {at}: {error.message}") from error
    return name


def _wrong(path: str, why: str) -> InvalidOption:
    return InvalidOption(
        f"the queues in {shown(path, 200)} are none: {why}", hint=_HINT, argument="config"
    )
