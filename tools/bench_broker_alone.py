"""What is measured in processes of its own: importing embedq, and doing nothing with it.

Knows: how to start a fresh process and read what it prints.
Does not know: rounds and ratios (bench_run.py).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter

from bench_figures import Value, number

ROOT = Path(__file__).resolve().parent.parent
IDLE = Path(__file__).resolve().parent / "bench_broker_idle.py"
IMPORT_MOST_MS = 150
IDLE_MOST_PERCENT = 0.3
#: What importing must not load: it would cost more than everything else together.
HEAVY = frozenset({"zmq", "sqlite_utils", "asyncio", "socketserver", "http", "click", "watchdog"})
IMPORT_TITLE = "`import embedq`, median of fresh processes"
_ERROR_CHARS = 2_000
_PLAIN = "pass"
_IMPORT = """
import sys, time
begun, cpu = time.perf_counter(), time.process_time()
import embedq
print(time.perf_counter() - begun, time.process_time() - cpu)
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


def run_python(*arguments: str, timeout_s: float = 120) -> str:
    """Run a fresh Python that finds this checkout; return what it prints.

    Raises RuntimeError with the end of its error output if it fails.
    """
    places = (str(ROOT), os.environ.get("PYTHONPATH", ""))
    variables = dict(os.environ) | {"PYTHONPATH": os.pathsep.join(filter(None, places))}
    done = subprocess.run(
        [sys.executable, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
        env=variables,
    )
    if done.returncode:
        raise RuntimeError(f"a fresh Python failed: {done.stderr[-_ERROR_CHARS:]}")
    return done.stdout


def importing(times: int) -> list[Value]:
    """Measure `import embedq` so many times, in turns with a Python that does nothing."""
    run_python("-c", _IMPORT)  # compiles what is not compiled yet
    inside, cpu, plain = [], [], []
    loaded: set[str] = set()
    for _ in range(times):
        begun = perf_counter()
        run_python("-c", _PLAIN)
        plain.append((perf_counter() - begun) * 1000)
        took, names = run_python("-c", _IMPORT).splitlines()
        seconds, cpu_seconds = map(float, took.split())
        inside.append(seconds * 1000)
        cpu.append(cpu_seconds * 1000)
        loaded.update(names.split())
    heavy = sorted(loaded & HEAVY)
    return [
        Value(
            "import",
            IMPORT_TITLE,
            f"{number(median(inside))} ms, of CPU {number(median(cpu))} ms (a process that "
            f"imports nothing: {number(median(plain))} ms)",
            f"≤ {IMPORT_MOST_MS} ms",
            median(inside) <= IMPORT_MOST_MS,
        ),
        Value(
            "import",
            "… of zmq, sqlite_utils, asyncio and servers it loads",
            ", ".join(heavy) or "nothing",
            "nothing",
            not heavy,
        ),
    ]


def idling(folder: Path, seconds: float) -> Value:
    """Measure the CPU of a process with 5 queues and 8 consumers that has nothing to do."""
    printed = run_python(str(IDLE), str(folder / "queue.db"), str(seconds), timeout_s=seconds + 60)
    percent = float(printed)
    return Value(
        "idle",
        f"CPU of 5 queues and 8 idle consumers, {seconds:g} s",
        f"{percent:.2f} %",
        f"< {IDLE_MOST_PERCENT:g} %",
        percent < IDLE_MOST_PERCENT,
    )
