"""SIGHUP to `embedq serve`: the listeners read their certificates again.

Knows: the signal, that certificates which cannot be used leave the former ones in place.
Does not know: what a certificate is, when a server begins and ends.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from contextlib import suppress
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from embedq.cli import output
from embedq.errors import EmbedqError
from embedq.printable import plain

if TYPE_CHECKING:
    from embedq.app.listeners import BrokerListener


class Reloading:
    """While it is entered, SIGHUP reloads these listeners, on a thread of its own.

    The handler does no more than ask for that: the signal may come within anything.
    """

    def __init__(self, listeners: Sequence[BrokerListener], *, as_json: bool) -> None:
        self._listeners = listeners
        self._as_json = as_json
        self._asked: SimpleQueue[bool] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="embedq-reload", daemon=True)
        self._before: Any = None

    def __enter__(self) -> Self:
        self._thread.start()
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGHUP, lambda *_: self._asked.put(True))
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGHUP, self._before)
        self._asked.put(False)
        self._thread.join()

    def _run(self) -> None:
        while self._asked.get():
            failed = self._reload()
            # Who reads no output is served all the same.
            with suppress(output.ReaderGone, output.OutputFailed):
                self._tell(failed)

    def _reload(self) -> dict[str, EmbedqError]:
        """Reload all; return why some keep what they had."""
        failed: dict[str, EmbedqError] = {}
        for listener in self._listeners:
            try:
                listener.reload()
            except EmbedqError as error:
                failed[listener.url] = error
        return failed

    def _tell(self, failed: dict[str, EmbedqError]) -> None:
        urls = [each.url for each in self._listeners]
        reloaded = [url for url in urls if url not in failed]
        if self._as_json:
            kept = [{"url": url, "error": error.message} for url, error in failed.items()]
            output.line({"event": "reloaded", "listeners": reloaded, "kept": kept})
        else:
            for url, error in failed.items():
                output.say(f"kept      {plain(url)}: {plain(error.message)}")
            for url in reloaded:
                output.say(f"reloaded  {plain(url)}")
        output.flush()
