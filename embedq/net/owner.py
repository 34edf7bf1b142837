"""Whose access to queues it is: a connection, or a listener.

Knows: what an access has to ask of its owner.
Does not know: queues, bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

from embedq.net.limits import NetLimits
from embedq.net.making import Making
from embedq.net.port import Identity


class Owner(Protocol):
    """Whose access it is: a connection, or a listener."""

    limits: NetLimits
    #: Creates the queues that its clients name.
    making: Making
    identity: Identity | None
    #: What has happened, for the numbers of the listener.
    counts: Counter[tuple[str, str]]

    @property
    def peer(self) -> str:
        """Its address, in words."""
        ...

    @property
    def protocol(self) -> str:
        """The name of the protocol, for dead letters."""
        ...

    @property
    def is_clogged(self) -> bool:
        """Whether it takes nothing unasked now."""
        ...

    def called_back(self, call: Callable[[], object]) -> None:
        """Make a call of the session's, if it is still there."""
        ...

    def answered(self, then: Callable[[Any], object], result: object) -> None:
        """Give the session an answer it waits for, if it is still there."""
        ...

    def ops_changed(self) -> None:
        """More or less is under way."""
        ...
