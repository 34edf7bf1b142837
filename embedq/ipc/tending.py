"""The socket of a host stays where others look for it, and is shut while nobody can be served.

Knows: that its file may be removed, that libzmq ends the process where it cannot accept.
Does not know: who is served, frames, sessions.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

from embedq.errors import EmbedqError
from embedq.ipc import place
from embedq.storage import descriptors

if TYPE_CHECKING:
    from embedq.ipc.door import Door

_log = logging.getLogger("embedq.ipc")

#: Seconds between two looks.
_LOOK_S: Final = 0.25
#: Descriptors that a context of ZeroMQ, its sockets and a loop need, and a connection or two.
NEEDED: Final = 24
#: With fewer than these to spare nobody is let in: the application is to have them.
SPARE: Final = 12


class Tending:
    """Looks after one door, bound at a path, now and then. Lives on the loop."""

    def __init__(self, door: Door, path: Path) -> None:
        self._door = door
        self._path = path
        self._endpoint = place.endpoint_of(path)
        self._is_shut = False
        self._later()

    def _later(self) -> None:
        import asyncio  # noqa: PLC0415  # a client asks for NEEDED here, and loads none

        self._timer = asyncio.get_running_loop().call_later(_LOOK_S, self._look)

    def end(self) -> None:
        """Look no more."""
        self._timer.cancel()

    def _look(self) -> None:
        try:
            if not descriptors.are_free(SPARE):
                self._shut()
            elif self._is_shut:
                if descriptors.are_free(NEEDED):  # more, or it would open and shut all the time
                    self._open_again("descriptors are free again")
            elif not self._path.exists():
                self._open_again("it was removed while it was served")
        except (OSError, EmbedqError) as error:
            _log.warning("%s cannot be made anew: %s", self._path, error)
        self._later()

    def _shut(self) -> None:
        """Let nobody in. Connections that are there stay."""
        if not self._is_shut:
            self._is_shut = True
            _log.warning(
                "%s lets no other process in: fewer than %d file descriptors are free; %s",
                *(self._path, SPARE, descriptors.HINT),
            )
            self._door.shut(self._endpoint)
            place.remove(self._path)

    def _open_again(self, why: str) -> None:
        _log.warning("%s is made anew: %s", self._path, why)
        place.make_folder(self._path.parent)
        self._door.bind_again(self._endpoint)
        self._is_shut = False
