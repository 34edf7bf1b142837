"""Pipelines over the history of queues: archive, triage, redrive.

Knows: what is public here.
Does not know: how anything works; importing this loads no PySpark.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from embedq.spark.pipelines.archiving import Archived, archive
    from embedq.spark.pipelines.causes import Cause, redrive, triage

__all__ = ["Archived", "Cause", "archive", "redrive", "triage"]

_LATER = {
    "Archived": "archiving",
    "archive": "archiving",
    "Cause": "causes",
    "redrive": "causes",
    "triage": "causes",
}


def __getattr__(name: str) -> object:
    """Load what is loaded when it is first named (PEP 562)."""
    module = _LATER.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415  # not needed by those who do not get here

    found: object = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = found
    return found
