"""Texts of others as no terminal obeys them: control characters become escapes.

Knows: which characters are shown and which are obeyed. Does not know: who reads, colours, tables.
"""

from typing import Final

_ESCAPES: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_LATIN, _PLANE = 0x100, 0x10000
_ESCAPED_BYTES: Final = range(0xDC80, 0xDD00)


def plain(text: str, *, keep: str = "") -> str:
    """Return `text` with everything escaped that a terminal could obey instead of show.

    Control characters, and what hides or turns text around (zero width, right to left). `keep`:
    characters that stay, like the line ends of a traceback.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    code = ord(character)
    if code in _ESCAPED_BYTES:  # a byte of the command line that is no UTF-8
        return f"\\x{code - 0xDC00:02x}"
    if code < _LATIN:
        return _ESCAPES.get(character, f"\\x{code:02x}")
    return f"\\u{code:04x}" if code < _PLANE else f"\\U{code:08x}"
