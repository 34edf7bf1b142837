"""Streams on a busy machine: Spark gives a Python process ten seconds to start, and no option.

Knows: how that failure is told, and a race in Spark; that queries which start again go on.
Does not know: what the queries do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from embedq.spark.pipelines.archiving import TOO_LATE

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

#: Two queries of one driver have changed what Spark sends to tasks while it was written down.
RACE: Final = "Task serialization failed: java.lang.IllegalStateException: Illegal size"
_TRIES: Final = 8
_PATIENCE_S: Final = 240


def finished(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Start a query that ends by itself and wait for it, again where Spark was too impatient."""
    from pyspark.errors import StreamingQueryException

    for turn in range(_TRIES):
        query = start()
        try:
            assert query.awaitTermination(_PATIENCE_S), "the query does not end"
        except StreamingQueryException as error:
            known = TOO_LATE in str(error) or RACE in str(error)
            if not known or turn == _TRIES - 1:
                raise
        else:
            return query
        finally:
            query.stop()
    raise AssertionError("unreachable")
