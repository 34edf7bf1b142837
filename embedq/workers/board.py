"""What a worker process shows of itself at any time: memory that it shares with its application.

Knows: which numbers there are. They can be read whatever the worker does, and after its death.
Does not know: messages, who does what about the numbers.
"""

from __future__ import annotations

from collections.abc import MutableSequence
from enum import IntEnum
from typing import Final

#: How many numbers there are.
CELLS: Final = 5
_UNTIL, _BUSY, _FINISHED, _RELEASED, _ORDER = range(CELLS)


class Order(IntEnum):
    """What a worker is to do when it gets SIGUSR2."""

    EXPIRE = 0
    INTERRUPT = 1


class Board:
    """The numbers of one worker. Each has one writer; reading and writing them never waits."""

    def __init__(self, cells: MutableSequence[float]) -> None:
        self.cells = cells

    @property
    def until(self) -> float:
        """When the handler that runs must end (monotonic seconds); 0.0: at no certain time."""
        return self.cells[_UNTIL]

    @until.setter
    def until(self, deadline: float) -> None:
        self.cells[_UNTIL] = deadline

    @property
    def busy(self) -> int:
        """How many messages a handler has now."""
        return int(self.cells[_BUSY])

    @busy.setter
    def busy(self, count: int) -> None:
        self.cells[_BUSY] = count

    @property
    def finished(self) -> int:
        """How many messages have come to an end here."""
        return int(self.cells[_FINISHED])

    @finished.setter
    def finished(self, count: int) -> None:
        self.cells[_FINISHED] = count

    @property
    def released(self) -> int:
        """How many were given back."""
        return int(self.cells[_RELEASED])

    @released.setter
    def released(self, count: int) -> None:
        self.cells[_RELEASED] = count

    @property
    def order(self) -> Order:
        """What SIGUSR2 means. Written by the application."""
        return Order(int(self.cells[_ORDER]))

    @order.setter
    def order(self, order: Order) -> None:
        self.cells[_ORDER] = order
