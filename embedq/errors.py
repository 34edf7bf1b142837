"""The errors of embedq: one tree, drawn here.

EmbedqError
├── UsageError           the call is wrong; fix the program
│   ├── InvalidName            ├── InvalidOption         ├── InvalidPayload
│   ├── LimitExceeded          ├── NotRunning            ├── ForkedBroker
│   ├── UnsupportedPlatform    ├── MissingExtra
│   └── UnsupportedOption (an InvalidOption)
├── DeliveryError        the message or its lease is not what the caller thinks
│   └── StaleLease             └── UnknownMessage
├── QueueError           an answer of a queue
│   ├── Empty                  ├── QueueNotFound         ├── QueueFull (retryable)
│   ├── QueuePaused (retryable)├── DuplicateConsumer     ├── GroupNotFound
│   ├── StageLost              ├── NotRetained           └── MessagesGone
├── SparkFailed          a pipeline did not get what it asked for
├── NetworkError         a listener cannot listen, or one of its clients may not
│   ├── ListenFailed           ├── TransportNotFound     ├── InsecureListener
│   └── NotAllowed
└── StorageError         the file or what is around it
    ├── StoreBusy (retryable)  ├── StoreFull (retryable) ├── StoreInUse
    ├── StoreFailed            ├── StoreCorrupt          ├── StoreClosed
    ├── NoHost (retryable)     ├── HostGone (retryable)  ├── WrongVersion
    ├── SchemaTooNew           ├── SchemaMissing         ├── NotAnEmbedqFile
    └── InsecurePermissions    ├── NetworkFilesystem     └── KeyRefused

Knows: the stable code of every error, whether repeating the call can help, and the next step.
Does not know: who raises what, nor how an error is logged or sent to a client.
"""

from datetime import timedelta
from typing import ClassVar


def shown(value: object, most: int = 40) -> str:
    """Return `value` for an error text: its repr cut to `most` characters, or only its type.

    Never fails and never is long, whatever a caller passed where something else was expected.
    """
    if isinstance(value, str | bytes):
        text = repr(value[: most + 1])
    elif value is None or isinstance(value, int | float | type | timedelta):
        try:
            text = repr(value)
        except ValueError:  # an int with more digits than Python is willing to print
            text = f"a huge {type(value).__name__}"
    else:
        text = f"a {type(value).__name__}"
    return text if len(text) <= most + 2 else f"{text[:most]}…"


class EmbedqError(Exception):
    """Root of the tree: `except EmbedqError` catches whatever embedq raises on purpose.

    `code` never changes once released; `retryable` says that the same call is worth repeating
    after a pause; `hint` is the next step for the reader; `details` holds facts for programs.
    """

    code: ClassVar[str] = "embedq"
    retryable: ClassVar[bool] = False
    hint: str | None = None

    def __init__(self, message: str, /, *, hint: str | None = None, **details: object) -> None:
        """Keep the message; `hint` replaces the default hint of the class."""
        super().__init__(message)
        if hint is not None:
            self.hint = hint
        self.details: dict[str, object] = details

    @property
    def message(self) -> str:
        """The sentence without its hint."""
        return str(self.args[0])

    def __str__(self) -> str:
        """Return the message and, on a second line, the hint."""
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message


class UsageError(EmbedqError):
    """The call itself is wrong: it fails the same way until the program changes."""

    code = "usage"


class InvalidName(UsageError):
    """A queue, a group or a key has a name that breaks a rule."""

    code = "invalid_name"
    hint = "use 1 to 255 bytes of UTF-8 without control characters"


class InvalidOption(UsageError):
    """An argument or a setting has a value outside what it accepts."""

    code = "invalid_option"
    hint = "correct the argument named above"


class UnsupportedOption(InvalidOption):
    """An option that belongs to the product, but not to this release."""

    code = "unsupported_option"
    hint = "leave the option out, or upgrade embedq"


