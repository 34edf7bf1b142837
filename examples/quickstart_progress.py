"""What quickstart.py shows while it runs, and the crash that --crash asks for."""

import os
import signal
import sys
import time
from time import perf_counter
from typing import Self

from quickstart_results import Results

from embedq import Queue


class Progress:
    """A bar on a terminal, elsewhere a line for each quarter of the way."""

    def __init__(self, results: Results, queue: Queue[str], total: int, *, crash: bool) -> None:
        """Begin where an earlier run stopped. With `crash` half of what is left will be done."""
        self._results, self._queue, self._total = results, queue, total
        self._before = len(results.rows())
        self._quarter = 4 * self._before // total
        self._crash_at = (self._before + total) / 2 if crash else total + 1
        self._terminal = sys.stdout.isatty()
        self._began = perf_counter()

    def show(self) -> None:
        """Draw what is done, and crash if it is time for that."""
        counted = len(self._results.rows())
        share = min((counted + self._queue.stats().dead) / self._total, 1)
        if self._terminal:
            bar = "#" * round(40 * share)
            print(f"\r[{bar:.<40}] {share:4.0%} of {self._total:,} files", end="", flush=True)
        while not self._terminal and self._quarter < int(4 * share):
            self._quarter += 1
            print(f"{self._quarter / 4:4.0%} of {self._total:,} files", flush=True)
        if counted >= self._crash_at:
            self._say("kill -9 myself; start me again, without --crash")
            os.kill(os.getpid(), signal.SIGKILL)

    @staticmethod
    def pause(seconds: float) -> None:
        """Wait until it is worth looking again."""
        time.sleep(seconds)

    def __enter__(self) -> Self:
        """Show where it begins."""
        self.show()
        return self

    def __exit__(self, *_: object) -> None:
        """Say how fast it was."""
        self.show()
        done, seconds = len(self._results.rows()) - self._before, perf_counter() - self._began
        self._say(f"{done:,} files counted in {seconds:.1f} s: {done / seconds:,.0f} per second")

    def _say(self, text: str) -> None:
        print(f"\n{text}" if self._terminal else text, flush=True)
