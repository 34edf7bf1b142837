"""Spark sessions that start fast and quietly, with the source `embedq` known to them.

Knows: the settings of a session on one machine, what must be in the environment before it.
Does not know: sources, sinks and jobs.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from embedq.errors import InvalidOption, shown
from embedq.spark.java import java_home
from embedq.spark.life import forget_dead_jvm, living_session, make_active
from embedq.spark.needs import need

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Attempts of a task on one machine; plain `local[*]` never repeats one.
_ATTEMPTS: Final = 4
_LOOPBACK: Final = "127.0.0.1"
_LOG: Final = Path(__file__).with_name("log4j2.properties")
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
#: What a session has unless it is told otherwise, wherever it runs.
_EVERYWHERE: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    # What a cancelled job leaves is waited for before its message is tried again: 2 s by default.
    "spark.python.task.killTimeout": "500ms",
    # Jobs of consumers share the cores fairly, each queue in a pool of its own.
    "spark.scheduler.mode": "FAIR",
}
#: What it has besides on one machine.
_HERE: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": _LOOPBACK,
    "spark.driver.host": _LOOPBACK,
}


def session(
    app_name: str = "embedq", *, master: str | None = None, **conf: object
) -> SparkSession:
    """Return the Spark session that runs, with the settings of `conf` added, or start one.

    Without `master` it runs in this machine on all cores that the process may use; as many
    partitions of shuffles, no web page, no progress bars, only errors in the log, loopback
    addresses, a Java that is found (see `java_home`), FAIR scheduling, UTC. `conf` adds or
    replaces settings of Spark: `session("etl", **{"spark.driver.memory": "2g"})`. A program that
    spark-submit has started keeps what that says, and adds only what applies everywhere.

    What the program does at SIGINT stays as it is (PySpark alone would cancel all jobs).
    JAVA_HOME, SPARK_LOCAL_IP and PYSPARK_PYTHON are set in the environment of this process where
    they are missing: Spark reads them when its JVM starts.

    Raises:
        MissingExtra: PySpark, pyarrow or a Java is not installed.
        InvalidOption: a setting that is none of Spark's.
    """
    for key, value in conf.items():
        if not key.startswith("spark."):
            raise InvalidOption(
                f"session({key}={shown(value)}): settings of Spark begin with 'spark.'",
                hint='write **{"spark.driver.memory": "2g"}',
                argument=key,
            )
    need("pyspark", "pyarrow")
    from pyspark.sql import SparkSession  # noqa: PLC0415  # loads half a second of PySpark

    builder = SparkSession.Builder().appName(app_name)
    if living_session() is not None:
        for key, value in conf.items():
            builder = builder.config(key, _text(value))
        return builder.getOrCreate()
    forget_dead_jvm()
    _quieten()
    # Everything that makes a session: spark-submit has chosen a master and started the JVM.
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not submitted:
        prepare_environment(master)
    if master is not None or not submitted:
        builder = builder.master(master or f"local[{_cores()},{_ATTEMPTS}]")
    settings = dict(_EVERYWHERE)
    if not submitted and (master is None or master.startswith("local")):
        settings |= _settings_here()
    settings |= {key: _text(value) for key, value in conf.items()}
    if not submitted:
        given = settings.get(_JAVA_OPTIONS, "")
        settings[_JAVA_OPTIONS] = f"-Dlog4j2.configurationFile={_LOG.as_uri()} {given}".strip()
    for key, value in settings.items():
        builder = builder.config(key, value)
    with _signals_kept():
        return builder.getOrCreate()


def prepare_environment(master: str | None = None) -> None:
    """Set what Spark reads from the environment when its JVM starts, where it is missing.

    Raises MissingExtra if there is no Java.
    """
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master is None or master.startswith("local"):
        # Else Spark looks for an address of the machine that others can reach, and warns.
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)


def register(spark: SparkSession) -> None:
    """Make `spark.read.format("embedq")` known to a session that does not find it by itself.

    Where embedq is installed, Spark finds it. It does not in files that were only sent along
    (`spark-submit --py-files`), and not for `df.write` on threads of your own: call it in each of
    them. Handlers of consumers with `spark=` need not.
    """
    need("pyspark", "pyarrow")
    from embedq.spark.source import EmbedqDataSource  # noqa: PLC0415  # loads pyspark

    make_active(spark)
    spark.dataSource.register(EmbedqDataSource)


def _quieten() -> None:
    """Let PySpark not print what it also raises: a page of JSON for each query that is wrong."""
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:  # else somebody wants to see it
            logger.setLevel(logging.CRITICAL)


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Leave SIGINT to whoever has it: PySpark would cancel all jobs, where a broker drains."""
    if threading.current_thread() is not threading.main_thread():
        yield  # nor does PySpark touch it there
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _settings_here() -> dict[str, str]:
    cores = str(_cores())
    return {
        **_HERE,
        "spark.sql.shuffle.partitions": cores,
        "spark.default.parallelism": cores,
    }


def _cores() -> int:
    """Count the cores that this process may use: at least two, so that jobs share them."""
    try:
        return max(2, len(os.sched_getaffinity(0)))
    except AttributeError:  # not on Linux
        return max(2, os.cpu_count() or 1)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
