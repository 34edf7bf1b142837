"""A program whose handlers end it in every way there is: run by test_last_words.py.

Arguments: the database, "thread" or "async" (on the main thread), how messages that begin with
"k" end it, and a peculiarity of the program. It ends by itself when it has nothing to do.
"""

import asyncio
import ctypes
import ctypes.util
import faulthandler
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable

from embedq import Broker
from embedq.storage.lastwords import LastWords

PATH, KIND, HOW, PECULIARITY = sys.argv[1:5]
SMALL_STACK = 512 * 1024
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
sys.setrecursionlimit(1_000_000)


def cut_short() -> None:
    """End in the way asked for. The name is looked for in the traceback."""
    if HOW == "null pointer":
        ctypes.string_at(0)
    elif HOW == "stack overflow":
        overflow()
    elif HOW == "abort":
        ctypes.CDLL(None).abort()
    elif HOW == "terminate":
        name = ctypes.util.find_library("stdc++") or "libstdc++.so.6"
        ctypes.CDLL(name)._ZSt9terminatev()
    elif HOW == "fatal error":
        ctypes.pythonapi.Py_FatalError(b"planted")
    elif HOW == "exit":
        os._exit(7)
    elif HOW == "unhandled":
        os.kill(os.getpid(), signal.SIGUSR1)
        threading.Event().wait(60)
    else:
        signal.raise_signal(getattr(signal, HOW))


def overflow() -> None:
    """Use up the stack of this thread, in C as much as in Python."""

    @ctypes.CFUNCTYPE(None)
    def deeper() -> None:
        deeper()

    deeper()


def forked() -> None:
    """Let a child of this process crash; then the parent itself is killed."""
    pid = os.fork()
    if pid == 0:
        ctypes.string_at(0)
    os.waitpid(pid, 0)
    os.kill(os.getpid(), signal.SIGKILL)


def handle(body: str) -> None:
    if body.startswith("k"):
        threading.Event().wait(0.2)  # neighbours start meanwhile
        if PECULIARITY == "forks":
            forked()
        cut_short()
    threading.Event().wait(30 if body.startswith("n") else 0)
    ended.set()


async def ahandle(body: str) -> None:
    await asyncio.sleep(0)
    if body.startswith("k"):
        cut_short()
    ended.set()


ended = threading.Event()
handlers: dict[str, Callable[..., object]] = {"thread": handle, "async": ahandle}
if PECULIARITY == "faulthandler":
    faulthandler.enable()
elif PECULIARITY == "planted":
    LastWords.listen = lambda self: "kept"  # type: ignore[method-assign]
elif PECULIARITY == "two":
    first = Broker(f"{PATH}.first.db")
    first.queue("orders", str).consumer(handle)
    first.start()
if HOW == "stack overflow":
    threading.stack_size(SMALL_STACK)
    hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
    resource.setrlimit(resource.RLIMIT_STACK, (SMALL_STACK, hard))

broker = Broker(PATH)
orders = broker.queue("orders", str)
if PECULIARITY != "no consumers":
    orders.consumer(concurrency=4)(handlers[KIND])


async def amain() -> None:
    async with broker:
        await asyncio.to_thread(ended.wait, 20)


if PECULIARITY == "no consumers":
    with orders.get(timeout=60) as delivery:
        handle(delivery.body)
elif KIND == "async":
    asyncio.run(amain())
else:
    with broker:
        ended.wait(20)