class InvalidPayload(UsageError):
    """A body cannot be encoded, or not decoded to the type that was asked for."""

    code = "invalid_payload"
    hint = "use bytes, str, JSON-able values, dataclasses, msgspec structs or pydantic models"


class LimitExceeded(UsageError):
    """A message, a batch or an option is larger than the limit named in the text."""

    code = "limit_exceeded"
    hint = "make it smaller; docs/limits.md lists every limit and its reason"


class NotRunning(UsageError):
    """The broker has not been started, or is stopped already."""

    code = "not_running"
    hint = "start it first: `with broker:` or `broker.run()`"


class ForkedBroker(UsageError):
    """A child made by `fork` uses the broker or the store of its parent."""

    code = "forked_broker"
    hint = "use it only after the fork, give the child a Broker of its own, or spawn processes"


class UnsupportedPlatform(UsageError):
    """The operating system lacks what the promises rest on."""

    code = "unsupported_platform"
    hint = "embedq runs on Linux (macOS: not yet tested); on Windows use WSL 2, with a path in it"


class MissingExtra(UsageError):
    """A part of embedq needs a package or a program that is not installed."""

    code = "missing_extra"
    hint = "install the extra named above"


class DeliveryError(EmbedqError):
    """A message or its lease is not, or no longer, what the caller takes it for."""

    code = "delivery"


class StaleLease(DeliveryError):
    """The token is no longer the newest of its message: the call changed nothing."""

    code = "stale_lease"
    hint = "the message was or will be handed to another delivery; drop this one"


class UnknownMessage(DeliveryError):
    """No such message here: settled and gone, or the id was not issued by this store."""

    code = "unknown_message"
    hint = "compare the id and the queue; settled messages are kept only with retain="


class QueueError(EmbedqError):
    """A queue cannot answer the call as it stands."""

    code = "queue"


class Empty(QueueError):
    """No message became ready within the timeout."""

    code = "empty"
    hint = "nothing is wrong: wait longer with timeout=, or register a consumer"


class QueueNotFound(QueueError):
    """The queue was never declared and never received a message."""

    code = "queue_not_found"
    hint = "declare it or put a message; names are compared exactly"


class GroupNotFound(QueueError):
    """The queue has no consumer group of that name."""

    code = "group_not_found"
    hint = "a group exists once a consumer, a get or a declaration named it"


class QueueFull(QueueError):
    """The queue holds max_length messages and its policy is to refuse more."""

    code = "queue_full"
    retryable = True
    hint = "let the consumers catch up, raise max_length, or choose another when_full"


class QueuePaused(QueueError):
    """The queue is paused and does not do this until it is resumed."""

    code = "queue_paused"
    retryable = True
    hint = "resume the queue"


class DuplicateConsumer(QueueError):
    """A second, different handler was registered for the same group of a queue."""

    code = "duplicate_consumer"
    hint = "name another group=, or pass compete=True to share the messages"


class StageLost(QueueError):
    """What the tasks of a sink have staged is not there, or not whole: nothing was published."""

    code = "stage_lost"
    hint = "write the batch again; two writers at once need a sinkId each"


class NotRetained(QueueError):
    """A stream would read from a queue that keeps nothing for it."""

    code = "not_retained"
    hint = "set the option `group`, which holds messages for the stream, or give the queue retain="


class MessagesGone(QueueError):
    """What a reader is to read next has been removed, or was never in this file."""

    code = "messages_gone"
    hint = "failOnDataLoss=false goes on with what there is; a new checkpoint begins anew"


class SparkFailed(EmbedqError):
    """Spark did not start, or failed at something that is none of the other errors."""

    code = "spark_failed"
    hint = "repair the cause named above; EMBEDQ_DEBUG=1 shows all that Spark and its JVM print"


class NetworkError(EmbedqError):
    """A listener cannot do what is asked of it."""

    code = "network"


class ListenFailed(NetworkError):
    """An address cannot be listened at."""

    code = "listen_failed"
    hint = "end whoever listens there, or choose another port (0 finds a free one)"


