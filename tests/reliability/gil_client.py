"""A client whose handler, in C, keeps the GIL for longer than its lease; and the host beside it.

    python -m tests.reliability.gil_client DATABASE host [unkept] | client

The host prints "serving"; the client prints a line for each start of its handler. `unkept` is a
planted fault: a host that renews no lease, however well its clients are.
"""

from __future__ import annotations

import ctypes
import logging
import sys

from embedq import Broker, Delivery
from embedq.broker.desk import Desk

LEASE_S = 0.3
#: Microseconds in C: several leases, and less than a heartbeat is waited for.
_KEPT_US = 1_500_000


def say(line: str) -> None:
    """Tell the test something."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def host(path: str) -> None:
    """Serve until the test has heard enough."""
    broker = Broker(path, role="host")
    broker.queue("orders", str, lease=LEASE_S)
    broker.backing.wait_until_served()
    say("serving")
    sys.stdin.readline()
    broker.stop()


def client(path: str) -> None:
    """Handle messages until the test has heard enough: one keeps the GIL."""
    broker = Broker(path, role="client")

    @broker.queue("orders", str, lease=LEASE_S).consumer
    def handle(order: str, delivery: Delivery[str]) -> None:
        say(f"start {order} {delivery.attempt}")
        if order == "gil":
            ctypes.PyDLL(None).usleep(_KEPT_US)  # unlike CDLL it does not let the GIL go

    with broker:
        sys.stdin.readline()


if __name__ == "__main__":
    logging.getLogger("embedq").setLevel(logging.CRITICAL)
    if "unkept" in sys.argv:
        Desk.keep = lambda *_: None  # type: ignore[method-assign]
    {"host": host, "client": client}[sys.argv[2]](sys.argv[1])
