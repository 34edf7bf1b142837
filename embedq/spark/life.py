"""The life of the JVM: whether a session still has one, and a new session after its death.

Knows: PySpark's own memory of its JVM (private names, all of them are here), one rebuild at once.
Does not know: messages, jobs, why a JVM died.
"""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from subprocess import TimeoutExpired
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_log = logging.getLogger("embedq.spark")

#: There is one JVM in a process, whoever asks for a session.
_REBUILDING: Final = threading.RLock()
#: Seconds that a JVM may take to end.
_END_S: Final = 20


class SessionUnavailable(Exception):
    """No session could be had: the factory raised, or returned one whose JVM is gone."""


def is_alive(context: SparkContext) -> bool:
    """Ask the JVM of a session whether its context runs. Never raises.

    `session.version` would not do: PySpark answers that from memory.
    """
    try:
        return context._jsc is not None and not context._jsc.sc().isStopped()
    except Exception:  # noqa: BLE001 - py4j has many errors for a gateway that is gone, and OSError
        return False


def living_session() -> SparkSession | None:
    """Return the session that this process has, if its JVM lives."""
    from pyspark.sql import SparkSession  # noqa: PLC0415  # loads half a second of PySpark

    session: SparkSession | None = SparkSession._instantiatedSession
    return session if session is not None and is_alive(session.sparkContext) else None


def make_active(session: SparkSession) -> None:
    """Make a session the one of this thread, for Spark itself, too.

    Its JVM looks there for formats to write with that are written in Python, and there only: a
    thread that has no session "fails to find the data source". PySpark sets it in some calls
    (`createDataFrame`), not in others (`range`, `write`), and has no public name for it.
    """
    session._jvm.SparkSession.setActiveSession(session._jsparkSession)  # type: ignore[union-attr]


class Sessions:
    """The session that a factory of the application gives, kept until its JVM dies."""

    def __init__(self, factory: Callable[[], SparkSession]) -> None:
        self._factory = factory
        self._session: SparkSession | None = None

    def get(self) -> SparkSession:
        """Return a session that lives; after the death of a JVM a new one is made, by one thread.

        Raises SessionUnavailable.
        """
        session = self._session
        if session is not None and is_alive(session.sparkContext):
            return session
        with _REBUILDING:
            session = self._session
            if session is not None and is_alive(session.sparkContext):
                return session  # somebody else has made it meanwhile
            forget_dead_jvm()
            try:
                session = self._factory()
            except Exception as error:
                text = f"{type(error).__name__}: {error}"
                raise SessionUnavailable(f"the session factory failed: {text}") from error
            if not is_alive(session.sparkContext):
                raise SessionUnavailable(
                    "the session factory returned a session that has been stopped: it has to call "
                    "embedq.spark.session() or getOrCreate() each time"
                )
            self._session = session
            return session


def forget_dead_jvm() -> None:
    """Let PySpark forget a JVM that is gone, or a context that was stopped; a living one stays.

    Without this `getOrCreate()` goes on with the dead one and fails for ever. These are no public
    names: tests kill a JVM, so that a version of PySpark with others is noticed.
    """
    from pyspark import SparkContext  # noqa: PLC0415  # only those get here who have used it
    from pyspark.sql import SparkSession  # noqa: PLC0415

    with _REBUILDING:
        gateway = SparkContext._gateway
        if gateway is None or _answers(gateway):
            return
        context = SparkContext._active_spark_context
        server = getattr(context, "_accumulatorServer", None)
        if server is not None:
            with suppress(Exception):
                server.shutdown()
        with suppress(Exception):
            gateway.shutdown()
        process = getattr(gateway, "proc", None)
        if process is not None:
            # It does not answer: what is left of it must not hold its ports and files.
            with suppress(OSError):
                process.kill()
            with suppress(Exception):
                process.wait(10)
        SparkContext._gateway = None
        SparkContext._jvm = None
        SparkContext._active_spark_context = None
        SparkSession._instantiatedSession = None
        SparkSession._activeSession = None
        _log.info("the JVM of Spark is gone, and forgotten")


def end_jvm() -> None:
    """Stop the session of this process, and end its JVM with everything that it has started.

    PySpark leaves a JVM behind, which ends after the process that has started it.
    """
    from pyspark import SparkContext  # noqa: PLC0415  # only those get here who have used it
    from pyspark.sql import SparkSession  # noqa: PLC0415

    session = SparkSession._instantiatedSession
    if session is not None:
        # It may have died, or an interrupt has cut a call in two: PySpark raises, or warns.
        with suppress(Exception), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            session.stop()
    gateway = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if process is not None:
        with suppress(OSError):
            process.stdin.close()  # that is how it is told to end
        try:
            process.wait(_END_S)
        except TimeoutExpired:
            process.kill()
            process.wait(_END_S)
    forget_dead_jvm()


def _answers(gateway: object) -> bool:
    try:
        getattr(gateway.jvm, "java.lang.System").nanoTime()  # type: ignore[attr-defined]
    except Exception:  # noqa: BLE001 - see is_alive
        return False
    return True
