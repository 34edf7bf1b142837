"""How a process died under its deliveries, in words: for attempts, dead letters and events.

Knows: what each fact proves about an end, and what nobody can know.
Does not know: where the facts come from, which deliveries were open.

The same words serve for hosts and for workers, of which also the exit code is known.
"""

from __future__ import annotations

import signal
from typing import Final

from embedq.message import ErrorInfo
from embedq.storage.lastwords import ANOTHER, ELSEWHERE, KEPT, UNABLE
from embedq.storage.rows import Death

#: What faulthandler calls the signals that it catches.
_SIGNALS: Final = {
    "Bus error": "SIGBUS",
    "Illegal instruction": "SIGILL",
    "Floating point exception": "SIGFPE",
    "Floating-point exception": "SIGFPE",  # since Python 3.13
    "Aborted": "SIGABRT",
    "Segmentation fault": "SIGSEGV",
}

#: What was seen of an end that was not recorded, and why, by what its lock file said. Up to the
#: semicolon it is also the short form.
_UNWRITTEN: Final = {
    KEPT: "ended without a word: SIGKILL (for example by the out-of-memory killer) or os._exit; "
    "a signal without a handler, a stack overflow outside the main thread and a fatal error of "
    "Python itself (see its standard error) leave none either",
    ELSEWHERE: "ended, and left no record; the application had faulthandler in use itself: if it "
    "was a crash, that has written where it was told to, else it was SIGKILL or os._exit",
    ANOTHER: "ended, and left no record; if it was a crash, the record was kept beside another "
    "database of that process, else it was SIGKILL or os._exit",
    UNABLE: "ended, and left no record; the .fatal file beside the database could not be made, so "
    "it may have been a crash, SIGKILL or os._exit",
    "": "ended, and left no record; it ran no consumers, so it may have been a crash, SIGKILL or "
    "os._exit",
}


#: Of a worker whose end nobody waited for.
_UNSEEN: Final = (
    "ended, and nobody has seen how: it may have been a crash, SIGKILL (for example by the "
    "out-of-memory killer) or os._exit"
)


def describe(death: Death, who: str = "host") -> ErrorInfo:
    """Say how a process ended. `who` is its part: "host" or "worker".

    The type is the name of the signal where that is known (SIGSEGV, SIGKILL, ...), else
    `Exited`, `Stopped`, `MachineRestarted`, `HostDied` or `WorkerDied`.
    """
    name = f"the {who}" if death.pid is None else f"the {who} (process {death.pid})"
    if death.fatal:
        kind = _SIGNALS.get(death.fatal, "FatalError")
        text = (
            f"{name} crashed: {death.fatal}; if other messages were in work too, nobody can tell "
            "whose fault it was. The traceback is that of the thread it struck"
        )
        return ErrorInfo.capped(kind, text, death.frames)
    if death.code is not None:
        return _of_code(name, death.code)
    if death.stopped:
        text = f"{name} stopped serving ({death.stopped}) before this message was settled"
        return ErrorInfo.capped("Stopped", text)
    return _unknown(death, who, name)


def _unknown(death: Death, who: str, name: str) -> ErrorInfo:
    """Say what follows from the little that is known."""
    if death.same_boot is False:
        return ErrorInfo.capped("MachineRestarted", f"the machine restarted while {name} ran")
    kind = f"{who.capitalize()}Died"
    if who == "worker":
        return ErrorInfo.capped(kind, f"{name} {_UNSEEN}")
    if death.pid is None:
        text = (
            f"how {name} ended is not known; the lock file does not tell, as after a copy of the "
            "database alone"
        )
        return ErrorInfo.capped(kind, text)
    text = f"{name} {_UNWRITTEN.get(death.record, _UNWRITTEN[''])}"
    if death.same_boot is None:
        text += ". Or the machine restarted"
    return ErrorInfo.capped(kind, text)


def _of_code(name: str, code: int) -> ErrorInfo:
    """Say what an exit code means, negative for a signal, as `subprocess` gives it."""
    if code >= 0:
        return ErrorInfo.capped("Exited", f"{name} ended with exit code {code}")
    try:
        kind = signal.Signals(-code).name
    except ValueError:  # a real-time signal has no name
        kind = f"signal {-code}"
    hint = " (for example by the out-of-memory killer)" if kind == "SIGKILL" else ""
    return ErrorInfo.capped(kind, f"{name} was ended by {kind}{hint}")


def summary(error: ErrorInfo) -> str:
    """Return the type and the short form of the message, for details and events."""
    return f"{error.type}: {error.message.partition(';')[0]}"
