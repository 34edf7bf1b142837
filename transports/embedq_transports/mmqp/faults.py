"""How reading an MMQP connection can fail.

Knows: every outcome that is no request, and which of them are answered.
Does not know: how it is found out.
"""

from enum import StrEnum

import msgspec


class FaultCode(StrEnum):
    """Why a connection cannot go on."""

    BAD_MAGIC = "bad_magic"
    BAD_REQUEST = "bad_request"
    BAD_VERSION = "bad_version"
    TOO_LARGE = "too_large"
    UNKNOWN_COMMAND = "unknown_command"
    TRUNCATED = "truncated"


class Fault(msgspec.Struct, frozen=True):
    """The last event: write `answer` (often nothing), read on to the end, then close."""

    code: FaultCode
    text: str
    answer: bytes = b""


class Unanswered(Exception):
    """The other end speaks something else: an error line would mean nothing to it."""

    def __init__(self, code: FaultCode, text: str) -> None:
        """Keep what becomes a Fault without an answer."""
        super().__init__(text)
        self.code = code
        self.text = text
