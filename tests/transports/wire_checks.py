"""What every wire is put through: splits, mutations, time; each check is proved by a planted bug.

Knows: a wire has feed(data) and end(), both returning lists of events.
Does not know: any protocol.
"""

import gc
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol


class Wire(Protocol):
    def feed(self, data: bytes) -> list[Any]: ...
    def end(self) -> list[Any]: ...


Make = Callable[[], Wire]


@contextmanager
def no_collector() -> Iterator[None]:
    """Let nothing be freed that knows itself."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def whole(make: Make, data: bytes) -> list[Any]:
    """Return the events of `data` in one piece, then the end."""
    wire = make()
    return [*wire.feed(data), *wire.end()]


def split(make: Make, data: bytes, cuts: Iterable[int]) -> list[Any]:
    """Return the events of `data` cut at these places, then the end."""
    wire = make()
    events: list[Any] = []
    at = 0
    for cut in [*sorted(cuts), len(data)]:
        events += wire.feed(data[at:cut])
        at = cut
    return events + wire.end()


def mutated(seeds: Sequence[bytes], count: int, seed: int) -> Iterator[bytes]:
    """Yield `count` inputs made of `seeds` by small damage, joins and cuts."""
    rng = random.Random(seed)
    numbers = (0, 1, 2, 4, 8, 9, 0x30, 0x3A, 0x40, 0x4D, 0x7C, 0x7F, 0x80, 0xFC, 0xFD, 0xFE, 0xFF)
    for _ in range(count):
        data = bytearray(rng.choice(seeds))
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(data) + 1)
            match rng.randrange(6):
                case 0:
                    data[at : at + 1] = bytes((rng.choice(numbers),))
                case 1:
                    data[at : at + 1] = bytes((rng.randrange(256),))
                case 2:
                    del data[at : at + rng.randint(1, 8)]
                case 3:
                    data[at:at] = rng.randbytes(rng.randint(1, 9))
                case 4:
                    data += rng.choice(seeds)
                case _:
                    data[at : at + 8] = data[at : at + 8][::-1]
        yield bytes(data)


def cuts_of(data: bytes, rng: random.Random) -> list[int]:
    """Return a few places to cut `data` at."""
    return [rng.randrange(len(data) + 1) for _ in range(rng.randint(1, 5))]


def seconds_per_byte(make: Make, data: bytes, times: int = 3) -> float:
    """Return the least of some processor times for one byte at a time, per byte."""
    best = float("inf")
    for _ in range(times):
        wire = make()
        pieces = [data[at : at + 1] for at in range(len(data))]
        begin = time.process_time()
        for piece in pieces:
            wire.feed(piece)
        best = min(best, time.process_time() - begin)
    return best / len(data)
