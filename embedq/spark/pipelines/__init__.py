"""Pipelines over the history of queues: archive, report, triage, redrive, replay.

Knows: what is public here.
Does not know: how anything works; importing this loads no PySpark.
"""

from typing import TYPE_CHECKING

from embedq.later import later

if TYPE_CHECKING:
    from embedq.spark.pipelines.archiving import Archived, archive
    from embedq.spark.pipelines.causes import Cause, redrive, triage
    from embedq.spark.pipelines.replaying import Replayed, replay
    from embedq.spark.pipelines.reporting import Reported, report

__all__ = [
    "Archived",
    "Cause",
    "Replayed",
    "Reported",
    "archive",
    "redrive",
    "replay",
    "report",
    "triage",
]

_LATER = {
    "Archived": "embedq.spark.pipelines.archiving",
    "archive": "embedq.spark.pipelines.archiving",
    "Cause": "embedq.spark.pipelines.causes",
    "redrive": "embedq.spark.pipelines.causes",
    "Reported": "embedq.spark.pipelines.reporting",
    "report": "embedq.spark.pipelines.reporting",
    "triage": "embedq.spark.pipelines.causes",
    "Replayed": "embedq.spark.pipelines.replaying",
    "replay": "embedq.spark.pipelines.replaying",
}

__getattr__ = later(__name__, _LATER)
