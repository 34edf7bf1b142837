"""A broker that runs while an ASGI application does.

Knows: the lifespan protocol as frameworks ask for it: a context manager made for each start.
Does not know: any framework.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from embedq.app.broker import Broker


def lifespan_of(
    broker: Broker,
) -> Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any]]]:
    """Return a lifespan: entering starts the broker, leaving drains it.

    What it yields becomes part of the state of requests, as `request.state.broker`.
    """

    @asynccontextmanager
    async def lifespan(_application: Any) -> AsyncIterator[Mapping[str, Any]]:  # noqa: ANN401
        async with broker:
            yield {"broker": broker}

    return lifespan
