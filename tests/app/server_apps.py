"""Applications that real servers load in tests: one for ASGI, one for WSGI, on $EMBEDQ_PATH.

PUT /<text> puts a message; consumers in every process move it to the queue "done".
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from embedq import Broker

broker = Broker(grace="5s")
orders = broker.queue("orders", str)
done = broker.queue("done")


@orders.consumer(concurrency=2)
def move(order: str) -> None:
    """Say which process has handled it."""
    done.put({"order": order, "pid": os.getpid()})


def wsgi(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
    """Answer once the message is stored."""
    orders.put(environ["PATH_INFO"].strip("/"))
    start_response("202 Accepted", [("Content-Length", "0")])
    return []


async def asgi(
    scope: dict[str, Any],
    receive: Callable[[], Awaitable[dict[str, Any]]],
    send: Callable[[dict[str, Any]], Awaitable[None]],
) -> None:
    """Do the same, with consumers that run while the application does."""
    if scope["type"] == "lifespan":
        await receive()
        async with broker:
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    await orders.aput(scope["path"].strip("/"))
    await send({"type": "http.response.start", "status": 202, "headers": []})
    await send({"type": "http.response.body", "body": b""})


# ------------------------------------------------- as a configuration of gunicorn (--config)

preload_app = True
graceful_timeout = 10


def post_worker_init(worker: Any) -> None:
    """Start the consumers in a new worker."""
    from tests.app.server_apps import broker as loaded

    loaded.start()


def worker_exit(server: Any, worker: Any) -> None:
    """Finish what is in work."""
    from tests.app.server_apps import broker as loaded

    loaded.stop()
