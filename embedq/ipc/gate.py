"""Who may come in over the network: the answers to ZeroMQ's questions about public keys.

Knows: ZAP (rfc.zeromq.org/spec/27), the folder of allowed keys, how often refusals are told.
Does not know: sockets, sessions, secret keys.

The folder is read for every connection: a new file counts at once, a removed one at the next
connection of its client. Only who knows the host's public key gets as far as that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from embedq.errors import EmbedqError
from embedq.ipc import keys

_log = logging.getLogger("embedq.ipc")

#: What the host's socket calls itself in its questions.
DOMAIN: Final = b"embedq"
#: Status codes of ZAP.
ALLOWED: Final = b"200"
REFUSED: Final = b"400"
BROKEN: Final = b"500"

_VERSION: Final = b"1.0"
_FIELDS: Final = 7  # version, request, domain, address, identity, mechanism, key
#: Seconds between two events about refusals: a program that tries for ever must not fill a log.
_TELL_S: Final = 1.0

Tell = Callable[[str, str, int], object]


class Gate:
    """Answers who may come in, and counts who may not.

    `tell(address, why, count)`: connections were refused; `address` and `why` are the last one's.
    """

    def __init__(self, clients: Path, tell: Tell, monotonic: Callable[[], float]) -> None:
        self._clients = clients
        self._tell = tell
        self._monotonic = monotonic
        self._not_before = 0.0
        self._untold = 0
        self.refused = 0

    def answer(self, parts: Sequence[bytes]) -> list[bytes]:
        """Return the answer to one question, its envelope included."""
        empty = list(parts).index(b"")
        envelope, body = list(parts[: empty + 1]), list(parts[empty + 1 :])
        request = body[1] if len(body) > 1 else b""
        status, who = self._judge(body)
        text = b"" if status == ALLOWED else b"not allowed"
        return [*envelope, _VERSION, request, status, text, who.encode(), b""]

    def _judge(self, body: Sequence[bytes]) -> tuple[bytes, str]:
        if len(body) != _FIELDS or body[0] != _VERSION or body[2] != DOMAIN or body[5] != b"CURVE":
            self.refuse("", "it did not come with a key")
            return REFUSED, ""
        address, key = body[3].decode("ascii", "replace"), body[6]
        try:
            name = keys.allowed(self._clients).get(key)
        except (EmbedqError, OSError) as error:
            if self._monotonic() >= self._not_before:  # as often as that is told
                _log.error("nobody can connect: %s", error)
            self.refuse(address, f"the allowed keys cannot be read: {error}")
            return BROKEN, ""
        if name is None:
            self.refuse(address, f"the key {key.hex()} is not in {self._clients}")
            return REFUSED, ""
        return ALLOWED, name

    def refuse(self, address: str, why: str) -> None:
        """Count somebody who is not let in, and tell, not too often."""
        self.refused += 1
        self._untold += 1
        now = self._monotonic()
        if now < self._not_before:
            return
        self._not_before = now + _TELL_S
        count, self._untold = self._untold, 0
        self._tell(address, why, count)
