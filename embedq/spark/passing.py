"""A session for one errand: quiet, gone with everything that it started, its errors as embedq's.

Knows: what Spark, its JVM and py4j print by themselves; how an error of embedq's looks that has
come through Spark; how a JVM is ended.
Does not know: what is done with the session, how a session is set up.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, BinaryIO, Final

from embedq import errors
from embedq.errors import EmbedqError, SparkFailed
from embedq.spark.life import end_jvm, living_session
from embedq.spark.needs import need
from embedq.spark.sessions import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: An error of embedq's in the text of one of Spark's.
_OURS: Final = re.compile(r"embedq\.errors\.(\w+): ([^\n]+)(?:\nhint: ([^\n]+))?")
#: Characters of what Spark says that are repeated.
_TEXT_MAX: Final = 500
#: Lines of what a JVM printed that could not start.
_LINES_MAX: Final = 5


@contextmanager
def passing_session(app_name: str, conf: dict[str, str]) -> Iterator[SparkSession]:
    """Give a session for a block: the one that runs, or one that ends with the block.

    The latter prints nothing; with EMBEDQ_DEBUG in the environment, everything. Raises what
    `session` raises; errors of embedq as themselves, although Spark has wrapped them; and
    SparkFailed for all others of Spark's.
    """
    need("pyspark", "pyarrow")
    before = living_session()
    if before is not None:
        with _told():
            yield before
        return
    quiet = not os.environ.get("EMBEDQ_DEBUG")
    with _py4j_silent(quiet=quiet), _told():
        try:
            spark = _start(app_name, conf, quiet=quiet)
            yield spark
        finally:
            # Whatever has happened: not even a JVM that was still starting is left.
            end_jvm()


def _start(app_name: str, conf: dict[str, str], *, quiet: bool) -> SparkSession:
    if not quiet:
        return session(app_name, **conf)
    with tempfile.TemporaryFile() as heard:
        try:
            # The JVM and the Python workers that it starts keep this as their standard error.
            with _standard_error_into(heard):
                spark = session(app_name, **conf)
        except EmbedqError:
            raise
        except Exception as error:
            heard.seek(0)
            lines = heard.read().decode("utf-8", "replace").strip().splitlines()
            said = " / ".join(lines[-_LINES_MAX:])
            raise SparkFailed(f"Spark did not start: {error}. It printed: {said}") from error
    # What fails is raised; the log would only repeat it, at length.
    spark.sparkContext.setLogLevel("OFF")
    return spark


@contextmanager
def _standard_error_into(file: BinaryIO) -> Iterator[None]:
    """Let processes that are started in the block have a file as their standard error."""
    try:
        kept = os.dup(2)
    except OSError:  # whoever started us closed it
        yield
        return
    try:
        if sys.stderr is not None:
            with suppress(OSError):
                sys.stderr.flush()
        os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


@contextmanager
def _py4j_silent(*, quiet: bool) -> Iterator[None]:
    """Let py4j not log, on the root logger, that a call was interrupted."""
    root = logging.getLogger()

    def others(record: logging.LogRecord) -> bool:
        return "py4j" not in record.pathname

    if quiet:
        root.addFilter(others)
    try:
        yield
    finally:
        root.removeFilter(others)


@contextmanager
def _told() -> Iterator[None]:
    """Raise errors of Spark as embedq's."""
    from py4j.protocol import Py4JError  # noqa: PLC0415  # loads pyspark
    from pyspark.errors import PySparkException  # noqa: PLC0415

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise meaning(error) from error


def meaning(error: Exception) -> EmbedqError:
    """Return the error of embedq's that has come through Spark, or SparkFailed."""
    text = str(error)
    found = _OURS.search(text)
    kind = getattr(errors, found[1], None) if found else None
    if found is not None and isinstance(kind, type) and issubclass(kind, EmbedqError):
        return kind(found[2], hint=found[3])
    first = text.strip().partition("\n")[0][:_TEXT_MAX]
    return SparkFailed(f"{type(error).__name__}: {first}")
