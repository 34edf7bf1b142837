"""A broker that runs while an ASGI application does.

Knows: the lifespan protocol as frameworks ask for it: a context manager made for each start;
that the server has heard the first signal, and that the next one is in a hurry.
Does not know: any framework.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

from embedq.workers.signals import Signals

if TYPE_CHECKING:
    from embedq.app.broker import Broker
    from embedq.workers.crews import ConsumerRunner

#: Drains and closes a broker, having told somebody what is to be drained.
Leave = Callable[[Callable[["ConsumerRunner"], object]], Awaitable[None]]


def lifespan_of(
    broker: Broker, leave: Leave
) -> Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any]]]:
    """Return a lifespan: entering starts the broker, leaving drains it.

    What it yields becomes part of the state of requests, as `request.state.broker`. While it
    drains another SIGTERM or SIGINT ends the grace; so does a server that cancels it.
    """

    @asynccontextmanager
    async def lifespan(_application: Any) -> AsyncIterator[Mapping[str, Any]]:  # noqa: ANN401
        await broker.__aenter__()
        is_forced = False
        try:
            yield {"broker": broker}
        except asyncio.CancelledError:
            is_forced = True
            raise
        finally:
            await _drained(leave, is_forced=is_forced)

    return lifespan


async def _drained(leave: Leave, *, is_forced: bool) -> None:
    loop = asyncio.get_running_loop()
    draining: list[ConsumerRunner] = []

    def hurry() -> None:
        for consumers in draining:
            consumers.hurry()

    def begin(consumers: ConsumerRunner) -> None:
        draining.append(consumers)
        if is_forced:
            hurry()

    with Signals(lambda: loop.call_soon_threadsafe(hurry)):
        await leave(begin)
