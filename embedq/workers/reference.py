"""Handlers by name: what tells another process which function it is to run.

Knows: which functions can be found by a name, what to say of the others.
Does not know: how one is found (finding.py), processes, messages.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import NamedTuple

from embedq.errors import InvalidOption
from embedq.workers.signature import described

_MOVE = "move it to the top level of a module, where another process can import it"


class Reference(NamedTuple):
    """Where a consumer is declared. `name` tells consumers of one function apart."""

    module: str
    qualname: str
    queue: str
    group: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}:{self.qualname}"


def refer(function: Callable[..., object], queue: str, group: str, name: str) -> Reference:
    """Return where a function is. Raises InvalidOption for one that has no name to find it by."""
    module = getattr(function, "__module__", None)
    qualname = getattr(function, "__qualname__", None)
    what = described(function)
    if not module or not qualname:
        raise _refused(f"{what} is no plain function", f"write a def that calls it, and {_MOVE}")
    if "<lambda>" in qualname:
        raise _refused(f"{what} is a lambda", f"write a def, and {_MOVE}")
    if "<locals>" in qualname:
        hint = f"{_MOVE}; a decorator of it has to use functools.wraps"
        raise _refused(f"{what} is made inside another function", hint)
    if module == "__main__" and not _is_program_a_file():
        raise _refused(f"{what} was typed into an interactive session", "put it into a file")
    return Reference(module, qualname, queue, group, name)


def _is_program_a_file() -> bool:
    """Whether another process can run what this one was started with."""
    main = sys.modules["__main__"]
    if getattr(main, "__spec__", None) is not None:
        return True
    return os.path.exists(getattr(main, "__file__", None) or "")  # noqa: PTH110 - "" is nothing


def _refused(what: str, hint: str) -> InvalidOption:
    return InvalidOption(
        f'consumer(pool="process"): {what}; worker processes import their handlers by name',
        hint=hint,
        argument="pool",
    )
