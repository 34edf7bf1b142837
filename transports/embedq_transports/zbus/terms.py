"""What holds for all connections of one zbus listener.

Knows: its options, their defaults and units.
Does not know: how they are used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from embedq.limits import LIMITS
from embedq.net import Options, Site
from embedq_transports.zbus.limits import ZBUS_LIMITS, ZbusLimits
from embedq_transports.zbus.visitors import EVERYBODY, Visitors

#: Messages that a queue of the type memory keeps, as in the original.
_MEMORY: Final = 1000
_LENGTH_MOST: Final = (1 << 48) - 1
#: Seconds after which a caller over HTTP whose service is silent is told so.
_CALL_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Terms:
    """`memory`: the bound of queues of that type, None is none. `visitors`: whose pages may come.

    `constant`: signatures that are the same for every message count. `call_s`: how long a call
    over HTTP may take. `monitor`: paths show queues, and are no calls.
    """

    limits: ZbusLimits
    memory: int | None
    call_s: float
    constant: bool
    visitors: Visitors
    monitor: bool

    def allowed(self, origin: str) -> dict[str, str]:
        """Return the headers that let a page of this origin read an answer."""
        if not origin or not self.visitors.cors & {EVERYBODY, origin}:
            return {}
        return {
            "access-control-allow-origin": origin,
            "vary": "origin",
            "access-control-allow-credentials": "true",
        }


def terms_of(options: Options, site: Site) -> Terms:
    """Read the options of a listener. Raises InvalidOption."""
    memory = options.number("memory", _MEMORY, 0, _LENGTH_MOST)
    return Terms(
        limits=replace(
            ZBUS_LIMITS,
            body_bytes=min(LIMITS.body_bytes, site.limits.message_bytes),
            frame_bytes=site.limits.frame_bytes,
        ),
        memory=memory or None,
        call_s=options.seconds("call_timeout", _CALL_S),
        constant=options.flag("constant", default=False),
        visitors=_visitors(options, site),
        monitor=options.flag("monitor", default=False),
    )


def _visitors(options: Options, site: Site) -> Visitors:
    hosts = _words((options.text("hosts") or "").lower())
    # A page has no secret, and reaches no socket in the file system: its name does not matter.
    any_host = EVERYBODY in hosts or site.place.path is not None or (site.asks and not hosts)
    return Visitors(
        origins=_words(options.text("origins") or ""),
        cors=_words(options.text("cors") or ""),
        hosts=None if any_host else hosts | {site.place.host.lower()},
    )


def _words(text: str) -> frozenset[str]:
    return frozenset(word for word in text.replace(",", " ").split() if word)
