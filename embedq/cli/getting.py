"""`embedq get`: take messages, print them, and settle them once they are printed.

Knows: that what did not reach the output is given back.
Does not know: how messages are chosen.
"""

from __future__ import annotations

import sys
import time
from shlex import quote
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from embedq.cli import access, output
from embedq.cli.asked import Asked, asks, pass_asked, seconds
from embedq.cli.looking import find_queue
from embedq.cli.messages import json_message
from embedq.cli.showing import body_text
from embedq.clock import Clock, SystemClock
from embedq.errors import Empty, StorageError, StoreInUse
from embedq.limits import LIMITS

if TYPE_CHECKING:
    from embedq.broker.desk import Desk
    from embedq.broker.leases import Lease
    from embedq.broker.port import DeskPort

#: Messages printed before they are settled together.
_PORTION: Final = 100
_LOOK_S: Final = 0.05


class _Wanted(NamedTuple):
    queue: str
    group: str
    most: int
    ack: bool
    raw: bool
    json: bool


class _Pause(NamedTuple):
    """How the store was left: by which epoch, and when something may become ready (ms)."""

    epoch: int | None
    due_ms: int | None


@click.command()
@click.argument("queue")
@click.option("--group", default="default", show_default=True, help="The consumer group.")
@click.option(
    "--count",
    type=click.IntRange(1, LIMITS.batch_messages),
    default=1,
    show_default=True,
    help="Take up to so many.",
)
@click.option("--timeout", metavar="DURATION", help="Wait so long for them. Default: not at all.")
@click.option(
    "--no-ack", is_flag=True, help="Give them back after printing: no attempt is counted."
)
@click.option("--raw", is_flag=True, help="Do not escape control characters on a terminal.")
@asks
@pass_asked
def get(
    asked: Asked,
    queue: str,
    group: str,
    count: int,
    timeout: str | None,
    *,
    no_ack: bool,
    raw: bool,
) -> None:
    """Take messages from QUEUE, print their bodies, and ack them.

    They are acked after the output was handed over; if it cannot be written, or the command is
    stopped, they are given back. Into a file or a pipe a body goes byte by byte as it is; with
    --count above 1 a line end follows each. On a terminal control characters are escaped. With
    --json each message is one line, with its headers.

    Exit code 1: there was none.

    \b
    Examples:
      embedq get orders
      embedq get orders --count 10 --json
    """  # noqa: D301  # click wants that character
    wait_s = 0.0 if timeout is None else seconds(timeout, "--timeout")
    wanted = _Wanted(queue, group, count, not no_ack, raw, asked.json)
    if _take(asked, wanted, wait_s, SystemClock()) == 0:
        paused = find_queue(access.look(asked), queue).paused
        raise Empty(
            f"queue {queue!r} has no message ready for group {group!r}",
            hint=f"it is paused: `embedq resume {quote(queue)}`"
            if paused
            else "`embedq stats` shows what waits; --timeout waits for messages",
        )


def _take(asked: Asked, wanted: _Wanted, wait_s: float, clock: Clock) -> int:
    """Take messages until there are enough or the time is over; return how many."""
    until = clock.monotonic() + wait_s
    taken = 0
    pause = _Pause(None, None)
    inside = False
    trouble: StorageError | None
    while True:
        try:
            with access.desk_of(asked) as desk:
                inside = True
                if access.is_ours(desk):
                    taken += _take_ready(desk, wanted, wanted.most - taken)
                    pause = _pause(desk, wanted)
                else:
                    # The host wakes us: nobody has to look again and again.
                    patience = max(0.0, until - clock.monotonic())
                    taken += _take_ready(desk, wanted, wanted.most - taken, patience)
            trouble = None
        except StorageError as error:
            # After the first time somebody came in while we waited outside, or a host that we
            # were connected to has ended: we go on, if there is time left.
            if not inside or not (isinstance(error, StoreInUse) or error.retryable):
                raise
            trouble = error
        enough = taken >= wanted.most or (taken > 0 and not wanted.ack)
        if enough or not _wait(asked, pause, until, clock):
            if trouble is not None and taken == 0:
                raise trouble
            return taken


def _pause(desk: Desk, wanted: _Wanted) -> _Pause:
    group = desk.group(desk.existing_queue(wanted.queue), wanted.group)
    return _Pause(desk.store.epoch, group.index.next_due())


def _wait(asked: Asked, pause: _Pause, until: float, clock: Clock) -> bool:
    """Wait outside, in nobody's way, for a change. False: the time is over."""
    if until <= clock.monotonic():
        return False
    onlooker = access.look(asked)
    before = onlooker.signature()
    if pause.epoch is not None and access.look(asked).meta.get("epoch") != pause.epoch:
        return True  # somebody was there between our leaving and our first look
    while (left := until - clock.monotonic()) > 0:
        time.sleep(min(_LOOK_S, left))
        due = pause.due_ms is not None and pause.due_ms <= onlooker.now_ms()
        if due or onlooker.signature() != before:
            return True
    return False


def _take_ready(desk: DeskPort, wanted: _Wanted, most: int, patience: float = 0.0) -> int:
    """Take, print and settle messages; wait for the first up to `patience` seconds."""
    queue = access.queue_in(desk, wanted.queue)
    group = desk.group(queue, wanted.group)
    held: list[Lease] = []
    taken = 0
    from embedq.broker.endings import DONE, RELEASED  # noqa: PLC0415  # --help needs none

    while taken < most:
        # A host elsewhere sees to it by itself that large bodies come one by one.
        portion = 1 if getattr(queue, "large", False) else _PORTION
        leases = desk.wait_claim(group, min(portion, most - taken), 0.0 if taken else patience)
        if not leases:
            break
        held += leases
        for lease in leases:
            _print(desk, wanted, lease)
        output.flush()
        if wanted.ack:
            desk.settle([(lease, DONE) for lease in leases])
            held.clear()
        taken += len(leases)
    desk.settle([(lease, RELEASED) for lease in held])
    return taken


def _print(desk: DeskPort, wanted: _Wanted, lease: Lease) -> None:
    message = lease.message
    if wanted.json:
        told = json_message(desk.ids, wanted.queue, message)
        told |= {
            "group": wanted.group,
            "attempt": lease.attempt,
            "max_attempts": lease.max_attempts or None,
        }
        output.line(told)
    elif wanted.raw or not _is_terminal():
        output.raw(message.body + b"\n" if wanted.most > 1 else message.body)
    else:
        output.say(body_text(message.body))


def _is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()
