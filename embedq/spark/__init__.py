"""Spark: queues as sources and sinks of DataFrames, jobs on the driver, pipelines.

Knows: what is public here. PySpark, pyarrow and Java come with the extra `embedq[spark]`.
Does not know: how anything works; importing this loads no PySpark, which is asked for (and missed,
with MissingExtra) when it is first used. Spark's Python workers import this, too: it stays light.
"""

from typing import TYPE_CHECKING

from embedq.later import later

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

__getattr__ = later(__name__, _LATER)


def __dir__() -> list[str]:
    """List the public names, those not loaded yet, too."""
    return sorted(__all__)
