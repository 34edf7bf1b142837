"""Whose fault an error of a Spark job is: the JVM's, the program's for ever, or anybody's.

Knows: how the death of a JVM shows in Python, which errors of Spark no repetition mends.
Does not know: what is done about it.
"""

from __future__ import annotations

from typing import Final

#: Texts of the JVM's own errors when the context has been stopped under a job.
_SHUT_DOWN: Final = (
    "SparkContext was shut down",
    "SparkContext has been shutdown",
    "Cannot call methods on a stopped SparkContext",
    "cancelled because SparkContext was shut down",
)
_CHAIN: Final = 10


def is_death(error: BaseException) -> bool:
    """Whether an error means that the JVM, or its context, was lost under the job."""
    from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError  # noqa: PLC0415

    for each in _chain(error):
        if isinstance(each, Py4JNetworkError):
            return True
        if isinstance(each, Py4JError) and not isinstance(each, Py4JJavaError):
            # "An error occurred while calling …" without an answer of the JVM in it.
            if "while calling" in str(each) or "Answer from Java side is empty" in str(each):
                return True
            continue
        if any(text in str(each) for text in _SHUT_DOWN):
            return True
    return False


def is_final(error: BaseException) -> bool:
    """Whether the same job fails the same way each time: a query that means nothing, a wrong type.

    A table or a path that is missing is among them: Spark has one error for all that it finds
    wrong before anything runs. `retry_on=` of the retry policy can say otherwise.
    """
    from pyspark.errors import (  # noqa: PLC0415
        AnalysisException,
        IllegalArgumentException,
        PySparkAttributeError,
        PySparkNotImplementedError,
        PySparkTypeError,
        PySparkValueError,
    )

    return isinstance(
        error,
        AnalysisException  # ParseException is one
        | IllegalArgumentException
        | PySparkAttributeError
        | PySparkNotImplementedError
        | PySparkTypeError
        | PySparkValueError,
    )


def _chain(error: BaseException) -> list[BaseException]:
    """Return an error and what led to it: PySpark wraps some, and hides others."""
    found: list[BaseException] = []
    step: BaseException | None = error
    while step is not None and step not in found and len(found) < _CHAIN:
        found.append(step)
        step = step.__cause__ or step.__context__
    return found