class TransportNotFound(NetworkError):
    """No installed package brings a protocol of that name."""

    code = "transport_not_found"
    hint = "correct the first part of the address, or install the package of the protocol"


class InsecureListener(NetworkError):
    """Other machines could reach a listener that asks nobody who they are."""

    code = "insecure_listener"
    hint = "listen at 127.0.0.1, give auth= (in a file users=) or a ca=, or say insecure=True"


class NotAllowed(NetworkError):
    """A client of a listener has not logged in, or may not do this."""

    code = "not_allowed"
    hint = "log in, or give its user the right"


class StorageError(EmbedqError):
    """The database file, or what surrounds it, prevents the call."""

    code = "storage"


class StoreBusy(StorageError):
    """Another program holds the lock of the database for longer than busy_timeout_s."""

    code = "store_busy"
    retryable = True
    hint = "end the transaction of the other program that has the file open"


class StoreFull(StorageError):
    """The disk is so full that puts are refused; acks still pass."""

    code = "store_full"
    retryable = True
    hint = "free disk space; the store resumes by itself within a second"


class StoreInUse(StorageError):
    """A live process is the host of this file already; `pid` says which, when known."""

    code = "store_in_use"
    hint = "connect to that host instead, or stop it first"

    def __init__(
        self, message: str, /, *, pid: int | None = None, hint: str | None = None, **facts: object
    ) -> None:
        """Keep the message and the process id of the owner."""
        super().__init__(message, hint=hint, pid=pid, **facts)
        self.pid = pid


class HostGone(StorageError):
    """The host ended before it answered, and the call may or may not have been done."""

    code = "host_gone"
    retryable = True
    hint = "look whether it was done before you repeat it"


class NoHost(StorageError):
    """No process hosts the file, and this one must not."""

    code = "no_host"
    retryable = True
    hint = 'start the application that hosts it, or open the broker with role="auto"'


class WrongVersion(StorageError):
    """This process and the host run releases that are too far apart."""

    code = "wrong_version"
    hint = "run neighbouring releases of embedq: one of the two processes has to be upgraded"


class KeyRefused(StorageError):
    """The host on the other machine does not allow the key of this process."""

    code = "key_refused"
    hint = "on the host's machine: embedq keys allow NAME KEY, with what `embedq keys new` printed"


class StoreFailed(StorageError):
    """A write or a sync failed: the store has stopped rather than promise what it cannot keep."""

    code = "store_failed"
    hint = "repair the cause named above (disk, quota, a moved file), then open the file again"


class StoreCorrupt(StorageError):
    """The database contradicts itself or its checksums."""

    code = "store_corrupt"
    hint = "stop the host, copy the file aside, then salvage it or restore a backup"


class StoreClosed(StorageError):
    """The store was closed before the call or during it."""

    code = "store_closed"
    hint = "the broker was stopped: start it again, or stop it when nobody waits"


class SchemaTooNew(StorageError):
    """A newer release of embedq wrote the file."""

    code = "schema_too_new"
    hint = "upgrade embedq; files are migrated forward only"


class SchemaMissing(StorageError):
    """A file marked as embedq's lacks tables or indexes that this release needs."""

    code = "schema_missing"
    hint = "something altered the file: restore a backup, or salvage it into a new one"


class NotAnEmbedqFile(StorageError):
    """The path holds something else: another database, or no database at all."""

    code = "not_an_embedq_file"
    hint = "choose another path; embedq never writes into a file that is not its own"


class InsecurePermissions(StorageError):
    """Someone else could read, replace or write the database."""

    code = "insecure_permissions"
    hint = "chmod 600 the file, and keep it in a folder that only its owner can write"


class NetworkFilesystem(StorageError):
    """The path is on a network file system, where locks and syncs cannot be trusted."""

    code = "network_filesystem"
    hint = "choose a path on a local disk"
