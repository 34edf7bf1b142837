"""What may surround the calls of a consumer's handler: the port by which Spark is added.

Knows: what a harness is asked, and the name of the module that has the one for Spark.
Does not know: Spark. That module is above this room: it is named here, and never imported by those
who do not use it.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Final, Protocol, cast

from embedq.errors import InvalidOption, shown
from embedq.workers.signature import is_async

if TYPE_CHECKING:
    from embedq.workers.runner import Pairs, Run, Runner

#: Where the harness for Spark is.
SPARK: Final = "embedq.spark.consuming"


class Harness(Protocol):
    """Calls the handlers of one consumer. Every method may be called from several threads."""

    def adapt(self, function: Callable[..., object]) -> Callable[..., object]:
        """Return what is to be called with body and delivery in the place of `function`."""
        ...

    def call(self, runner: Runner, run: Run, handler: Callable[[], object]) -> Pairs:
        """Call the handler and return how its messages end. Raises nothing of the handler's."""
        ...

    @property
    def notice_s(self) -> float:
        """Seconds that a cancelled handler gets to end."""
        ...


def spark_harness(factory: object, function: object, pool: object) -> Harness | None:
    """Return the harness for `consumer(spark=factory)`; None without one.

    Raises InvalidOption for what cannot be, MissingExtra without PySpark.
    """
    if factory is None:
        return None
    if not callable(factory) or isinstance(factory, type):
        raise InvalidOption(
            f"consumer(spark={shown(factory)}): it is not a function that returns a session",
            hint="write spark=lambda: embedq.spark.session('jobs'), or name such a function",
            argument="spark",
        )
    if pool == "process":
        raise InvalidOption(
            "consumer(spark=…, pool='process'): Spark jobs are started on threads of the driver",
            hint="leave out pool=: Spark has processes of its own for the work",
            argument="pool",
        )
    if callable(function) and is_async(function):
        raise InvalidOption(
            "consumer(spark=…): a handler that waits for Spark would block its event loop",
            hint="declare the handler with def",
            argument="spark",
        )
    return cast("Harness", import_module(SPARK).SparkHarness(factory))
