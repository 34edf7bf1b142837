"""Tell the objects of a process that they have woken up in a forked child.

Knows: who asked to be told, and how to keep an object from ever being destroyed.
Does not know: what the objects are, nor what they do about it.

Workers are spawned, never forked; this is for applications that fork by themselves (daemons,
`multiprocessing`, web servers with a preloaded application) after a broker was started.
"""

import ctypes
import os
import threading
import weakref
from typing import Protocol


class ForkAware(Protocol):
    """What can be registered; it must also be weakly referable."""

    def forked_in_child(self) -> None:
        """Become harmless. Runs in the child, on its only thread, before `os.fork` returns.

        Must not wait for a lock of the parent: the thread that holds it does not exist here.
        """
        ...


# By identity, not in a WeakSet: equality and hash of a registered object are its own affair, and
# copying a dict's values is one step, safe while another thread registers.
_registered: dict[int, weakref.ref[ForkAware]] = {}
_installing = threading.Lock()
_installed = False


def on_fork(obj: ForkAware) -> None:
    """Call `obj.forked_in_child()` in every later child made by fork, as long as `obj` lives.

    Only a weak reference is kept. Registering the same object again changes nothing.
    """
    global _installed  # noqa: PLW0603 - a fact about the process: os has no way to unregister
    key = id(obj)
    # The callback is told the dead reference, so that an id used again is not deleted for it.
    reference = weakref.ref(obj, lambda dead: _forget(key, dead))
    _registered[key] = reference
    with _installing:
        if not _installed and hasattr(os, "register_at_fork"):  # Windows has no fork
            os.register_at_fork(after_in_child=_in_child)
            _installed = True


def immortalise(obj: object) -> None:
    """Keep `obj` from being destroyed for the rest of this process, even at its end.

    For the SQLite connections of the parent, in the child: closing one there would roll back in
    memory that the parent still uses, or checkpoint and delete a live write-ahead log.
    A module-level list would not do: the interpreter empties modules when it exits.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(obj))


def _forget(key: int, dead: weakref.ref[ForkAware]) -> None:
    if _registered.get(key) is dead:
        del _registered[key]


def _in_child() -> None:
    global _installing  # noqa: PLW0603 - the old one may be held by a thread that is gone
    _installing = threading.Lock()
    failures: list[Exception] = []
    for reference in list(_registered.values()):
        obj = reference()
        if obj is None:
            continue
        try:
            obj.forked_in_child()
        except Exception as failure:  # noqa: BLE001 - the others must become harmless all the same
            failures.append(failure)
    if failures:
        # Our caller is the interpreter: it prints this, without the parts of a group, and lets
        # the child go on.
        told = "; ".join(map(repr, failures))
        raise ExceptionGroup(f"after fork, in the child: {told}", failures)
