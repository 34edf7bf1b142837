"""A process that holds connections, most of which do nothing.

Knows: sockets. Does not know: what the bytes mean (bench_listener_wires.py), embedq.
Started by bench_listener_memory.py.

    bench_listener_holder.py WIRE PORT

Each line of its input is a word and numbers: `hold 1000` opens connections that stay as they are,
`write 50 3` lets so many others each write a message every tenth of a second, for so many seconds.
"""

from __future__ import annotations

import json
import resource
import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack
from time import perf_counter, sleep
from typing import Final

from bench_listener_wires import WIRES, Wire

_TICK_S: Final = 0.1
_PATIENCE_S: Final = 60.0
#: Descriptors that a process may need: one for each connection, and its own.
_FILES: Final = 4_096


def more_files() -> None:
    """Let this process open as many files as it needs, if its user may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


class Holder:
    """Connections to a listener."""

    def __init__(self, wire: Wire, port: int) -> None:
        self._wire = wire
        self._address = ("127.0.0.1", port)
        self._held = ExitStack()
        self.close = self._held.close

    def _connect(self, count: int, held: ExitStack) -> list[socket.socket]:
        opened = []
        for _ in range(count):
            one = held.enter_context(socket.create_connection(self._address, _PATIENCE_S))
            if self._wire.hello:
                one.sendall(self._wire.hello)
            opened.append(one)
        return opened

    def hold(self, connections: int) -> object:
        """Open connections that do nothing."""
        return len(self._connect(connections, self._held))

    def write(self, connections: int, seconds: float) -> object:
        """Let connections write; return how many messages, once all are stored."""
        end, written = perf_counter() + seconds, 0
        while perf_counter() < end:
            with ExitStack() as held:
                writers = self._connect(connections, held)
                while perf_counter() < end:
                    for writer in writers:
                        writer.sendall(self._wire.put)
                    written += connections
                    if self._wire.shape.once:
                        break
                    sleep(_TICK_S)
                for writer in writers:
                    writer.shutdown(socket.SHUT_WR)
                for writer in writers:
                    while writer.recv(4_096):
                        pass
            sleep(_TICK_S)
        return written


def main(wire: str, port: str) -> int:
    """Do what the lines say, until there are no more."""
    more_files()
    holder = Holder(WIRES[wire], int(port))
    words: dict[str, Callable[..., object]] = {"hold": holder.hold, "write": holder.write}
    print("null", flush=True)
    for line in sys.stdin:
        word, *numbers = line.split()
        print(json.dumps(words[word](*map(json.loads, numbers))), flush=True)
    holder.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
