"""Find the consumer that a worker process was started for.

Knows: that importing a module registers its consumers with their brokers.
Does not know: processes, messages.
"""

from __future__ import annotations

import importlib
from typing import NamedTuple

from embedq.errors import EmbedqError
from embedq.workers.reference import Reference
from embedq.workers.spec import Consumers, ConsumerSpec


class NoHandler(EmbedqError):
    """A worker process cannot find the consumer that it was started for."""

    code = "no_handler"
    hint = "declare consumers at the top level of a module that can be imported"


class Found(NamedTuple):
    """A consumer, and all those of its broker."""

    spec: ConsumerSpec
    consumers: Consumers


def find(reference: Reference) -> Found:
    """Import the module of a consumer and return what was registered there.

    Raises NoHandler; whatever the module raises.
    """
    importlib.import_module(reference.module)
    for consumers in Consumers.everywhere():
        for spec in consumers:
            if _is_meant(spec, reference):
                return Found(spec, consumers)
    raise NoHandler(
        f"{reference}: importing the module registers no consumer {reference.name!r} of queue "
        f"{reference.queue!r}, group {reference.group!r}",
        hint='register it when the module is imported, not below `if __name__ == "__main__"`',
    )


def _is_meant(spec: ConsumerSpec, reference: Reference) -> bool:
    function = spec.function
    module = getattr(function, "__module__", None)
    if module == "__mp_main__":  # what another process sees of a program's own file
        module = "__main__"
    found = (module, getattr(function, "__qualname__", None))
    where = (spec.queue, spec.group, spec.name)
    return found == reference[:2] and where == reference[2:]
