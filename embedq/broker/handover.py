"""From new leases to messages that may reach a consumer: checked, or settled as what they are.

Knows: checksums, times to live, that a message may have been cancelled meanwhile.
Does not know: how a claim was made, who gets the message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

from embedq.broker import moves, settling
from embedq.broker.intake import checksum
from embedq.broker.leases import Lease
from embedq.broker.telling import tell
from embedq.lifecycle import Reason
from embedq.storage.rows import Stored

if TYPE_CHECKING:
    from embedq.broker.engine import Engine

#: Bytes of a body from which on a queue's bodies are read outside the lock.
LARGE = 64 * 1024


def with_messages(engine: Engine, claim: moves.Claim) -> list[Lease]:
    """Check the messages of new leases; settle those that cannot be delivered."""
    good, bad = check_messages(engine, claim)
    for lease, message in bad:
        turn_away(engine, lease, message)
    return good


def check_messages(
    engine: Engine, claim: moves.Claim
) -> tuple[list[Lease], list[tuple[Lease, Stored | None]]]:
    """Give leases their messages; return them, and those that must not be delivered."""
    leases = claim.leases
    if not leases:
        return leases, []
    messages = claim.messages
    if messages is None:
        messages = engine.store.messages([lease.seq for lease in leases])
    found = {message[0]: message for message in messages}
    now = engine.now_ms()
    good: list[Lease] = []
    bad: list[tuple[Lease, Stored | None]] = []
    for lease in leases:
        message = found.get(lease.seq)
        if message is None:
            bad.append((lease, None))
            continue
        lease.message = message
        body, headers = message.body, message.headers
        expires = message.expires
        try:
            crc = crc32(body) if headers is None else crc32(body, crc32(headers))
            sound = crc == message.crc and (expires is None or expires > now)
        except TypeError:  # damaged in a way that makes a value one of another kind
            sound = False
        if not sound:
            bad.append((lease, message))
            continue
        good.append(lease)
        if len(body) > LARGE:
            lease.group.queue.large = True
    return good, bad


def _is_damaged(message: Stored) -> bool:
    try:
        return message.crc != checksum(message.headers, message.body)
    except TypeError:
        return True


def turn_away(engine: Engine, lease: Lease, message: Stored | None) -> None:
    """Settle a delivery that must not reach a consumer."""
    group = lease.group
    if message is None:  # cancelled meanwhile
        engine.writer.run(settling.Drops(engine, group, [lease]))
        return
    if _is_damaged(message):
        tell(engine, "corrupt", group, lease.seq)
        reason, detail = Reason.CORRUPT, "the stored checksum does not match the body"
    else:
        reason, detail = Reason.EXPIRED, "its time to live is over"
    engine.writer.run(settling.Rejections(engine, group, [lease], reason, detail, "host"))
