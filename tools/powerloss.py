"""Try disks that a power loss could leave: `python tools/powerloss.py --images 10000`.

Knows: how many images were asked for, which programs are recorded, how processes share the work.
Does not know: how images are made (tests/reliability/images.py), what must be true of them.

`--mode off` records a store that never syncs: there the tool must find losses.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import random
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Runs from a checkout that is not installed, too.
sys.path.insert(0, str(ROOT))

from tests.reliability.images import Report, check  # noqa: E402
from tests.reliability.killing import memory_folder  # noqa: E402
from tests.reliability.recording import Recording, record  # noqa: E402
from tests.reliability.worker import Job  # noqa: E402

#: Images of one recording: then another program, with another seed, is recorded.
_EACH = 1000
_PROBLEMS_SHOWN = 20


def job_of(path: Path, seed: str, mode: str) -> Job:
    """Choose a program by its seed."""
    rng = random.Random(seed)
    return Job(
        path=str(path),
        kind=rng.choice(["script"] + 9 * ["mix"]),
        seed=seed,
        threads=rng.choice((1, 2, 4, 8)),
        steps=rng.choice((100, 200)),
        small=rng.choice((True, True, False)),
        crowd=rng.choice((True, False, False)),
        durability="full" if mode == "off" else mode,  # type: ignore[arg-type]
        planted="sync-off" if mode == "off" else "",
    )


def images_of(recording: Recording, seed: str, number: int, mode: str) -> Report:
    """Check images in a folder of their own. Runs in a process of its own."""
    logging.getLogger("embedq").setLevel(logging.ERROR)
    window = mode == "normal"
    with (
        tempfile.TemporaryDirectory() as otherwise,
        memory_folder(Path(otherwise)) as folder,
    ):
        return check(recording, number, folder, seed=seed, window=window)


def record_one(seed: str, mode: str, folder: Path | None) -> Recording:
    """Record a program that works on a new file."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        return record(job_of(Path(place) / "q.db", seed, mode), Path(place) / "trace")


def main(argv: list[str] | None = None) -> int:
    """Record, make images, print what was wrong; exit code 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="powerloss.py", description="Simulate power losses.")
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--mode", choices=("full", "normal", "off"), default="full")
    parser.add_argument("--seed", default="", help="repeats a run; a new one if left out")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--folder", type=Path, default=None, help="where programs are recorded")
    options = parser.parse_args(argv)
    logging.getLogger("embedq").setLevel(logging.ERROR)
    seed = options.seed or f"{random.randrange(1 << 32):08x}"
    print(f"seed {seed}")
    total = Report()
    started = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        for start in range(0, options.images, _EACH):
            of_one = f"{seed}-{start}"
            recording = record_one(of_one, options.mode, options.folder)
            share = -(-min(_EACH, options.images - start) // options.jobs)
            parts = pool.starmap(
                images_of,
                [
                    (recording, f"{of_one}-{number}", share, options.mode)
                    for number in range(options.jobs)
                ],
            )
            total = sum(parts, total)
    for problem in total.problems[:_PROBLEMS_SHOWN]:
        print(problem)
    print(
        f"{total.images} different images, {total.deep} of them served to the end, "
        f"{total.bad} bad, {total.unreadable} unreadable, {time.monotonic() - started:.0f} s"
    )
    return int(bool(total.bad))


if __name__ == "__main__":
    sys.exit(main())
