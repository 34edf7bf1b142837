"""The exit codes, and which error ends with which.

Knows: one table, from which docs/cli.md and `embedq --help` are made.
Does not know: how errors are printed.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from embedq import errors


class Exit(IntEnum):
    """How a command ended."""

    OK = 0
    NOTHING = 1
    USAGE = 2
    IN_USE = 3
    STORE = 4
    DAMAGE = 5
    FOREIGN = 6
    IO = 7
    DEFECT = 8
    INTERRUPTED = 130
    PIPE = 141
    TERMINATED = 143


MEANINGS: Final[dict[Exit, str]] = {
    Exit.OK: "done",
    Exit.NOTHING: "nothing there: no message ready, no such queue, group or message",
    Exit.USAGE: "wrong usage: an option, a name, a body or a path",
    Exit.IN_USE: "the host of the file serves no other process; its pid is named",
    Exit.STORE: "the store cannot do it now: disk full, queue full, locked, failed, unsafe place; "
    "or an address cannot be listened at; or Spark has failed",
    Exit.DAMAGE: "the file is damaged",
    Exit.FOREIGN: "not an embedq file, or one of a later release",
    Exit.IO: "a file or the standard output could not be read or written",
    Exit.DEFECT: "a defect of embedq; EMBEDQ_DEBUG=1 shows where",
    Exit.INTERRUPTED: "stopped by Ctrl-C, or a question was answered with no",
    Exit.PIPE: "whoever read the output went away",
    Exit.TERMINATED: "stopped by SIGTERM",
}

#: The first row whose class fits counts.
ROWS: Final[tuple[tuple[type[errors.EmbedqError], Exit], ...]] = (
    (errors.Empty, Exit.NOTHING),
    (errors.QueueNotFound, Exit.NOTHING),
    (errors.GroupNotFound, Exit.NOTHING),
    (errors.UnknownMessage, Exit.NOTHING),
    (errors.UsageError, Exit.USAGE),
    (errors.ListenFailed, Exit.STORE),
    (errors.NetworkError, Exit.USAGE),
    (errors.StoreInUse, Exit.IN_USE),
    (errors.StoreCorrupt, Exit.DAMAGE),
    (errors.SchemaMissing, Exit.DAMAGE),
    (errors.NotAnEmbedqFile, Exit.FOREIGN),
    (errors.SchemaTooNew, Exit.FOREIGN),
    (errors.StorageError, Exit.STORE),
    (errors.QueueError, Exit.STORE),
    (errors.DeliveryError, Exit.STORE),
    (errors.SparkFailed, Exit.STORE),
)


def exit_of(error: errors.EmbedqError) -> Exit:
    """Return the exit code that an error ends the command with."""
    return next((code for kind, code in ROWS if isinstance(error, kind)), Exit.DEFECT)
