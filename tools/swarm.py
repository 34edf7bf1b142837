"""Let clients misbehave at a real host and measure the others: `python tools/swarm.py`.

Knows: how long, how many, how figures are printed.
Does not know: how clients misbehave and what must follow (tests/net/swarm.py, offenders.py).
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Runs from a checkout that is not installed, too.
sys.path.insert(0, str(ROOT))

from tests.net.swarm import Healthy, besieged, healthy, resident_mib, sockets, swarm  # noqa: E402

NAMES = ("SSPQ", "PHPMQ", "MMQP", "TMQ")


def main(argv: list[str] | None = None) -> int:
    """Measure healthy clients alone, then among offenders; exit code 1 if one of them was hurt."""
    parser = argparse.ArgumentParser(prog="swarm.py", description="Offenders at a real host.")
    parser.add_argument("--count", type=int, default=20, help="of each kind and protocol")
    parser.add_argument("--rounds", type=int, default=5, help="swarms, one after the other")
    parser.add_argument("--alone", type=float, default=10.0, help="seconds without offenders")
    parser.add_argument("--nice", type=int, default=0, help="of the offenders, 0 to 19")
    parser.add_argument("--pause", type=float, default=0.02, help="seconds between two turns")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder, besieged(Path(folder)) as (host, broker):
        base = sockets(host)
        before_it = ("nice", "-n", str(options.nice)) if options.nice else ()
        with healthy(host.addresses, options.pause) as alone:
            time.sleep(options.alone)
        with healthy(host.addresses, options.pause) as among:
            for number in range(options.rounds):
                found = swarm(host, broker, options.count, before_it=before_it)
                print(
                    f"swarm {number + 1}: {sum(found.closed.values())} offenders ended, "
                    f"{found.cut} cut, {found.refused} refused, {found.faulty} at fault; "
                    f"leased {found.leased}, lost {found.lost}, {resident_mib(host):.0f} MiB; "
                    f"CPU {found.host_cpu_s:.1f} s of the host, "
                    f"{found.offenders_cpu_s:.1f} s of the offenders",
                    flush=True,
                )
        time.sleep(1)
        print(f"sockets before {base}, after {sockets(host)}; load {os.getloadavg()[0]:.1f}\n")
    print("| healthy client | turns | p50 ms | p99 ms | max ms |")
    print("| --- | --- | --- | --- | --- |")
    for name, before, meanwhile in zip(NAMES, alone, among, strict=True):
        print(row(f"{name}, alone", before.turns_s))
        print(row(f"{name}, among offenders", meanwhile.turns_s))
    hurt: list[Healthy] = [each for each in (*alone, *among) if each.broken]
    for each in hurt:
        print(f"HURT: {each.broken}")
    return int(bool(hurt))


def row(name: str, turns_s: Sequence[float]) -> str:
    """Write the times of one client as a row of a table."""
    ordered = sorted(1000 * each for each in turns_s)
    marks = (len(ordered) // 2, 99 * len(ordered) // 100, -1)
    cells = [f"{ordered[at]:.1f}" for at in marks] if ordered else ["–"] * 3
    return f"| {name} | {len(ordered):,} | {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
