"""What every MMQP request begins with: its magic, a version, a command.

Knows: the eleven bytes in front of a request, and where among others the next one begins.
Does not know: what stands behind a header, nor what bytes between two requests mean.
"""

from typing import Final

from embedq_transports.mmqp.requests import BINARY_VERSION, MAGIC, TEXT_VERSION
from embedq_transports.mmqp.strings import BadField, Code

HEADER_BYTES: Final = 11
HEADERS: Final = frozenset(
    b"|".join((MAGIC, version, command, b""))
    for version in (BINARY_VERSION, TEXT_VERSION)
    for command in (b"M", b"P")
)
_BAR: Final = ord("|")
_SEPARATORS: Final = {4: _BAR, 6: ord("."), 8: _BAR, 10: _BAR}
_MAJOR: Final = 5
_MINOR: Final = 7
# The bytes of a version's two numbers that belong together: binary as the programs write it, and
# text as it was published.
_MINOR_OF: Final = {0x00: 0x01, 0x30: 0x31}


def check_header(head: bytes) -> None:
    """Raise BadField for the first wrong byte of a header, or of its beginning."""
    for place, byte in enumerate(head):
        if byte != _SEPARATORS.get(place, byte):
            text = f"byte {place} of the header is 0x{byte:02x}, which is no separator"
            raise BadField(Code.BAD_REQUEST, text)
        wrong_major = place == _MAJOR and byte not in _MINOR_OF
        if wrong_major or (place == _MINOR and byte != _MINOR_OF[head[_MAJOR]]):
            text = "the version is not 0.1, neither in binary nor in text"
            raise BadField(Code.BAD_VERSION, text)
    if len(head) == HEADER_BYTES and head not in HEADERS:
        text = f"the command 0x{head[9]:02x} is neither M nor P"
        raise BadField(Code.UNKNOWN_COMMAND, text)


def magic_at(buffer: bytes | bytearray, at: int) -> bool | None:
    """Tell whether a request begins at `at`; None when it may, and bytes are missing."""
    there = buffer[at : at + len(MAGIC)]
    if not MAGIC.startswith(there):
        return False
    return True if len(there) == len(MAGIC) else None


def next_magic(buffer: bytes | bytearray, at: int) -> int:
    """Return where the next request begins, from `at` on; at the latest where one may begin.

    That is the end of the buffer, or before its last bytes if these are the beginning of a magic.
    """
    found = buffer.find(MAGIC, at)
    if found >= 0:
        return found
    last = max(at, len(buffer) - len(MAGIC) + 1)
    return next(
        begin for begin in range(last, len(buffer) + 1) if MAGIC.startswith(buffer[begin:])
    )
