"""Every bound of embedq in one frozen value.

Knows: the number, the unit and the reason of each limit; docs/limits.md is made from this file.
Does not know: where a limit is enforced, nor the limits of the network transports.
"""

from dataclasses import dataclass
from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds and tunables. Each comment is `unit: reason`; the docs are rendered from it."""

    # What one message may be

    #: bytes: one body. It is held in memory whole on both sides; larger data belongs in a file.
    body_bytes: int = 16 * MIB
    #: headers: of one message. They are copied on every delivery and every retry.
    headers_count: int = 64
    #: bytes: name and value of one header in UTF-8. What common HTTP servers accept, too.
    header_bytes: int = 8 * KIB
    #: bytes: all names and values of one message together.
    headers_bytes: int = 64 * KIB
    #: bytes: queue, group and header names in UTF-8. One byte counts them on every wire.
    name_bytes: int = 255
    #: bytes: dedup keys and ordering keys in UTF-8. They are indexed, so every byte costs twice.
    key_bytes: int = 255
    #: level: highest priority; the lowest is 0. Each level has its own head in memory.
    priority_max: int = 9
    #: attempts: largest bound of one message. One byte carries it on the wires; 0 is endless.
    attempts_max: int = 255
    #: seconds: farthest future of a delay or a time to live. More is a wrong unit, not a wish.
    delay_max_s: float = 365 * 24 * 3600.0

    # What one call may be

    #: messages: one put_many, get_many or settlement. It is one transaction.
    batch_messages: int = 10_000
    #: bytes: the bodies of one batch together. It stays below the WAL limit with room to spare.
    batch_bytes: int = 64 * MIB

    # Leases and attempts

    #: seconds: shortest lease. Shorter ones end while the first answer is still being written.
    lease_min_s: float = 0.1
    #: seconds: longest lease. A dead worker must not hide its message for longer than a shift.
    lease_max_s: float = 12 * 3600.0
    #: seconds: lease when nothing else is said. Leases are renewed while the worker lives.
    lease_default_s: float = 30.0
    #: deaths: of the worker or the host under one message before the message is dead.
    max_crashes: int = 3
    #: bytes: one stored error (type, text and traceback). A 50 MB text must not fill the disk.
    error_bytes: int = 4 * KIB
    #: rows: newest attempts copied to a dead letter. Endless retries would copy without bound.
    attempts_kept: int = 100
    #: seconds: a second put with the same dedup key within this window is the same message.
    dedup_window_s: float = 600.0

    # Batches of Spark, staged and then published in one transaction

    #: bytes: one batch. Everybody waits while it is published, some seconds for this much.
    publish_bytes: int = 256 * MIB
    #: bytes: all that is staged and not published. Writers that died must not fill the disk.
    stage_bytes: int = 1024 * MIB
    #: seconds: what was staged and not published by then leaves. Longer than any one Spark job.
    stage_kept_s: float = 24 * 3600.0

    # The disk

    #: bytes: free space below which puts are refused. Acks and checkpoints need what is left.
    disk_watermark_bytes: int = 64 * MIB
    #: bytes: given back when the disk is full, so that acks succeed. Room for a checkpoint, too.
    ballast_bytes: int = 4 * MIB
    #: bytes: WAL size at which our own readers are dropped and the blocker is named.
    wal_limit_bytes: int = 256 * MIB
    #: pages: written between two passive checkpoints. Larger means fewer but longer stalls.
    checkpoint_pages: int = 400
    #: seconds: wait for another program's lock on the database before StoreBusy.
    busy_timeout_s: float = 5.0

    # One transaction, and the ready index

    #: operations: in one group commit. Enough to share a sync; more only adds waiting.
    group_max_ops: int = 512
    #: bytes: bodies in one group commit. It bounds the stall a group can cause.
    group_max_bytes: int = 4 * MIB
    #: rows: read by one lazy load of the ready index. One short snapshot each.
    load_chunk: int = 2_000
    #: messages: kept per head of the ready index. More stay in the file until needed.
    head_max: int = 20_000


LIMITS: Final = Limits()
