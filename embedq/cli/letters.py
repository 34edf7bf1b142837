"""`embedq dead list`, `show`, `redrive` and `purge`.

Knows: how letters are chosen on a command line, and how one is laid out.
Does not know: how they are moved.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import click

from embedq.cli import access, output
from embedq.cli.asked import Asked, asks, pass_asked, seconds
from embedq.cli.control import confirm
from embedq.cli.looking import find_queue
from embedq.cli.showing import age, body_text, counted, cut, fields, iso, preview, table, when
from embedq.errors import UnknownMessage
from embedq.lifecycle import Reason
from embedq.payload import content_type
from embedq.printable import plain

if TYPE_CHECKING:
    from embedq.broker.letters import Letters
    from embedq.broker.redaction import Redact
    from embedq.message import AttemptRecord, DeadLetter
    from embedq.storage.onlooker import Onlooker
    from embedq.storage.rows import GroupRow

F = TypeVar("F", bound=Callable[..., Any])

_BY: Final = "command line"
_MOST: Final = 10_000
_NUMBER: Final = re.compile("[1-9][0-9]{0,17}")


def _filters(command: F) -> F:
    for option in (
        click.option("--error", metavar="TEXT", help="Only whose last error has this text."),
        click.option("--group", help="Only of this consumer group."),
        click.option("--since", metavar="DURATION", help="Only what died within so long: 2h."),
        click.option(
            "--reason", type=click.Choice([str(reason) for reason in Reason]), help="Only these."
        ),
    ):
        command = option(command)
    return command


def _wanted(filters: dict[str, str | None]) -> dict[str, Any]:
    """Return the filters as the broker room wants them."""
    since = filters["since"]
    return {**filters, "since": None if since is None else seconds(since, "--since")}


class _Rack(NamedTuple):
    """A queue whose letters are looked at from outside."""

    id: int
    name: str
    groups: list[GroupRow]


def _letters(onlooker: Onlooker, queue: str, redact: Redact | None) -> Letters:
    from embedq.broker.letters import Letters  # noqa: PLC0415  # not for --help

    row = find_queue(onlooker, queue)
    groups = [group for group in onlooker.catalogue()[1] if group.queue == row.id]
    rack = _Rack(row.id, row.name, groups)
    return Letters(rack, onlooker, onlooker.ids, onlooker.now_ms, lambda: redact)


@click.command("list")
@click.argument("queue", required=False)
@_filters
@click.option(
    "--limit", type=click.IntRange(1, _MOST), default=100, show_default=True, help="So many."
)
@click.option("--after", type=int, default=0, help="Only after the letter of this number.")
@asks
@pass_asked
def list_letters(
    asked: Asked, /, queue: str | None, limit: int, after: int, **filters: str | None
) -> None:
    """List the dead letters of QUEUE, or of all queues, in the order of dying."""
    onlooker = access.look(asked)
    names = [queue] if queue is not None else [row.name for row in onlooker.catalogue()[0]]
    wanted = _wanted(filters)
    redact = access.settings_of(asked).redact
    found: list[DeadLetter] = []
    for name in names:
        if len(found) < limit:
            letters = _letters(onlooker, name, redact)
            found += letters.list(limit=limit - len(found), after=after, **wanted)
    if asked.json:
        told = [_json_letter(letter, whole=False) for letter in found]
        output.document({"letters": told})
    elif found:
        output.say(_listing(found, onlooker.now_ms()))
    else:
        output.say("no dead letters")


def _listing(found: list[DeadLetter], now: int) -> str:
    rows = [
        (
            str(letter.number),
            letter.id,
            letter.queue,
            letter.group,
            letter.reason,
            age((now - letter.died_ms) / 1000),
            str(len(letter.attempts)),
            cut(_last_words(letter)),
        )
        for letter in found
    ]
    head = ("NO", "ID", "QUEUE", "GROUP", "REASON", "DIED", "ATTEMPTS", "LAST ERROR")
    return table(head, rows, right="NO DIED ATTEMPTS")


def _last_words(letter: DeadLetter) -> str:
    error = letter.attempts[-1].error if letter.attempts else None
    return letter.detail if error is None else f"{error.type}: {error.message}"


@click.command()
@click.argument("queue")
@click.argument("id", metavar="ID|NO")
@click.option("--group", help="The letter of this consumer group.")
@click.option("--raw", is_flag=True, help="Write the body only, byte by byte as it is.")
@asks
@pass_asked
def show(asked: Asked, queue: str, id: str, group: str | None, *, raw: bool) -> None:
    """Show the dead letter ID of QUEUE: why, its headers, every attempt, its body.

    NO, the first column of `embedq dead list`, will do: it names one letter of one group.
    The setting `redact` hides secrets in texts and headers here, too; bodies are not changed.
    """
    redact = access.settings_of(asked).redact
    letter = _named(_letters(access.look(asked), queue, redact), queue, id, group)
    if raw:
        output.raw(letter.body)
    elif asked.json:
        output.document(_json_letter(letter, whole=True))
    else:
        output.say(_letter_text(letter))


def _named(letters: Letters, queue: str, word: str, group: str | None) -> DeadLetter:
    """Return the letter of an id, or of a number: no id is as short as one of those."""
    if not _NUMBER.fullmatch(word):
        return letters.show(word, group)
    number = int(word)
    for letter in letters.list(after=number - 1, limit=1):
        if letter.number == number and group in {None, letter.group}:
            return letter
    raise UnknownMessage(
        f"queue {queue!r} has no dead letter of number {number}",
        hint="the first column of `embedq dead list` has the numbers",
    )


def _letter_text(letter: DeadLetter) -> str:
    parts = [
        fields(
            [
                ("id", letter.id),
                ("number", str(letter.number)),
                ("queue", letter.queue),
                ("group", letter.group),
                ("reason", letter.reason),
                ("detail", letter.detail),
                ("put", when(letter.put_at_ms)),
                ("died", when(letter.died_ms)),
                ("moved by", letter.moved_by),
                ("priority", str(letter.priority)),
                ("ordering key", letter.ordering_key or ""),
                ("content type", content_type(letter.kind)),
                *((f"header {plain(n)}", v) for n, v in (letter.headers or {}).items()),
            ]
        )
    ]
    parts += [_attempt_text(record) for record in letter.attempts]
    parts.append(f"body, {counted(len(letter.body), 'byte')}:\n{body_text(letter.body)}")
    return "\n\n".join(parts)


def _attempt_text(record: AttemptRecord) -> str:
    outcome = "open" if record.outcome is None else record.outcome.name.lower()
    took = None if record.ended_ms is None else (record.ended_ms - record.started_ms) / 1000
    head = f"attempt {record.attempt}: {outcome} after {age(took)}, {when(record.started_ms)}"
    if record.worker:
        head += f", {plain(record.worker)}"
    error = record.error
    if error is None:
        return head
    text = f"{head}\n  {plain(error.type)}: {plain(error.message)}"
    lines = [plain(line) for line in error.traceback.splitlines()]
    return "\n".join([text, *(f"  | {line}" for line in lines)])


def _json_letter(letter: DeadLetter, *, whole: bool) -> dict[str, object]:
    told: dict[str, object] = {
        "id": letter.id,
        "seq": letter.seq,
        "number": letter.number,
        "queue": letter.queue,
        "group": letter.group,
        "reason": letter.reason,
        "detail": letter.detail,
        "put_at": iso(letter.put_at_ms),
        "died_at": iso(letter.died_ms),
        "moved_by": letter.moved_by,
        "attempts": len(letter.attempts),
        "last_error": _last_words(letter),
    }
    if not whole:
        return {**told, "preview": preview(letter.body)}
    return {
        **told,
        "attempts": [_json_attempt(record) for record in letter.attempts],
        "priority": letter.priority,
        "ordering_key": letter.ordering_key,
        "headers": None if letter.headers is None else dict(letter.headers),
        "content_type": content_type(letter.kind),
        **output.json_body(letter.body),
    }


def _json_attempt(record: AttemptRecord) -> dict[str, object]:
    error = record.error
    return {
        "attempt": record.attempt,
        "started_at": iso(record.started_ms),
        "ended_at": iso(record.ended_ms),
        "worker": record.worker,
        "outcome": None if record.outcome is None else record.outcome.name.lower(),
        "error": None
        if error is None
        else {"type": error.type, "message": error.message, "traceback": error.traceback},
    }


# ------------------------------------------------------------------------------- moving


def _moving(command: F) -> F:
    for option in (
        click.option("--limit", type=click.IntRange(1), help="At most so many."),
        click.option("--all", "everything", is_flag=True, help="All dead letters of the queue."),
    ):
        command = option(command)
    return _filters(command)


def _check_choice(
    ids: tuple[str, ...], filters: dict[str, str | None], *, everything: bool
) -> None:
    chosen = bool(ids) or any(filters.values())
    if chosen == everything:
        raise click.UsageError("say which: ids, or filters, or --all")


@click.command()
@click.argument("queue")
@click.argument("ids", metavar="[ID]...", nargs=-1)
@_moving
@asks
@pass_asked
def redrive(
    asked: Asked,
    /,
    queue: str,
    ids: tuple[str, ...],
    limit: int | None,
    *,
    everything: bool,
    **filters: str | None,
) -> None:
    """Put dead letters of QUEUE again as new messages: those named, those that fit, or --all.

    The new messages have the header redriven-from. Many are moved in parts, each of them whole or
    not at all; after an interruption the same command goes on with the rest.
    """
    from embedq.app.letters import DeadLetters  # noqa: PLC0415  # not for --help

    _check_choice(ids, filters, everything=everything)
    label = f"redriving {plain(queue)}"
    with (
        access.desk_of(asked) as desk,
        output.Progress(label, as_json=asked.json) as bar,
    ):
        letters = DeadLetters(desk, access.queue_in(desk, queue))
        total = min(limit or len(letters), len(letters)) if everything else 0
        receipts = letters.redrive(
            *ids,
            **_wanted(filters),
            limit=limit,
            by=_BY,
            progress=lambda done, _total: bar(done, total),
        )
    if asked.json:
        told = [{"id": receipt.id, "seq": receipt.seq} for receipt in receipts]
        output.document({"queue": queue, "redriven": len(receipts), "messages": told})
    else:
        output.say(f"{counted(len(receipts), 'dead letter')} put again into {plain(queue)}")


@click.command("purge")
@click.argument("queue")
@click.argument("ids", metavar="[ID]...", nargs=-1)
@_moving
@click.option("--yes", is_flag=True, help="Do not ask.")
@asks
@pass_asked
def purge(
    asked: Asked,
    /,
    queue: str,
    ids: tuple[str, ...],
    limit: int | None,
    *,
    everything: bool,
    yes: bool,
    **filters: str | None,
) -> None:
    """Remove dead letters of QUEUE: those named, those that fit, or --all. Cannot be undone."""
    from embedq.app.letters import DeadLetters  # noqa: PLC0415  # not for --help

    _check_choice(ids, filters, everything=everything)
    confirm(f"Remove dead letters of {queue!r}?", yes=yes)
    with (
        access.desk_of(asked) as desk,
        output.Progress(f"purging dead letters of {plain(queue)}", as_json=asked.json) as bar,
    ):
        letters = DeadLetters(desk, access.queue_in(desk, queue))
        total = min(limit or len(letters), len(letters)) if everything else 0
        removed = letters.purge(
            *ids,
            **_wanted(filters),
            limit=limit,
            progress=lambda done, _total: bar(done, total),
        )
    if asked.json:
        output.document({"queue": queue, "removed": removed})
    else:
        output.say(f"{counted(removed, 'dead letter')} removed")
