"""Handlers by name: how another process finds the function that it is to run.

Knows: which functions can be found by a name, what to say of the others.
Does not know: processes, messages.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import NamedTuple

from embedq.errors import EmbedqError, InvalidOption
from embedq.workers.signature import described
from embedq.workers.spec import Consumers, ConsumerSpec

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


class NoHandler(EmbedqError):
    """A worker process cannot find the consumer that it was started for."""

    code = "no_handler"
    hint = "declare consumers at the top level of a module that can be imported"


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
        raise _refused(f"{what} is made inside another function", _MOVE)
    if module == "__main__" and not hasattr(sys.modules["__main__"], "__file__"):
        raise _refused(f"{what} was typed into an interactive session", "put it into a file")
    return Reference(module, qualname, queue, group, name)


def _refused(what: str, hint: str) -> InvalidOption:
    return InvalidOption(
        f'consumer(pool="process"): {what}; worker processes import their handlers by name',
        hint=hint,
        argument="pool",
    )


def find(reference: Reference) -> ConsumerSpec:
    """Import the module of a consumer and return what was registered there.

    Raises NoHandler; whatever the module raises.
    """
    importlib.import_module(reference.module)
    for spec in Consumers.everywhere():
        function = spec.function
        module = getattr(function, "__module__", None)
        if module == "__mp_main__":  # what another process sees of a program's own file
            module = "__main__"
        found = (module, getattr(function, "__qualname__", None))
        where = (spec.queue, spec.group, spec.name)
        if found == reference[:2] and where == reference[2:]:
            return spec
    raise NoHandler(
        f"{reference}: importing the module registers no consumer {reference.name!r} of queue "
        f"{reference.queue!r}, group {reference.group!r}",
        hint='register it when the module is imported, not below `if __name__ == "__main__"`',
    )
