"""Feed damaged inputs to the protocols of the listeners: `python tools/fuzz_transports.py`.

Knows: how many, for how long, how figures are printed; that planted faults are found.
Does not know: what is damaged and how it is judged (tests/fuzzing).
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Runs from a checkout that is not installed, too.
sys.path.insert(0, str(ROOT))

from tests.fuzzing.campaign import Report, campaign  # noqa: E402
from tests.fuzzing.dialects import DIALECTS  # noqa: E402
from tests.fuzzing.planted import FAULTS, missing  # noqa: E402


def main(argv: list[str] | None = None) -> int:
    """Run the campaigns, print a row for each; exit code 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="fuzz_transports.py", description="Fuzz the protocols.")
    parser.add_argument("protocols", nargs="*", help=f"of {', '.join(DIALECTS)}; all if left out")
    parser.add_argument("--inputs", type=int, default=100_000, help="over all protocols together")
    parser.add_argument("--seed", type=int, default=1, help="the same seed, the same inputs")
    parser.add_argument("--minutes", type=float, default=60.0, help="at most")
    parser.add_argument("--self-test", action="store_true", help="plant faults, and find them")
    options = parser.parse_args(argv)
    if unknown := set(options.protocols) - set(DIALECTS):
        parser.error(f"no such protocol: {', '.join(sorted(unknown))}")
    logging.getLogger("embedq").setLevel(logging.CRITICAL)
    logging.getLogger("embedq.net").setLevel(logging.ERROR)  # it is listened to
    if options.self_test:
        return self_test()
    protocols = options.protocols or list(DIALECTS)
    until = time.monotonic() + options.minutes * 60
    print("| protocol | inputs | through sessions | CPU s | MiB grown | ends and faults | found |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    problems = 0
    for protocol in protocols:
        share = options.inputs // len(protocols)
        left = (until - time.monotonic()) / (len(protocols) - protocols.index(protocol))
        report = campaign(protocol, share, options.seed, until=time.monotonic() + left)
        problems += len(report.problems)
        print(row(report), flush=True)
        for problem in report.problems:
            print(f"    {problem}")
    return int(bool(problems))


def row(report: Report) -> str:
    """Write one campaign as a row of a table."""
    outcomes = ", ".join(f"{name} {count:,}" for name, count in report.outcomes.most_common())
    cells = [
        report.protocol,
        f"{report.inputs:,}",
        f"{report.sessions:,}",
        f"{report.seconds:.1f}",
        f"{report.grown_mib:.1f}",
        outcomes,
        f"{len(report.problems)}",
    ]
    return f"| {' | '.join(cells)} |"


def self_test() -> int:
    """Plant each fault; exit code 1 if one is not found."""
    missed = 0
    for name in FAULTS:
        instead = missing(name)
        missed += bool(instead)
        print(f"{name}: {'MISSED' if instead else 'found'}", flush=True)
        # A fault that no longer fits what it replaces raises, and hides what it was planted for.
        for problem in instead:
            print(f"    {problem}", file=sys.stderr)
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
