"""A host with listeners, in a process of its own that tests kill: `host.py DATABASE URL...`.

Prints a line of JSON with the addresses of its listeners, in their order, and serves until its
standard input ends.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from embedq import Broker
from embedq.net import NetLimits

#: The environment variables with statements that a host runs first, and with its NetLimits.
PLANTED = "EMBEDQ_TEST_PLANTED"
LIMITS = "EMBEDQ_TEST_NET_LIMITS"
ROOT = Path(__file__).resolve().parents[2]


class Host(NamedTuple):
    """A running host."""

    process: subprocess.Popen[bytes]
    addresses: Sequence[Any]

    def kill(self) -> None:
        """Kill -9, and wait until it is gone."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(60)


@contextmanager
def hosting(
    path: Path | str, *urls: str, planted: str = "", limits: Mapping[str, float] | None = None
) -> Iterator[Host]:
    """Start a host; it is ended with the context. `planted`: a fault that it begins with."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.interop.host", str(path), *urls],
        cwd=ROOT,
        env={**os.environ, PLANTED: planted, LIMITS: json.dumps(limits or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        addresses = json.loads(process.stdout.readline() or "null")
        assert addresses is not None, "the host did not start"
        yield Host(process, [at if isinstance(at, str) else tuple(at) for at in addresses])
    finally:
        process.stdin.close()
        try:
            process.wait(30)
        finally:
            process.kill()
            process.wait(30)
            process.stdout.close()


def main(path: str, urls: Sequence[str]) -> None:
    """Serve until standard input ends."""
    exec(os.environ.get(PLANTED, ""), {})
    limits = NetLimits(**json.loads(os.environ.get(LIMITS, "{}")))
    with Broker(path) as broker:
        listeners = [broker.listen(url, limits=limits) for url in urls]
        sys.stdout.write(json.dumps([each.address for each in listeners]) + "\n")
        sys.stdout.flush()
        while os.read(0, 4096):
            pass


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
