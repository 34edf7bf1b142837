"""Kill hosts with -9 and check what they leave: `python tools/killloop.py --cycles 1000`.

Knows: how many deaths were asked for, in which modes, how chains share the work and are printed.
Does not know: how a host is killed (tests/reliability/killing.py), what must be true afterwards.

The same deaths as in the tests, only more: a problem is printed with the seed that repeats it.
`--mixed` kills hosts with consumers of every kind (tests/reliability/mixed_host.py) instead of
bare engines; `--seeds 1000` of them, each a file of its own that four hosts die with. `--workers`
kills the worker processes of applications (tests/reliability/chaos.py), `--numbers` messages each.
`--chaos` kills a worker every 200 ms and the host every 3 s, of three applications with pools
(tests/reliability/chaos_hosts.py): `--chaos --seeds 5 --jobs 1`. Six workers live for 1.2 s on
average then, so that little gets done where starting one takes as long: after `--seconds` nobody
dies any more, the rest is done in peace, and everything is judged. `--slower 10` gives everybody
ten times as long.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# Runs from a checkout that is not installed, too.
sys.path.insert(0, str(ROOT))

from tests.reliability.chaos import chaos  # noqa: E402
from tests.reliability.chaos_hosts import Pace, chaos_of_hosts  # noqa: E402
from tests.reliability.killing import Report, chain, worker  # noqa: E402
from tests.reliability.mixed_host import journal_of  # noqa: E402
from tests.reliability.mixed_kills import mixed_chain  # noqa: E402

#: Deaths of one file. Afterwards everything in it is delivered, and the next file begins.
_EACH = 20
_EACH_MIXED = 4


def run(seed: str, deaths: int, durability: str, planted: str, folder: Path) -> Report:
    """Let one file live through deaths."""
    with worker() as program, tempfile.TemporaryDirectory(dir=folder) as place:
        path = Path(place) / "q.db"
        return chain(
            *(program, path), deaths=deaths, seed=seed, planted=planted, durability=durability
        )


def run_mixed(seed: str, durability: str, planted: str, folder: Path, keep: Path | None) -> Report:
    """Let one file live through the deaths of hosts with consumers."""
    with worker() as program, tempfile.TemporaryDirectory(dir=folder) as place:
        path = Path(place) / "q.db"
        outcome = mixed_chain(
            *(program, path),
            deaths=_EACH_MIXED,
            seed=seed,
            planted=planted,
            durability=durability,
        )
        problems = [*outcome.trouble, *map(str, outcome.broken)]
        if problems and keep is not None:
            keep.mkdir(exist_ok=True)
            shutil.copy(journal_of(path), keep / f"{seed}.journal")
            shutil.copy(path, keep / f"{seed}.db")
    problems = [f"{problem} [seed {seed}]" for problem in problems]
    return Report(outcome.deaths, outcome.confirmed, outcome.ended, problems)


def run_workers(seed: str, numbers: int, planted: str, folder: Path) -> Report:
    """Let the workers of one application be killed until all numbers have been handled."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        found = chaos(Path(place), numbers, max(5, numbers // 50), seed, planted)
    problems = [f"{problem} [seed {seed}]" for problem in found.problems]
    return Report(found.kills, found.confirmed, found.confirmed, problems)


def run_chaos(
    seed: str, numbers: int, planted: str, folder: Path, slower: float, seconds: float
) -> Report:
    """Let workers and hosts be killed until all numbers have been handled, or for `seconds`."""
    started = time.monotonic()
    pace = Pace(Pace.worker_s * slower, Pace.host_s * slower, most_s=seconds)
    with tempfile.TemporaryDirectory(dir=folder) as place:
        found = chaos_of_hosts(Path(place), numbers, seed, planted, pace=pace)
    print(
        f"{seed}: {found.kills} workers and {found.host_kills} hosts died, "
        f"{found.confirmed} puts confirmed, {found.unknown} without an answer, "
        f"{found.done_under_fire} done before the last death, "
        f"{found.twice} handled again as their worker died, "
        f"{len(found.problems)} problems, {time.monotonic() - started:.0f} s",
        flush=True,
    )
    problems = [f"{problem} [seed {seed}]" for problem in found.problems]
    deaths = found.kills + found.host_kills
    return Report(deaths, found.confirmed, found.confirmed, problems)


