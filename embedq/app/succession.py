"""When the host of a file is gone: one of the processes that were connected takes its place.

Knows: that the lock of the file decides who it is, that this process stays a client of itself.
Does not know: how a host is opened, what its clients hold.

A process that takes over goes on through its connection, which finds the new host like every other
one: nothing of what it holds has to change hands inside it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final, Protocol

from embedq.errors import EmbedqError, StoreInUse

_log = logging.getLogger("embedq")

#: Seconds between two attempts that failed for other reasons than somebody being quicker. A host
#: that has opened is left alone for as long: the next look must be able to find it.
_PAUSE_S: Final = 1.0


class Host(Protocol):
    """An open host."""

    def close(self) -> None:
        """Serve nobody any more, and close the file."""
        ...


class Succession:
    """Becomes the host when there is none. `open_host` raises StoreInUse if there is one.

    It returns once the host can be found: whoever misses it is no reason to open another.
    `host`: one that this process has opened before.
    """

    def __init__(
        self,
        open_host: Callable[[], Host],
        monotonic: Callable[[], float],
        tell: Callable[[Exception], object],
        host: Host | None = None,
    ) -> None:
        self._open_host = open_host
        self._monotonic = monotonic
        self._tell = tell
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._not_before = 0.0
        self._closed = False
        self.host = host

    def missing(self) -> None:
        """There is no host now: see whether it can be this process. Returns at once."""
        with self._lock:
            busy = self._thread is not None and self._thread.is_alive()
            if self._closed or busy or self._monotonic() < self._not_before:
                return
            self._thread = threading.Thread(
                target=self._take_over, name="embedq-takeover", daemon=True
            )
            self._thread.start()

    def _take_over(self) -> None:
        former, self.host = self.host, None
        try:
            if former is not None:  # its store has stopped, else it would be found
                former.close()
        except EmbedqError:
            _log.debug("closing a host that serves no more failed", exc_info=True)
        try:
            host = self._open_host()
        except StoreInUse:
            return  # somebody was quicker
        except EmbedqError as error:
            self._not_before = self._monotonic() + _PAUSE_S
            self._tell(error)
            return
        with self._lock:
            self._not_before = self._monotonic() + _PAUSE_S
            if not self._closed:
                self.host = host
                return
        host.close()

    def close(self) -> None:
        """Take over no more, and close the host that this process has become."""
        with self._lock:
            self._closed = True
            thread = self._thread
        if thread is not None:
            thread.join()
        if self.host is not None:
            self.host.close()
