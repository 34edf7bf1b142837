"""A web application whose requests put messages that a consumer beside it handles.

`uvicorn web:app` serves it. Run as a program it serves itself, sends itself two requests and ends.
"""

import asyncio
import tempfile
import threading
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from embedq import Broker


@dataclass
class Welcome:
    """A mail to be sent."""

    to: str


broker = Broker(Path(tempfile.mkdtemp()) / "shop.db", grace="10s")
mails = broker.queue("mails", Welcome)
sent: list[str] = []


@mails.consumer(concurrency=10)
async def send(mail: Welcome) -> None:
    """Send a mail: on the loop that serves the requests, and after their answers."""
    await asyncio.sleep(0.1)
    sent.append(mail.to)


async def sign_up(request: Request) -> JSONResponse:
    """Answer as soon as the message is stored: no crash can lose it from then on."""
    name = request.path_params["name"]
    receipt = await mails.aput(Welcome(to=name))
    return JSONResponse({"name": name, "queued": receipt.seq}, status_code=202)


app = Starlette(
    routes=[Route("/users/{name}", sign_up, methods=["PUT"])],
    lifespan=broker.lifespan,  # consumers run while the application does, and are drained
)

if __name__ == "__main__":
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        threading.Event().wait(0.01)
    host, port = server.servers[0].sockets[0].getsockname()
    for user in ("ann", "bob"):
        url = f"http://{host}:{port}/users/{user}"
        with urllib.request.urlopen(urllib.request.Request(url, method="PUT")) as answer:
            print(answer.status, answer.read().decode())
    server.should_exit = True  # as SIGTERM does: what is in work is finished first
    thread.join()
    print("sent to", sorted(sent))
    with broker:
        print(f"{mails.stats().stored} mails are left")
