"""What a wire allows: a server without a queue, which commits one row of plain sqlite3 for each.

Knows: how many bytes go up and down for each message, how many may be under way.
Does not know: protocols, embedq. Started by bench_listener_sides.py.

    bench_listener_bare.py FOLDER WIRE

Whatever one look at all connections finds is one commit: the rows that were handed out last are
deleted with their leases, the next ones get theirs. Then the bytes of the answers are written.
Each line of its input is a number of messages to have; each answer has what is there, how many
were handed out, and the seconds of CPU.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
from pathlib import Path
from time import process_time
from typing import Final

ROOT = Path(__file__).resolve().parent.parent
# Runs from a checkout that is not installed, too.
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from bench_broker_sides import Leased  # noqa: E402
from bench_listener_wires import WIRES, Shape  # noqa: E402

_READ: Final = 1 << 18
_ROWS: Final = 1_000


class Caller:
    """One connection: what it has sent and not got."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.socket.setblocking(True)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.came = 0
        self.is_over = False


class Bare:
    """The server. Its clients say with `up` bytes that they are done with one and want another."""

    def __init__(self, folder: Path, shape: Shape) -> None:
        self.side = Leased(folder)
        self.shape = shape
        self.rows = self.handed = 0
        self._answer = bytes(shape.down)
        self._door = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._door.getsockname()[1]
        self._callers = selectors.DefaultSelector()
        self._callers.register(self._door, selectors.EVENT_READ)
        self._callers.register(sys.stdin.buffer, selectors.EVENT_READ)

    def serve(self) -> None:
        """Serve, and answer what the standard input asks for, until that ends."""
        while True:
            wanted: list[tuple[Caller, int]] = []
            for key, _ in self._callers.select():
                if key.fileobj is self._door:
                    caller = Caller(self._door.accept()[0])
                    self._callers.register(caller.socket, selectors.EVENT_READ, caller)
                elif key.data is None:
                    line = sys.stdin.buffer.readline()
                    if not line:
                        return
                    print(json.dumps(self._fill_up(int(line))), flush=True)
                elif count := self._read(key.data):
                    wanted.append((key.data, count))
            if wanted:
                self._hand_out(wanted)

    def _read(self, caller: Caller) -> int:
        data = caller.socket.recv(_READ)
        if not data:
            self._callers.unregister(caller.socket)
            caller.socket.close()
            return 0
        caller.came += len(data)
        count, caller.came = divmod(caller.came, self.shape.up)
        return count * self.shape.window if self.shape.once else count

    def _hand_out(self, wanted: list[tuple[Caller, int]]) -> None:
        got = self.side.take(sum(count for _, count in wanted)) or 0
        self.rows -= got
        self.handed += got
        for caller, count in wanted:
            caller.socket.sendall(self._answer * min(got, count))
            got -= min(got, count)
            if self.shape.once:
                caller.socket.shutdown(socket.SHUT_WR)

    def _fill_up(self, messages: int) -> list[float]:
        missing = max(0, -(-(messages - self.rows) // _ROWS)) * _ROWS
        self.side.fill(missing)
        self.side.checkpoint()
        self.rows += missing
        return [self.rows, self.handed, process_time()]


def main(folder: str, wire: str) -> int:
    """Serve until there are no more lines."""
    bare = Bare(Path(folder), WIRES[wire].shape)
    print(bare.port, flush=True)
    bare.serve()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
