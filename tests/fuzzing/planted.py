"""Faults that a campaign must find. Planted in processes that exist for nothing else.

Knows: how each is planted, and by which words of a report it is found.
Does not know: how inputs are made and judged.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from embedq.net.access import Access
from embedq_transports.mmqp import session as mmqp_session
from embedq_transports.mmqp.answers import encode_records
from embedq_transports.mmqp.requests import Send
from embedq_transports.mmqp.session import MmqpSession
from embedq_transports.phpmq.session import PhpmqSession
from embedq_transports.sspq import session as sspq_session
from embedq_transports.sspq.wire import ServerWire, WireLimits, encode
from tests.fuzzing import arena
from tests.fuzzing.campaign import campaign


class Fault(NamedTuple):
    """`name` of `where` is replaced by `wrong`; a campaign of `protocol` says `words`."""

    protocol: str
    where: Any
    name: str
    wrong: Any
    words: str


def _cannot_confirm(session: Any) -> None:
    session._held.ack()
    session._held = None


def _forgets(session: Any, event: Any, publish: Any = PhpmqSession._publish) -> None:
    if not event.content.endswith(b"World"):
        publish(session, event)


def _loses_one(session: Any, event: Any, put: Any = MmqpSession._put) -> None:
    if event.body != b"hello4":
        put(session, event)


def _mistakes(session: Any, event: Any, put: Any = MmqpSession._put) -> None:
    put(session, Send(event.queue, b"p2", event.group) if event.body == b"p1" else event)


def _closes(session: Any) -> None:
    session._finish("end")


def _leaves_out(records: Any, **how: bool) -> bytes:
    return encode_records(list(records)[:-1], **how)


def _says_nothing(_code: Any, _detail: str = "") -> bytes:
    return b""


def _never_hears(_session: Any) -> bool:
    return True


def _keeps(access: Any) -> None:
    access.is_closed = True
    access.end_subscriptions()


def _unlimited(wire: Any, _limits: Any, init: Any = ServerWire.__init__) -> None:
    init(wire, WireLimits(1 << 32))


def _cut(packet: Any) -> bytes:
    return encode(packet)[:-1]


FAULTS: Final = {
    "a session raises": Fault(
        "sspq", sspq_session.SspqSession, "_confirm", _cannot_confirm, "'defect'"
    ),
    "a wire has no limit": Fault("sspq", ServerWire, "__init__", _unlimited, "a wire keeps"),
    "an answer is cut short": Fault("sspq", sspq_session, "encode", _cut, "is answered with"),
    "a message is forgotten": Fault("phpmq", PhpmqSession, "_publish", _forgets, "are stored"),
    "silence hides a loss": Fault("mmqp", MmqpSession, "_put", _loses_one, "are stored"),
    "a message takes another's place": Fault(
        "mmqp", MmqpSession, "_put", _mistakes, "are not what was sent"
    ),
    "a session closes too early": Fault(
        "mmqp", MmqpSession, "_idle", _closes, "though it sends more"
    ),
    "a record is left out": Fault(
        "mmqp", mmqp_session, "encode_records", _leaves_out, "neither there nor read"
    ),
    "a refusal is silent": Fault(
        "mmqp", mmqp_session, "encode_error", _says_nothing, "is not told"
    ),
    "an end is not heard": Fault("mmqp", MmqpSession, "ended", _never_hears, "hangs"),
    "a message stays held": Fault("phpmq", Access, "close", _keeps, "is still held"),
}


@contextmanager
def planted(fault: Fault) -> Iterator[None]:
    """Plant a fault for a while."""
    right = getattr(fault.where, fault.name)
    patience = arena.HANGS_S
    setattr(fault.where, fault.name, fault.wrong)
    arena.HANGS_S = 1.0  # type: ignore[misc]
    try:
        yield
    finally:
        setattr(fault.where, fault.name, right)
        arena.HANGS_S = patience  # type: ignore[misc]


def missing(name: str, count: int = 1_200, seed: int = 7) -> list[str]:
    """Let a campaign look for a fault. Returns what it says instead: nothing if it is found."""
    fault = FAULTS[name]
    with planted(fault):
        report = campaign(fault.protocol, count, seed, most=1)
    is_found = any(fault.words in problem for problem in report.problems)
    return [] if is_found else report.problems or ["nothing"]
