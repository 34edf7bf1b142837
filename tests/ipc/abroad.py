"""What tests of hosts on other machines need: a free port, keys, a client that has none."""

from __future__ import annotations

import socket
from pathlib import Path

from embedq.ipc import keys


def free_port() -> int:
    """Return a port that nobody listens at now. Another test cannot get it for a while."""
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        port: int = made.getsockname()[1]
        return port


def make_keys(folder: Path, *clients: str) -> Path:
    """Make the keys of a host and of clients that it allows, all in one folder."""
    keys.new_pair(folder, keys.HOST)
    for name in clients:
        keys.allow(folder, name, keys.new_pair(folder, name).public)
    return folder
