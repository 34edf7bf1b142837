"""Kill hosts with -9 and check what they leave: `python tools/killloop.py --cycles 1000`.

Knows: how many deaths were asked for, in which modes, how chains share the work and are printed.
Does not know: how a host is killed (tests/reliability/killing.py), what must be true afterwards.

The same deaths as in the tests, only more: a problem is printed with the seed that repeats it.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Runs from a checkout that is not installed, too.
sys.path.insert(0, str(ROOT))

from tests.reliability.killing import Report, chain, worker  # noqa: E402

#: Deaths of one file. Afterwards everything in it is delivered, and the next file begins.
_EACH = 20


def run(seed: str, deaths: int, durability: str, planted: str, folder: Path) -> Report:
    """Let one file live through deaths."""
    with worker() as program, tempfile.TemporaryDirectory(dir=folder) as place:
        path = Path(place) / "q.db"
        return chain(
            *(program, path), deaths=deaths, seed=seed, planted=planted, durability=durability
        )


def main(argv: list[str] | None = None) -> int:
    """Run the chains, print a line for each; exit code 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="killloop.py", description="Kill hosts and check.")
    parser.add_argument("--cycles", type=int, default=200, help="deaths in each mode")
    parser.add_argument("--mode", choices=("full", "normal", "both"), default="both")
    parser.add_argument("--seed", default="", help="repeats a run; a new one if left out")
    parser.add_argument("--jobs", type=int, default=2, help="files at the same time")
    parser.add_argument("--folder", type=Path, default=None, help="on the disk to try")
    parser.add_argument("--planted", choices=("", "early"), default="", help="a fault to be seen")
    options = parser.parse_args(argv)
    logging.getLogger("embedq").setLevel(logging.ERROR)
    seed = options.seed or f"{random.randrange(1 << 32):08x}"
    print(f"seed {seed}")
    total = Report()
    modes = ("full", "normal") if options.mode == "both" else (options.mode,)
    started = time.monotonic()
    with ThreadPoolExecutor(options.jobs) as pool:
        futures = [
            pool.submit(
                *(run, f"{seed}-{mode}-{number}", min(_EACH, options.cycles - number), mode),
                *(options.planted, options.folder),
            )
            for mode in modes
            for number in range(0, options.cycles, _EACH)
        ]
        for future in futures:
            report = future.result()
            total += report
            for problem in report.problems:
                print(problem)
    print(
        f"{total.deaths} deaths, {total.confirmed} puts confirmed, {total.settled} settlements, "
        f"{len(total.problems)} problems, {time.monotonic() - started:.0f} s"
    )
    return int(bool(total.problems))


if __name__ == "__main__":
    sys.exit(main())
