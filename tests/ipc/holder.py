"""A client process for tests: claims messages, starts some of them, and waits to be killed.

Run as `python -m tests.ipc.holder ENDPOINT FOLDER GROUP MOST STARTED [BOSS]`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from embedq.ipc import frames
from embedq.ipc.marks import Marks, Progress
from tests.ipc.peer import Peer


def say(line: str) -> None:
    """Tell the test something."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(
    endpoint: str, folder: str, group: str, most: str, started: str, boss: str | None = None
) -> None:
    peer = Peer(endpoint)
    marks = Marks.create(Path(folder), peer.token)
    watcher = None if boss is None else bytes.fromhex(boss)
    welcome = peer.hello(name="holder", marks=str(marks.path), boss=watcher)
    marks.renew(welcome.epoch)
    say(peer.token.hex())
    leases: list[frames.WireLease] = []
    while len(leases) < int(most):
        leases += peer.exchange(group=int(group), most=int(most), wait_ms=None, keep=True).leases
    for lease in leases[: int(started)]:
        marks.start(lease.mark, lease.counter)
    say(f"holding {len(leases)}")
    for line in sys.stdin:
        if line == "fork\n":
            if not os.fork():
                sys.stdin.read()  # it holds the connection for as long as the test runs
                os._exit(0)
            say("forked")
        if line == "done\n":
            marks.end(leases[0].mark, leases[0].counter, Progress.DONE)
            say("noted")
        if line == "answer\n":
            peer.exchange(
                *[frames.WireEnding(int(group), each.message.seq, each.counter) for each in leases]
            )
            say("answered")


if __name__ == "__main__":
    main(*sys.argv[1:])
