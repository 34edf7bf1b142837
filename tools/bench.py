"""Measure embedq: `python tools/bench.py store`, broker, processes, listeners, spark, zbus.

Knows: the command line, where tables and figures go.
Does not know: what is measured (bench_store.py, bench_broker.py, bench_processes.py,
bench_listeners.py, bench_spark.py, bench_zbus.py), how rounds work (bench_run.py).

How to read the tables, and the last full runs, are in docs/performance.md,
docs/performance-broker.md, docs/performance-processes.md, docs/performance-listeners.md,
docs/performance-spark.md and docs/performance-zbus.md.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Runs from a checkout that is not installed, too.
sys.path.insert(0, str(ROOT))

from bench_broker import BROKER  # noqa: E402
from bench_broker_peers import PeersMissing  # noqa: E402
from bench_listeners import LISTENERS  # noqa: E402
from bench_processes import PROCESSES  # noqa: E402
from bench_run import Options  # noqa: E402
from bench_spark import SPARK  # noqa: E402
from bench_store import STORE  # noqa: E402
from bench_zbus import BENCH as ZBUS  # noqa: E402

BENCHMARKS = {
    "store": STORE,
    "broker": BROKER,
    "processes": PROCESSES,
    "listeners": LISTENERS,
    "spark": SPARK,
    "zbus": ZBUS,
}
MARKS = ("<!-- bench: begin -->", "<!-- bench: end -->")


def arguments(argv: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    words = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    for name, benchmark in BENCHMARKS.items():
        word = words.add_parser(name, help=benchmark.does, description=benchmark.does)
        add = word.add_argument
        add("--rounds", type=int, help="rounds (default: 5 or 7)")
        add("--quick", action="store_true", help="see that it works, in a minute")
        add("--only", action="append", choices=benchmark.keys, help="one row; repeatable")
        add("--json", type=Path, metavar="FILE", help="save every figure")
        add("--into", type=Path, metavar="PAGE", help="write the tables into a page")
        add("--dir", type=Path, default=ROOT, help="on which disk (default: here)")
        add("--self-test", action="store_true", help="see that a slowdown is seen")
    return parser.parse_args(argv)


def insert(page: str, tables: str) -> str:
    """Put tables between the marks of a page. Raises ValueError if it has none."""
    before, begin, rest = page.partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    if not begin or not end:
        raise ValueError(f"the page lacks {MARKS[0]} or {MARKS[1]}")
    return f"{before}{begin}\n\n{tables}\n{end}{after}"


def say(text: str) -> None:
    """Show progress, apart from the tables."""
    print(text, file=sys.stderr, flush=True)


def main(argv: list[str]) -> int:
    """Measure and print; the exit code says only whether it could be measured."""
    asked = arguments(argv)
    benchmark = BENCHMARKS[asked.what]
    if asked.self_test:
        found = benchmark.self_test(asked.dir)
        for one in found:
            verdict = "seen" if one.seen else "NOT SEEN"
            print(f"{one.title}: {one.plain} as it is, {one.slowed} slowed down: {verdict}")
        return 0 if all(one.seen for one in found) else 1
    options = Options(asked.only or benchmark.keys, asked.dir, asked.quick, asked.rounds)
    try:
        run = benchmark.measure(options, say)
    except PeersMissing as error:
        say(f"bench: {error}")
        return 2
    print(run.report(), end="")
    if asked.json:
        asked.json.write_text(run.as_json(), encoding="utf-8")
    if asked.into:
        page = asked.into.read_text(encoding="utf-8")
        asked.into.write_text(insert(page, run.report()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    # So that the databases go away when the run is ended from outside.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main(sys.argv[1:]))
