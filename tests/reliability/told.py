"""A history of calls (invariants_events) told as the lines of a journal, for the judge of those.

Knows: that a claim starts deliveries, that a settlement ends those of its seqs.
Does not know: what must be true, who made the calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tests.reliability.invariants_events import Answer, Call, Died, Elapsed, Event, Refusal
from tests.reliability.journal import Ending, Line, Record, Settled, Start, forged

_HOWS = {"ack": "done", "fail": "failed", "reject": "rejected", "release": "released"}


def lines_of(events: Iterable[Event]) -> list[Line]:
    """Return the journal of a history. It tells no times."""
    return forged(_records(events), 0)


def _records(events: Iterable[Event]) -> Iterator[Record]:
    calls: dict[int, Call] = {}
    tokens: dict[tuple[int, str], int] = {}
    ends: dict[int, list[int]] = {}
    for event in events:
        match event:
            case Died() | Elapsed():
                continue  # the next host tells of the death; no lease ends while a worker lives
            case Call():
                calls[event.id] = event
                if event.name in _HOWS:
                    # Now: before the answer is noted, the message may be with somebody else.
                    ends[event.id] = [tokens[seq, event.group] for seq in event.seqs]
                    for counter in ends[event.id]:
                        yield Ending(counter, _HOWS[event.name])
                    continue
            case Answer() if calls[event.id].name == "claim":
                yield from _starts(calls[event.id], event, tokens)
                continue
            case Answer() if calls[event.id].name in _HOWS:
                yield from map(Settled, ends[event.id])
                continue
            case Refusal() if calls[event.id].name in _HOWS:
                continue
            case _:
                pass
        yield event


def _starts(call: Call, answer: Answer, tokens: dict[tuple[int, str], int]) -> Iterator[Start]:
    for one in answer.deliveries:
        tokens[one.seq, call.group] = one.counter
        where = (call.queue, call.group)
        yield Start(*where, one.seq, one.attempt, one.counter, one.tag, one.digest)
