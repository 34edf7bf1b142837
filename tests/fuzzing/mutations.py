"""Damage to what clients send: flips, cuts, splices, repeats, lengths and numbers at their limits.

Knows: bytes, and that protocols write numbers in binary or in digits.
Does not know: any protocol. The same seed gives the same inputs.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

#: What lengths, counts and windows must not be believed at.
NUMBERS: Final = (
    *(0, 1, 2, 7, 8, 9, 127, 128, 252, 253, 254, 255, 256, 257),
    *(300, 399, 400, 401, 4_096, 32_767, 65_534, 65_535, 65_536),
    *(2**24 - 1, 2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1),
)
_DIGITS: Final = re.compile(rb"\d+")
_MOST_BYTES: Final = 6_000

Damage = Callable[[random.Random, bytearray, Sequence[bytes]], None]


def flip_bits(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    """One to three bits somewhere."""
    for _n in range(rng.randint(1, 3)):
        if data:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def set_byte(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    """A byte that begins, ends or separates something, or any."""
    at = rng.randrange(len(data) + 1)
    value = rng.choice(b"\x00\x01\x08\n\r |:;HPMGU\x55\x99\x7f\x80\xff") if at % 2 else None
    data[at : at + 1] = bytes([rng.randrange(256) if value is None else value])


def cut_out(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    """A piece is missing."""
    at = rng.randrange(len(data) + 1)
    del data[at : at + rng.choice((1, 1, 2, 4, 8, 40))]


def cut_off(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    """The end is missing."""
    del data[rng.randrange(len(data) + 1) :]


def insert(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    """Something that nobody has asked for."""
    at = rng.randrange(len(data) + 1)
    data[at:at] = rng.randbytes(rng.choice((1, 2, 8, 33)))


def repeat(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    """A piece comes several times."""
    at = rng.randrange(len(data) + 1)
    piece = bytes(data[at : at + rng.choice((1, 8, 40, 200))])
    data[at:at] = piece * rng.choice((1, 2, 9))


def fill(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    """More of one byte than any limit allows."""
    at = rng.randrange(len(data) + 1)
    data[at:at] = rng.choice((b"\0", b"0", b"9", b"x", b"\n", b"\xff")) * rng.choice(
        (64, 500, 2_500)
    )


def splice(rng: random.Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    """The beginning of one, and the end of another."""
    other = rng.choice(seeds)
    data[rng.randrange(len(data) + 1) :] = other[rng.randrange(len(other) + 1) :]


def append(rng: random.Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    """Another one behind it."""
    data += rng.choice(seeds)


def binary_number(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    """A number at a limit in one, two, four or eight bytes, of either order."""
    size = rng.choice((1, 2, 4, 4, 8))
    number = rng.choice(NUMBERS) % (1 << 8 * size)
    at = rng.randrange(max(1, len(data) - size + 1))
    data[at : at + size] = number.to_bytes(size, rng.choice(("big", "little")))


def digits(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    """A number at a limit in digits, as wide as the one that was there, or not."""
    found = list(_DIGITS.finditer(data))
    if not found:
        return
    span = rng.choice(found)
    width = len(span[0]) if rng.random() < 0.8 else 0
    data[span.start() : span.end()] = b"%0*d" % (width, rng.choice(NUMBERS))


DAMAGE: Final[tuple[Damage, ...]] = (
    *(flip_bits, set_byte, cut_out, cut_off, insert, repeat, fill),
    *(splice, append, append, binary_number, binary_number, digits, digits),
)


def mutated(seeds: Sequence[bytes], seed: int, count: int) -> Iterator[bytes]:
    """Yield `count` inputs: one to four seeds with damage. One of eight has none."""
    rng = random.Random(seed)
    for _ in range(count):
        data = bytearray().join(rng.choices(seeds, k=rng.choice((1, 1, 2, 4))))
        if rng.randrange(8):
            for _ in range(rng.choice((1, 1, 2, 3, 5))):
                rng.choice(DAMAGE)(rng, data, seeds)
        yield bytes(data[:_MOST_BYTES])


def pieces(rng: random.Random, data: bytes) -> list[bytes]:
    """Cut an input as a network may: usually whole, sometimes in a few places."""
    if len(data) < 2 or rng.random() < 0.6:
        return [data]
    cuts = sorted(rng.randrange(1, len(data)) for _ in range(rng.randint(1, 3)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
