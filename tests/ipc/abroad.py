"""What tests of hosts on other machines need: a free port, keys, a client that has none."""

from __future__ import annotations

import atexit
import socket
from pathlib import Path

from embedq.ipc import keys


def free_port() -> int:
    """Return a port at which nobody listens, and which is nobody else's until this process ends.

    A port that was only looked up is given away again at once, to a listener at port 0 or to a
    client that connects somewhere: in a crowd thousands do while a host starts again. One that is
    bound is not, and with SO_REUSEADDR hosts can listen at it all the same.
    """
    kept = socket.socket()
    atexit.register(kept.close)
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.bind(("127.0.0.1", 0))
    port: int = kept.getsockname()[1]
    return port


def make_keys(folder: Path, *clients: str) -> Path:
    """Make the keys of a host and of clients that it allows, all in one folder."""
    keys.new_pair(folder, keys.HOST)
    for name in clients:
        keys.allow(folder, name, keys.new_pair(folder, name).public)
    return folder
