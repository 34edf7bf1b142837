"""A host with listeners, as a process of its own; its threads can put and get, too.

Knows: the public interface, counters of its own desk.
Does not know: clients, rounds, figures. Started by bench_listener_sides.py.

    bench_listener_host.py DATABASE QUEUE PLANTED_S

Each line of its input is a word and its arguments as JSON, each answer a line of JSON.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time, thread_time
from typing import Any, Final, cast

ROOT = Path(__file__).resolve().parent.parent
# Runs from a checkout that is not installed, too.
sys.path[:0] = [str(ROOT), str(ROOT / "tools"), str(ROOT / "transports")]

from bench_broker_cells import wait_until  # noqa: E402
from bench_broker_sides import Host  # noqa: E402
from bench_cells import Stopwatch, Team  # noqa: E402
from bench_listener_holder import more_files  # noqa: E402
from bench_listener_wires import TEXT  # noqa: E402
from embedq.app.listeners import BrokerListener  # noqa: E402
from embedq.net import NetLimits  # noqa: E402
from embedq.net.dispatch import Dispatcher  # noqa: E402
from embedq.net.puts import Puts  # noqa: E402
from embedq.workers.memory import resident  # noqa: E402

#: All clients of a benchmark come from one address.
_LIMITS: Final = NetLimits(connections_per_peer=4_096)


class Serving(Host):
    """A broker with listeners."""

    def __init__(self, path: Path, queue: str) -> None:
        super().__init__(path.parent, name=queue)
        self.broker.start()
        self._teams: dict[tuple[str, int], Team] = {}
        self._listeners: list[BrokerListener] = []

    def listen(self, url: str) -> object:
        """Listen; return the address."""
        listener = self.broker.listen(url, limits=_LIMITS)
        self._listeners.append(listener)
        return listener.address

    def connected(self) -> object:
        """Return how many clients there are now."""
        return sum(listener.stats.connections for listener in self._listeners)

    def put_text(self) -> object:
        """Put what clients put, too."""
        return self.queue.put(TEXT)

    def work(self, verb: str, threads: int, seconds: float) -> object:
        """Let threads of this process do something for a time; return how often, and how long."""
        team = self._teams.get((verb, threads))
        if team is None:
            team = self._teams[verb, threads] = Team(getattr(self, verb), threads)
        watch = Stopwatch()
        team.run(seconds, watch)
        return [len(watch.taken), watch.seconds]

    def fill_up(self, messages: int) -> object:
        """Put messages until so many wait."""
        missing = messages - self._state.stored
        for _ in range(-(-missing // 1_000)):
            self.desk.put_many(self._state, [TEXT] * 1_000)
        return self._state.stored

    def look(self) -> object:
        """Once nothing is under way: stored, put and acked messages, commits, seconds of CPU."""
        wait_until(lambda: not self.group.leases, "every message is settled")
        for listener in self._listeners:
            if listener.stats.faults:
                raise RuntimeError(f"clients made faults: {dict(listener.stats.faults)}")
        state, group = self._state, self.group
        return [state.stored, state.puts, group.acked, self.commits, process_time()]

    def empty(self) -> object:
        """Empty the log; say how long it took."""
        begun = perf_counter()
        self.checkpoint()
        return perf_counter() - begun

    def memory(self) -> object:
        """Return the resident memory in MiB."""
        gc.collect()
        return resident(os.getpid())

    def close(self) -> None:
        """End the threads, stop."""
        for team in self._teams.values():
            team.close()
        super().close()


def plant(seconds: float) -> None:
    """Let listeners compute in vain for each put and each settlement: only tests want that."""

    def slowed(owner: Any, name: str) -> None:  # noqa: ANN401  # any class
        real: Callable[..., object] = getattr(owner, name)

        def slow(*arguments: object, **named: object) -> object:
            until = thread_time() + seconds
            while thread_time() < until:
                pass
            return real(*arguments, **named)

        setattr(owner, name, slow)

    slowed(Puts, "add")
    slowed(Dispatcher, "settle")


def main(path: str, queue: str, planted_s: str) -> int:
    """Do what the lines say, until there are no more."""
    if float(planted_s):
        plant(float(planted_s))
    more_files()
    serving = Serving(Path(path), queue)
    words: dict[str, Callable[..., object]] = {
        name: cast("Callable[..., object]", getattr(serving, name))
        for name in ("listen", "connected", "work", "fill_up", "look", "empty", "memory")
    }
    try:
        print("null", flush=True)
        for line in sys.stdin:
            word, *arguments = line.split()
            print(json.dumps(words[word](*map(json.loads, arguments))), flush=True)
    finally:
        serving.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
