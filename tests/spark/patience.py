"""Streams on a busy machine: Spark gives a Python process ten seconds to start, and no option.

Knows: how that failure is told, and that a query which is started again goes on where it was.
Does not know: what the queries do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from embedq.spark.pipelines.archiving import TOO_LATE

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

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
            if TOO_LATE not in str(error) or turn == _TRIES - 1:
                raise
        else:
            return query
        finally:
            query.stop()
    raise AssertionError("unreachable")
