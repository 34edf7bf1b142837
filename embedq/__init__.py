"""embedq: a durable message queue inside a Python process.

Knows: what is public, and the version.
Does not know: how anything works; importing this loads neither sqlite3 nor zmq nor asyncio. What
needs them (Broker, Queue, Delivery, Batch) is loaded when it is first named.
"""

from typing import TYPE_CHECKING

from embedq.decisions import DeliveryOutcome, Reject, Retry
from embedq.errors import (
    DeliveryError,
    DuplicateConsumer,
    EmbedqError,
    Empty,
    ForkedBroker,
    GroupNotFound,
    HostGone,
    InsecureListener,
    InsecurePermissions,
    InvalidName,
    InvalidOption,
    InvalidPayload,
    KeyRefused,
    LimitExceeded,
    ListenFailed,
    MessagesGone,
    MissingExtra,
    NetworkError,
    NetworkFilesystem,
    NoHost,
    NotAllowed,
    NotAnEmbedqFile,
    NotRetained,
    NotRunning,
    QueueError,
    QueueFull,
    QueueNotFound,
    QueuePaused,
    SchemaMissing,
    SchemaTooNew,
    SparkFailed,
    StageLost,
    StaleLease,
    StorageError,
    StoreBusy,
    StoreClosed,
    StoreCorrupt,
    StoreFailed,
    StoreFull,
    StoreInUse,
    TransportNotFound,
    UnknownMessage,
    UnsupportedOption,
    UnsupportedPlatform,
    UsageError,
    WrongVersion,
)
from embedq.later import later
from embedq.limits import LIMITS, Limits
from embedq.message import AttemptRecord, DeadLetter, ErrorInfo, Message, Receipt
from embedq.policy import QueuePolicy, RetryPolicy

if TYPE_CHECKING:
    from embedq.app.broker import Broker
    from embedq.app.queue import Queue
    from embedq.app.watching import WatchedFile
    from embedq.broker.delivery import Delivery
    from embedq.workers.batches import Batch

__version__ = "0.1.0"

__all__ = [
    "LIMITS",
    "AttemptRecord",
    "Batch",
    "Broker",
    "DeadLetter",
    "Delivery",
    "DeliveryError",
    "DeliveryOutcome",
    "DuplicateConsumer",
    "EmbedqError",
    "Empty",
    "ErrorInfo",
    "ForkedBroker",
    "GroupNotFound",
    "HostGone",
    "InsecureListener",
    "InsecurePermissions",
    "InvalidName",
    "InvalidOption",
    "InvalidPayload",
    "KeyRefused",
    "LimitExceeded",
    "Limits",
    "ListenFailed",
    "Message",
    "MessagesGone",
    "MissingExtra",
    "NetworkError",
    "NetworkFilesystem",
    "NoHost",
    "NotAllowed",
    "NotAnEmbedqFile",
    "NotRetained",
    "NotRunning",
    "Queue",
    "QueueError",
    "QueueFull",
    "QueueNotFound",
    "QueuePaused",
    "QueuePolicy",
    "Receipt",
    "Reject",
    "Retry",
    "RetryPolicy",
    "SchemaMissing",
    "SchemaTooNew",
    "SparkFailed",
    "StageLost",
    "StaleLease",
    "StorageError",
    "StoreBusy",
    "StoreClosed",
    "StoreCorrupt",
    "StoreFailed",
    "StoreFull",
    "StoreInUse",
    "TransportNotFound",
    "UnknownMessage",
    "UnsupportedOption",
    "UnsupportedPlatform",
    "UsageError",
    "WatchedFile",
    "WrongVersion",
    "__version__",
]

_LATER = {
    "Batch": "embedq.workers.batches",
    "Broker": "embedq.app.broker",
    "Delivery": "embedq.broker.delivery",
    "Queue": "embedq.app.queue",
    "WatchedFile": "embedq.app.watching",
}

__getattr__ = later(__name__, _LATER)


def __dir__() -> list[str]:
    """List the public names, those not loaded yet, too."""
    return sorted(__all__)
