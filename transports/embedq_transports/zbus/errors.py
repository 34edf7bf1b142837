"""What of an error a zbus client is told.

Knows: which status an error of embedq has, which names are in its text.
Does not know: what failed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from embedq.errors import (
    EmbedqError,
    GroupNotFound,
    LimitExceeded,
    NotAllowed,
    QueueFull,
    QueueNotFound,
    StoreFull,
    UsageError,
)
from embedq_transports.zbus.answers import Answer, told

if TYPE_CHECKING:
    from embedq_transports.zbus.task import Task


def failed(error: EmbedqError, task: Task) -> Answer:
    """Return the answer for what an operation raised."""
    message = task.message
    if isinstance(error, QueueNotFound):
        return told(404, no_mq(message.text("mq") or ""), task.wire_id)
    if isinstance(error, GroupNotFound):
        return told(404, no_channel(message.text("channel") or ""), task.wire_id)
    return told(status_of(error), error.message, task.wire_id)


def status_of(error: EmbedqError) -> int:
    """Return the status of HTTP for an error."""
    if isinstance(error, NotAllowed):
        return 403
    if isinstance(error, LimitExceeded):
        return 413
    if isinstance(error, QueueFull | StoreFull):
        return 503
    return 400 if isinstance(error, UsageError) else 500


def no_mq(name: str) -> str:
    """Say that there is no queue of that name."""
    return f"MQ({name}) Not Found"


def no_channel(name: str) -> str:
    """Say that there is no channel of that name."""
    return f"Channel({name}) Not Found"
