"""Errors on their way between processes: a host's error becomes the same error at its client.

Knows: every error by its stable code.
Does not know: what failed, sockets.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import msgspec

from embedq.errors import EmbedqError, NoHost
from embedq.ipc.frames import Failed

#: What to look at when a host on another machine does not answer.
_ABROAD: Final = (
    "see that the host runs with this endpoint, that no firewall is in the way, and compare "
    "host.public with the host's"
)


def no_host(trouble: str = "", more: str = "") -> NoHost:
    """Return the error for a host that is not there. `trouble`: of one on another machine."""
    if trouble:
        return NoHost(trouble, hint=_ABROAD)
    return NoHost(f"no process hosts the file{more}")


def failed(n: int, error: BaseException) -> Failed:
    """Return the answer that tells a client about an error."""
    if isinstance(error, EmbedqError):
        return Failed(n, error.code, error.message, error.hint, _plain(error.details))
    text = f"the host failed: {type(error).__name__}: {error}"
    return Failed(n, EmbedqError.code, text[:2_000], "the log of the host's process says more")


def raised(answer: Failed) -> EmbedqError:
    """Return the error that an answer tells about: of the same class where it is known here."""
    kind = _by_code().get(answer.code, EmbedqError)
    return kind(answer.message, hint=answer.hint, **answer.details)


def _plain(details: dict[str, object]) -> dict[str, Any]:
    """Return the details that can travel."""
    kept = {}
    for name, value in details.items():
        try:
            kept[name] = msgspec.to_builtins(value)
        except TypeError:
            kept[name] = str(value)
    return kept


@cache
def _by_code() -> dict[str, type[EmbedqError]]:
    found: dict[str, type[EmbedqError]] = {}
    kinds: list[type[EmbedqError]] = [EmbedqError]
    while kinds:
        kind = kinds.pop()
        if "code" in vars(kind):
            found.setdefault(kind.code, kind)
        kinds += kind.__subclasses__()
    return found
