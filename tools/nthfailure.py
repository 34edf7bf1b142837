"""Let every write and sync of every call fail: `python tools/nthfailure.py`.

Knows: which calls and faults there are, how results are printed.
Does not know: how a fault is placed (tests/reliability/nth_cases.py), what must follow.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Runs from a checkout that is not installed, too.
sys.path.insert(0, str(ROOT))

from tests.reliability.killing import memory_folder  # noqa: E402
from tests.reliability.nth_cases import CALLS, FAULTS, cases  # noqa: E402


def main(argv: list[str] | None = None) -> int:
    """Run the loops, print a line for each call; exit code 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="nthfailure.py", description="Make every call fail.")
    parser.add_argument("calls", nargs="*", help=f"of {', '.join(CALLS)}; all if left out")
    parser.add_argument("--mode", choices=("full", "normal"), default="full")
    parser.add_argument("--crowd", action="store_true", help="as if other callers waited")
    options = parser.parse_args(argv)
    if unknown := set(options.calls) - set(CALLS):
        parser.error(f"no such call: {', '.join(sorted(unknown))}")
    logging.getLogger("embedq").setLevel(logging.CRITICAL)
    wanted = [call for call in CALLS if call in (options.calls or CALLS)]
    problems = faults = 0
    started = time.monotonic()
    for call, error in FAULTS:
        with (
            tempfile.TemporaryDirectory() as otherwise,
            memory_folder(Path(otherwise)) as folder,
            cases(folder, call, error) as every,
        ):
            for kind in wanted:
                if options.crowd and kind in {"open", "close"}:
                    continue
                outcome = every.every(kind, durability=options.mode, crowd=options.crowd)
                faults += outcome.faults
                problems += len(outcome.problems)
                print(
                    f"{call:10} {error:7} {kind:12} {outcome.faults:3} faults, "
                    f"{outcome.refused:3} told to the caller"
                )
                for problem in outcome.problems:
                    print(f"  {problem}")
    print(f"{faults} faults, {problems} problems, {time.monotonic() - started:.0f} s")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
