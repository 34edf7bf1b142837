"""Spark: queues as sources and sinks of DataFrames, jobs on the driver, pipelines.

Knows: what is public here. PySpark, pyarrow and Java come with the extra `embedq[spark]`.
Does not know: how anything works; importing this loads no PySpark, which is asked for (and missed,
with MissingExtra) when it is first used. Spark's Python workers import this, too: it stays light.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from embedq.spark.java import java_home
    from embedq.spark.jobs import RunningJob, cancel_job, running_jobs
    from embedq.spark.sessions import register, session
    from embedq.spark.source import EmbedqDataSource

__all__ = [
    "EmbedqDataSource",
    "RunningJob",
    "cancel_job",
    "java_home",
    "register",
    "running_jobs",
    "session",
]

_LATER = {
    "EmbedqDataSource": "embedq.spark.source",
    "RunningJob": "embedq.spark.jobs",
    "cancel_job": "embedq.spark.jobs",
    "running_jobs": "embedq.spark.jobs",
    "java_home": "embedq.spark.java",
    "register": "embedq.spark.sessions",
    "session": "embedq.spark.sessions",
}


def __getattr__(name: str) -> object:
    """Load what is loaded when it is first named (PEP 562)."""
    module = _LATER.get(name)
    if module is None:
        raise AttributeError(f"module 'embedq.spark' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415  # not needed by those who do not get here

    found: object = getattr(import_module(module), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """List the public names, those not loaded yet, too."""
    return sorted(__all__)
