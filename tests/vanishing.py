"""Attributes that another thread clears between two looks at them.

Knows: how to make that happen at any look, without threads.
Does not know: which attributes those are.
"""

from __future__ import annotations

from typing import Any, TypeVar

T = TypeVar("T")


def vanishing(kind: type[T], name: str, looks: int) -> type[T]:
    """Return a class like `kind` whose attribute `name` is None after so many looks at a value.

    A value that is set later vanishes in the same way.
    """
    values: dict[int, Any] = {}
    left: dict[int, int] = {}

    def look(self: T) -> Any:
        if not left.get(id(self)):
            return None
        left[id(self)] -= 1
        return values[id(self)]

    def put(self: T, value: object) -> None:
        values[id(self)], left[id(self)] = value, 0 if value is None else looks

    return type(kind.__name__, (kind,), {"__slots__": (), name: property(look, put)})
