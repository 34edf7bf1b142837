"""Names of a package that are loaded when they are first used (PEP 562).

Knows: how a package gives out what its modules have, so that importing it costs little.
Does not know: which names there are.
"""

import sys
from collections.abc import Callable, Mapping


def later(package: str, modules: Mapping[str, str]) -> Callable[[str], object]:
    """Return the `__getattr__` of a package. `modules`: where each name is loaded from."""

    def load(name: str) -> object:
        module = modules.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        from importlib import import_module  # noqa: PLC0415  # not needed by who does not get here

        found: object = getattr(import_module(module), name)
        setattr(sys.modules[package], name, found)
        return found

    return load
