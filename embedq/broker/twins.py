"""A coroutine for every blocking call: the same work, on another thread.

Knows: how a method becomes one that can be awaited.
Does not know: what the method does. Calls made for every message have better ways (awaiting.py).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

S = TypeVar("S")
P = ParamSpec("P")
R = TypeVar("R")


def twin(
    method: Callable[Concatenate[S, P], R],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
    """Return a method that does the same without blocking the loop.

    The work goes on to its end if the caller is cancelled.
    """

    @wraps(method)
    async def awaited(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        import asyncio  # noqa: PLC0415  # loaded already, by those who use coroutines

        return await asyncio.shield(asyncio.to_thread(method, self, *args, **kwargs))

    name = method.__name__
    awaited.__name__ = f"a{name}"
    awaited.__qualname__ = method.__qualname__.removesuffix(name) + f"a{name}"
    awaited.__doc__ = f"Do the same as `{name}`, from a coroutine."
    return awaited
