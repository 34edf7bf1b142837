"""A child of `embedq dev`, as its parent sees it: started, listened to, told to go, ended.

Knows: the process, its two pipes, how long it may take to leave.
Does not know: why it is started or told to go.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from embedq.cli.reloaded import GRACE_S

#: Seconds beyond the grace, then between the last two signals.
_PATIENCE_S: Final = 2.0

Told = Callable[["Child", dict[str, Any]], object]


class Child:
    """A process that has, or is about to have, an application's consumers.

    `told(child, note)` is called on a thread of the child's; its last note is {"what": "ended"}.
    """

    def __init__(self, arguments: Sequence[str], told: Told) -> None:
        self.loaded = False
        self.leaving = False
        self._told = told
        self._timer: threading.Timer | None = None
        orders, self._orders = os.pipe()
        self._words, words = os.pipe()
        command = [sys.executable, "-m", "embedq.cli.reloaded", str(orders), str(words)]
        try:
            with _without_interrupts():
                self._process = subprocess.Popen(  # noqa: S603 - this Python, our own module
                    [*command, *arguments], pass_fds=(orders, words), env=_environment()
                )
        finally:
            os.close(orders)
            os.close(words)
        threading.Thread(target=self._listen, name="embedq-child", daemon=True).start()

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def _listen(self) -> None:
        with open(self._words) as words:  # noqa: PTH123 - a descriptor
            for text in words:
                self._told(self, json.loads(text))
        code = self._process.wait()
        if self._timer is not None:
            self._timer.cancel()
        self._told(self, {"what": "ended", "code": code})

    def go(self) -> None:
        """Let it run its consumers."""
        self._order("go")

    def leave(self) -> None:
        """Let it drain and end; it is killed if it takes too long."""
        if not self.leaving:
            self.leaving = True
            self._order("leave")
            self._later(GRACE_S + _PATIENCE_S, self.kill)

    def kill(self) -> None:
        """End it now."""
        self.leaving = True
        with suppress(ProcessLookupError):
            self._process.kill()

    def wait(self) -> None:
        """Wait for its end."""
        self._process.wait()

    def _order(self, text: str) -> None:
        with suppress(OSError):  # it has ended, which is told
            os.write(self._orders, f"{text}\n".encode())

    def _later(self, seconds: float, do: Callable[[], object]) -> None:
        self._timer = threading.Timer(seconds, do)
        self._timer.daemon = True
        self._timer.start()

    def close(self) -> None:
        """Forget it, once it has ended."""
        os.close(self._orders)


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Let a child that is just starting not be ended by a Ctrl-C with a traceback."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _environment() -> dict[str, str]:
    # Compiled files are chosen by the second and the size of the source: two quick edits of the
    # same size would run the code of the first.
    return {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
