"""A fresh process that opens a database, claims and puts, and says what that cost in memory.

Knows: where the system says how much memory a process has.
Does not know: who built the database, what is judged. Run by bench.py; prints JSON.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).resolve().parent.parent
# Runs from a checkout that is not installed, too.
sys.path.insert(0, str(ROOT))

from embedq.broker.host import open_engine  # noqa: E402

_BODY = bytes(200)
_MANY = 100
_PUTS = 20_000
_MIB = 2**20


def memory() -> tuple[float, float]:
    """Return the resident memory of this process now, and at its highest, in MiB."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except FileNotFoundError:
        unit = 1 if sys.platform == "darwin" else 1024
        highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / _MIB
        return highest, highest
    fields = dict(line.split(":", 1) for line in status.splitlines())
    return int(fields["VmRSS"].split()[0]) / 1024, int(fields["VmHWM"].split()[0]) / 1024


def main(path: str, claims: int, ending: str) -> int:
    """Open, claim and ack, put; print what was found."""
    base, _ = memory()
    begun = perf_counter()
    engine = open_engine(path, durability="normal")
    queue = engine.queue("orders")
    group = engine.group(queue)
    leases = engine.claim(group, _MANY)
    serving = perf_counter() - begun
    opened, _ = memory()
    engine.ack(*leases)
    begun = perf_counter()
    for _ in range(claims // _MANY):
        engine.ack(*engine.claim(group, _MANY))
    claiming = perf_counter() - begun
    claimed, _ = memory()
    begun = perf_counter()
    for _ in range(_PUTS // _MANY):
        engine.put_many(queue, [_BODY] * _MANY)
    putting = perf_counter() - begun
    _, peak = memory()
    found = {
        "serving_s": serving,
        "base_mb": base,
        "opened_mb": opened,
        "claimed_mb": claimed,
        "peak_mb": peak,
        "claims_per_s": claims / claiming,
        "puts_per_s": _PUTS / putting,
    }
    print(json.dumps(found), flush=True)
    if ending == "kill":
        os._exit(0)  # as after kill -9: nothing is closed, counts are not exact
    engine.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
