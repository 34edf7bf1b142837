"""The text inside a TMQ Hello: a request line and properties.

Knows: how original clients write it and how leniently servers read it (docs/protocols/tmq.md,
section Hello). Does not know: whether a token is right, nor which ids are taken.
"""

from typing import Final

import msgspec

CLIENT_ID: Final = "client-id"
CLIENT_TOKEN: Final = "client-token"  # noqa: S105 - the name of the property, not a token
CLIENT_NAME: Final = "client-name"
CLIENT_TYPE: Final = "client-type"


class Hello(msgspec.Struct, frozen=True):
    """What a client says about itself; the keys of `properties` are in lower case.

    Bytes that are not UTF-8 stand in the texts as lone surrogates, so that an id survives.
    """

    method: str = ""
    path: str = ""
    properties: tuple[tuple[str, str], ...] = ()

    def get(self, key: str) -> str:
        """Return the property with this lower-case key, or "" when it was not sent."""
        return next((value for name, value in self.properties if name == key), "")

    @property
    def client_id(self) -> bytes:
        """The id the client gave itself, b"" when it wants one assigned."""
        return self.get(CLIENT_ID).encode("utf-8", "surrogateescape")


def read_hello(payload: bytes) -> Hello:
    """Read the payload of a Hello; every payload has a meaning, an empty one is no properties.

    Lines end in CRLF, LF or CR; a line without a colon is skipped; the last of equal keys wins
    (the original closed the connection there).
    """
    text = payload.decode("utf-8", "surrogateescape")
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    method = path = ""
    if ":" not in lines[0] and lines[0].find(" ") > 0:
        method, _, path = lines.pop(0).partition(" ")
    found: dict[str, str] = {}
    for line in lines:
        key, colon, value = line.partition(":")
        if colon:
            found[key.strip().lower()] = value.strip()
    return Hello(method, path.strip(), tuple(found.items()))


def encode_hello(properties: tuple[tuple[str, str], ...], *, path: str = "/") -> bytes:
    """Return the payload as stock clients write it; they put Client-Id last, even when empty."""
    lines = [f"CONNECT {path}", *(f"{key}: {value}" for key, value in properties), ""]
    return "\r\n".join(lines).encode("utf-8", "surrogateescape")
