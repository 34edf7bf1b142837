"""Kill hosts and take the time until a put of another process is durable again.

Knows: how a host is started and killed, what is measured, how the distribution is printed.
Does not know: who takes over, or why it takes as long as it does.

`python tools/takeover.py --kills 50`: each time a host process is killed with -9 while this one is
its client and puts one message after another. Printed is the time from the kill to the end of the
first put that another host has answered; all puts are counted afterwards.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Runs from a checkout that is not installed, too.
sys.path.insert(0, str(ROOT))

from embedq import Broker  # noqa: E402

_HOST = """
import sys
from embedq import Broker
broker = Broker(sys.argv[1], role="host")
broker.queue("orders").put("of the host")
broker.backing.wait_until_served()
print("serving", flush=True)
sys.stdin.read()
"""
#: Puts before a kill: the connection is warm.
_BEFORE = 20


def one(path: Path) -> float:
    """Kill one host; return the seconds until this process, its client, can put again."""
    host = subprocess.Popen(
        [sys.executable, "-c", _HOST, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    try:
        if host.stdout is None or host.stdout.readline() != b"serving\n":
            raise SystemExit("the host did not start")
        with Broker(path) as broker:
            orders = broker.queue("orders")
            for number in range(_BEFORE):
                orders.put(number)
            killed = time.perf_counter()
            host.kill()
            for number in range(_BEFORE):
                orders.put(number)
                if number == 0:
                    took = time.perf_counter() - killed
                if host.poll() is not None and getattr(broker.desk, "host_pid", 0) != host.pid:
                    took = time.perf_counter() - killed
                    break
            return took
    finally:
        host.kill()
        host.communicate()


def main() -> int:
    """Measure, and print the distribution; 1 if a message is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--dir", type=Path, default=None, help="a folder on the disk to measure")
    asked = parser.parse_args()
    times: list[float] = []
    with tempfile.TemporaryDirectory(dir=asked.dir) as folder:
        path = Path(folder) / "q.db"
        for number in range(asked.kills):
            times.append(took := one(path))
            print(f"{number + 1}: {took * 1000:.0f} ms", file=sys.stderr, flush=True)
        with Broker(path, role="host") as broker:
            stored = broker.queue("orders").stats().length
    times.sort()
    least = asked.kills * (_BEFORE + 2)
    marks = {"min": 0, "p50": len(times) // 2, "p90": len(times) * 9 // 10, "max": len(times) - 1}
    told = ", ".join(f"{name} {times[at] * 1000:.0f} ms" for name, at in marks.items())
    print(f"{len(times)} kills, until the next put was durable: {told}")
    print(f"{stored} messages are there, at least {least} were put")
    return 0 if stored >= least else 1


if __name__ == "__main__":
    sys.exit(main())