def works(options: argparse.Namespace, seed: str) -> Iterator[tuple[Any, ...]]:
    """Return what is to be run, each a function with its arguments."""
    modes = ("full", "normal") if options.mode == "both" else (options.mode,)
    planted, folder = options.planted, options.folder
    if options.workers or options.chaos:
        for number in range(options.seeds):
            rest = (f"{seed}-{number}", options.numbers, planted, folder)
            if options.chaos:
                yield run_chaos, *rest, options.slower, options.seconds
            else:
                yield run_workers, *rest
        return
    for mode in modes:
        if options.mixed:
            for number in range(options.seeds):
                yield run_mixed, f"{seed}-{mode}-{number}", mode, planted, folder, options.keep
        else:
            for number in range(0, options.cycles, _EACH):
                deaths = min(_EACH, options.cycles - number)
                yield run, f"{seed}-{mode}-{number}", deaths, mode, planted, folder


@contextmanager
def quick_starts() -> Iterator[None]:
    """Let processes find compiled modules, also where Python is told to write none."""
    kept = dict(os.environ)
    with tempfile.TemporaryDirectory() as compiled:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = compiled
        modules = "embedq.workers.child, embedq.ipc.server, embedq.ipc.line, embedq.app.broker"
        subprocess.run([sys.executable, "-c", f"import {modules}"], cwd=ROOT, check=True)
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(kept)


def main(argv: list[str] | None = None) -> int:
    """Run the chains, print a line for each; exit code 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="killloop.py", description="Kill hosts and check.")
    parser.add_argument("--cycles", type=int, default=200, help="deaths in each mode")
    parser.add_argument("--mode", choices=("full", "normal", "both"), default="both")
    parser.add_argument("--seed", default="", help="repeats a run; a new one if left out")
    parser.add_argument("--jobs", type=int, default=2, help="files at the same time")
    parser.add_argument("--folder", type=Path, default=None, help="on the disk to try")
    parser.add_argument("--mixed", action="store_true", help="hosts with consumers of every kind")
    parser.add_argument("--workers", action="store_true", help="worker processes instead of hosts")
    parser.add_argument("--chaos", action="store_true", help="workers and hosts, by the clock")
    parser.add_argument("--slower", type=float, default=1.0, help="--chaos: so many times")
    parser.add_argument("--seconds", type=float, default=300.0, help="--chaos: of deaths, at most")
    parser.add_argument("--numbers", type=int, default=10_000, help="messages for those workers")
    parser.add_argument("--seeds", type=int, default=50, help="files, where they are not --cycles")
    parser.add_argument("--keep", type=Path, default=None, help="where journals of problems go")
    parser.add_argument(
        "--planted", default="", help='a fault to be seen: "early", or a mixed one'
    )
    options = parser.parse_args(argv)
    logging.getLogger("embedq").setLevel(logging.ERROR)
    seed = options.seed or f"{random.randrange(1 << 32):08x}"
    print(f"seed {seed}")
    total = Report()
    started = time.monotonic()
    with quick_starts(), ThreadPoolExecutor(options.jobs) as pool:
        for future in [pool.submit(*work) for work in works(options, seed)]:
            report = future.result()
            total += report
            for problem in report.problems:
                print(problem, flush=True)
    print(
        f"{total.deaths} deaths, {total.confirmed} puts confirmed, {total.settled} settlements, "
        f"{len(total.problems)} problems, {time.monotonic() - started:.0f} s"
    )
    return int(bool(total.problems))


if __name__ == "__main__":
    sys.exit(main())
