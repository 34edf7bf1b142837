"""A WSGI application whose requests put messages that consumers beside it handle.

`gunicorn --workers 3 shop:app` in this folder serves it: gunicorn.conf.py starts and stops the
broker in each worker. One of them is the host of the file, the others are connected to it, and
when it goes another one takes its place. `curl -X PUT http://127.0.0.1:8000/mails/ann` puts a
message.
"""

import os
from collections.abc import Callable, Iterable
from typing import Any

from embedq import Broker

broker = Broker(os.environ.get("EMBEDQ_PATH", "var/shop.db"), grace="20s")
queues = {name: broker.queue(name, str) for name in ("mails", "pictures")}


@queues["mails"].consumer(concurrency=4)
def send(mail: str) -> None:
    """Send a mail: on a thread of a process that serves requests, too."""
    print(f"mail to {mail}", flush=True)


@queues["pictures"].consumer(pool="process", timeout="30s")
def shrink(picture: str) -> None:
    """Make a picture smaller: in a process of its own, which imports this module by its name."""
    print(f"{picture} is smaller", flush=True)


def app(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
    """Answer as soon as the message is stored: no crash can lose it from then on."""
    name, _, body = environ["PATH_INFO"].strip("/").partition("/")
    if environ["REQUEST_METHOD"] != "PUT" or name not in queues:
        start_response("404 Not Found", [("Content-Length", "0")])
        return []
    answer = f"queued as {queues[name].put(body).seq}\n".encode()
    start_response("202 Accepted", [("Content-Length", str(len(answer)))])
    return [answer]
