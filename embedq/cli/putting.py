"""`embedq put`: one message from an argument, a file or standard input, or one for each line.

Knows: how bodies and options are written on a command line.
Does not know: how messages are stored.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click

from embedq.cli import access, output
from embedq.cli.asked import Asked, asks, pass_asked, seconds
from embedq.cli.lines import Portion, portions
from embedq.cli.showing import counted
from embedq.clock import SystemClock
from embedq.errors import EmbedqError, InvalidOption, InvalidPayload, LimitExceeded
from embedq.limits import LIMITS
from embedq.names import check_queue_name

if TYPE_CHECKING:
    from embedq.app.options import PutOptions
    from embedq.broker.port import DeskPort
    from embedq.message import Receipt

_BYTES, _TEXT, _JSON = range(3)
_KINDS: Final = {
    "bytes": _BYTES,
    "application/octet-stream": _BYTES,
    "text": _TEXT,
    "text/plain": _TEXT,
    "text/plain;charset=utf-8": _TEXT,
    "json": _JSON,
    "application/json": _JSON,
}
_NUMBER: Final = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?", re.ASCII)
_ENDLESS: Final = "endless"
_STDIN: Final = "-"


@click.command()
@click.argument("queue")
@click.argument("body", required=False)
@click.option(
    "--file",
    type=click.Path(exists=True, dir_okay=False, readable=True, path_type=Path),
    help="Take the body from a file.",
)
@click.option("--lines", is_flag=True, help="One message for each line of the body.")
@click.option(
    "--delay", metavar="DURATION", help="Deliverable only after so long: 30s, 5m, 1h30m."
)
@click.option(
    "--at",
    metavar="TIME",
    help="Deliverable only at a time: 2027-01-31T08:00 (local unless it has a zone), or seconds "
    "since 1970.",
)
@click.option("--ttl", metavar="DURATION", help="Dead-letter it if not delivered within so long.")
@click.option("--priority", type=click.IntRange(0, LIMITS.priority_max), default=0, help="0 to 9.")
@click.option(
    "--dedup-key", metavar="KEY", help="Not stored twice with the same key in 10 minutes."
)
@click.option("--ordering-key", metavar="KEY", help="Messages of one key go one after another.")
@click.option("--header", "headers", metavar="NAME=VALUE", multiple=True, help="May be repeated.")
@click.option("--max-attempts", metavar="N", help="1 to 255, or endless. Default: the queue's.")
@click.option(
    "--content-type",
    metavar="TYPE",
    help="text, json, bytes, or what they stand for in MIME. Default: text if the body is UTF-8, "
    "else bytes.",
)
@asks
@pass_asked
def put(
    asked: Asked,
    /,
    queue: str,
    body: str | None,
    file: Path | None,
    content_type: str | None,
    *,
    lines: bool,
    **options: Any,  # noqa: ANN401  # the options of a message, as click read them
) -> None:
    """Put a message into QUEUE, which is created if need be, and so is the database.

    The body is the argument BODY, or a file (--file), or standard input (BODY is "-"). The id of
    the message is printed once it is stored. With --lines every line is a message, without its
    line end; they are stored in the order of the lines, as they come.

    \b
    Examples:
      embedq put orders '{"id": 17}' --content-type json
      embedq put orders "call back" --delay 5m --header from=web
      printf 'one\\ntwo\\n' | embedq put orders - --lines
    """  # noqa: D301  # click wants that character
    check_queue_name(queue)
    kind = _kind(content_type)
    said = _options(options)
    if lines and "dedup_key" in said:
        raise InvalidOption(
            "--dedup-key would make one message of all --lines",
            hint="a key belongs to one message: put each line with its own",
            argument="dedup_key",
        )
    with ExitStack() as opened:
        source = _source(body, file, opened)
        if lines:
            _put_lines(asked, queue, kind, said, source)
            return
        data = source if isinstance(source, bytes) else _read(source)
    bodies = [(_kind_of(data, kind), data)]  # before a file is made for what is refused
    with access.desk_of(asked, create=True) as desk:
        (receipt,) = _store(desk, queue, said, bodies)
    if asked.json:
        output.document(_told(receipt, queue))
    else:
        output.say(receipt.id)
        if receipt.duplicate:
            output.note("not stored again: the dedup key is known", as_json=False)


def _kind(content_type: str | None) -> int | None:
    if content_type is None:
        return None
    known = _KINDS.get(content_type.lower().replace(" ", ""))
    if known is None:
        raise InvalidOption(
            f"--content-type {content_type!r} is not known",
            hint="use text, json or bytes; any other type fits in a header",
            argument="content_type",
        )
    return known


def _options(options: dict[str, Any]) -> PutOptions:
    said: dict[str, Any] = {"priority": options["priority"]}
    for name in ("delay", "ttl"):
        if options[name] is not None:
            said[name] = seconds(options[name], f"--{name}")
    if options["at"] is not None:
        said["at"] = _moment(options["at"])
    for name in ("dedup_key", "ordering_key"):
        if options[name] is not None:
            said[name] = options[name]
    if options["headers"]:
        said["headers"] = _headers(options["headers"])
    attempts = options["max_attempts"]
    if attempts is not None:
        said["max_attempts"] = None if attempts == _ENDLESS else _attempts(attempts)
    return said  # type: ignore[return-value]  # the names are those of PutOptions


def _attempts(text: str) -> int:
    with suppress(ValueError):
        attempts = int(text)
        if 1 <= attempts <= LIMITS.attempts_max:
            return attempts
    raise InvalidOption(
        f"--max-attempts {text!r} is not a number from 1 to {LIMITS.attempts_max}",
        hint=f"write a number, or {_ENDLESS}",
        argument="max_attempts",
    )


def _moment(text: str) -> float:
    at: float | None
    try:
        at = (
            float(text)
            if _NUMBER.fullmatch(text)
            else datetime.fromisoformat(text).astimezone().timestamp()
        )
    except (ValueError, OverflowError):
        at = None
    if at is None or at - SystemClock().time() > LIMITS.delay_max_s:
        why = "not a time" if at is None else "too far away: a year at most"
        raise InvalidOption(
            f"--at {text!r} is {why}",
            hint="write 2027-01-31T08:00, 2027-01-31T08:00Z, or seconds since 1970",
            argument="at",
        )
    return at


def _headers(pairs: Sequence[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or name in headers:
            why = "is there twice" if equals else "has no ="
            raise InvalidOption(
                f"--header {pair!r} {why}", hint="write --header NAME=VALUE", argument="header"
            )
        headers[name] = value
    return headers


# ------------------------------------------------------------------------------- bodies


def _source(body: str | None, file: Path | None, opened: ExitStack) -> bytes | BinaryIO:
    if file is not None:
        if body is not None:
            raise click.UsageError("BODY and --file were both given: say one")
        return opened.enter_context(file.open("rb"))
    if body is None:
        raise click.UsageError('there is no body: write it, or --file PATH, or "-" for stdin')
    if body != _STDIN:
        return os.fsencode(body)  # the bytes that the shell passed, whatever they are
    if sys.stdin is None:
        raise click.UsageError("there is no body: the standard input is closed")
    return sys.stdin.buffer


def _read(source: BinaryIO) -> bytes:
    # One byte more than may be: what is larger is refused without reading all of it.
    return source.read(LIMITS.body_bytes + 1)


def _kind_of(body: bytes, kind: int | None) -> int:
    from embedq.payload import decode  # noqa: PLC0415  # --help needs no bodies

    if kind == _BYTES:
        return kind
    try:
        body.decode()
    except UnicodeDecodeError as error:
        if kind is None:
            return _BYTES
        raise InvalidPayload(
            f"the body is not UTF-8: {error.reason} at byte {error.start}",
            hint="use --content-type bytes",
        ) from None
    if kind == _JSON:
        try:
            decode(_JSON, body)
        except InvalidPayload as error:
            raise InvalidPayload(
                error.message, hint="correct it, or put it as text: --content-type text"
            ) from error
    return _TEXT if kind is None else kind


# ------------------------------------------------------------------------------ storing


def _store(
    desk: DeskPort, queue: str, options: PutOptions, bodies: Sequence[tuple[int, bytes]]
) -> list[Receipt]:
    from embedq.app.options import make_draft  # noqa: PLC0415  # --help needs none

    state = desk.declare(queue, {})
    now, window = desk.now_ms(), state.policy.dedup_window_ms
    drafts = [make_draft(kind, body, now, window, options) for kind, body in bodies]
    if state.policy.max_length is None:
        return desk.put_drafts(state, drafts)
    # One by one, so that what there is room for is stored. There may be nobody else to make room:
    # a full queue that blocks would do so for ever.
    return [desk.put_drafts(state, [draft], 0.0)[0] for draft in drafts]


def _told(receipt: Receipt, queue: str) -> dict[str, object]:
    return {
        "id": receipt.id,
        "seq": receipt.seq,
        "queue": queue,
        "duplicate": receipt.duplicate,
    }


def _put_lines(
    asked: Asked, queue: str, kind: int | None, options: PutOptions, source: bytes | BinaryIO
) -> None:
    stored = 0
    with ExitStack() as opened:
        desk: DeskPort | None = None
        try:
            for portion in portions(source):
                if desk is None:
                    desk = opened.enter_context(access.desk_of(asked, create=True))
                receipts = _store_portion(desk, queue, kind, options, portion)
                stored += len(receipts)
                if asked.json:
                    for receipt in receipts:
                        output.line(_told(receipt, queue))
                    output.flush()
                if portion.pause:  # the next line may be a long time away
                    opened.close()
                    desk = None
        except EmbedqError as error:
            _say_how_far(error, stored)
            raise
    if not asked.json:
        output.say(f"{counted(stored, 'message')} in {queue}")


def _store_portion(
    desk: DeskPort, queue: str, kind: int | None, options: PutOptions, portion: Portion
) -> list[Receipt]:
    for number, body in enumerate(portion.lines, portion.first):
        if len(body) > LIMITS.body_bytes:
            raise LimitExceeded(
                f"line {number} is longer than body_bytes={LIMITS.body_bytes}", limit="body_bytes"
            )
    return _store(desk, queue, options, [(_kind_of(body, kind), body) for body in portion.lines])


def _say_how_far(error: EmbedqError, stored: int) -> None:
    error.details["stored_lines"] = stored
    done = f"{counted(stored, 'line')} before it are stored" if stored else "nothing was stored"
    error.hint = f"{done}; {error.hint}" if error.hint else done
