"""Logins of one listener: a few are checked at once, on threads that nobody has to wait for.

Knows: that whoever checks may block for ever, and may be a coroutine.
Does not know: how secrets are checked (auth.py), connections.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from embedq.net.port import Authenticator, Credentials, Identity

_log = logging.getLogger("embedq.net")
#: Logins that are checked at once: a check of a password takes memory, and is what a flood wants.
_MOST: Final = 4


class Logins:
    """Asks an authenticator. Belongs to the loop's thread."""

    def __init__(self, auth: Authenticator) -> None:
        self._auth = auth
        self._free = asyncio.Semaphore(_MOST)

    async def ask(
        self, credentials: Credentials, then: Callable[[Identity | None], object]
    ) -> None:
        """Ask who somebody is. Whoever cancels this waits no longer, though a thread may."""
        try:
            found = await self._on_a_thread(credentials)
            if inspect.isawaitable(found):
                found = await found
        except Exception:  # noqa: BLE001  # what cannot be checked is not let in
            _log.exception("an authentication provider failed; the client is refused")
            found = None
        then(found if isinstance(found, Identity) else None)

    async def _on_a_thread(self, credentials: Credentials) -> object:
        """Call it on a thread of its own. Its place is free when it returns, not before.

        Those of the loop's pool are also needed to look up queues, and the loop cannot end
        before they do.
        """
        await self._free.acquire()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[object] = loop.create_future()

        def settle(found: object, error: Exception | None) -> None:
            self._free.release()
            if future.cancelled():
                if inspect.iscoroutine(found):
                    found.close()
            elif error is not None:
                future.set_exception(error)
            else:
                future.set_result(found)

        def call() -> None:
            found, error = None, None
            try:
                found = self._auth.identify(credentials)
            except Exception as raised:  # noqa: BLE001  # told on the loop
                error = raised
            with suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(settle, found, error)

        threading.Thread(target=call, name="embedq-login", daemon=True).start()
        return await future
