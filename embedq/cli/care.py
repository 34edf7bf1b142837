"""`embedq check`, `backup` and `salvage`: caring for the file.

Knows: how reports are laid out, and that damage is an exit code.
Does not know: how files are checked, copied or saved.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from embedq.cli import access, output
from embedq.cli.asked import Asked, asks, json_option, pass_asked
from embedq.cli.exits import Exit
from embedq.cli.showing import counted, number
from embedq.printable import plain

if TYPE_CHECKING:
    from embedq.storage.inspect import Finding
    from embedq.storage.salvage import Lost

_COLOURS: Final = {"damage": "red", "warning": "yellow", "note": "cyan"}
_FEW: Final = 10


def finding_text(finding: Finding) -> str:
    """Return a finding for people."""
    severity = str(finding.severity)
    text = f"{click.style(severity, fg=_COLOURS[severity])}: {plain(finding.what)}"
    return f"{text}\n  {plain(finding.hint)}" if finding.hint else text


def json_finding(finding: Finding) -> dict[str, str]:
    """Return a finding for JSON."""
    return {"severity": str(finding.severity), "what": finding.what, "hint": finding.hint}


@click.command()
@asks
@pass_asked
def check(asked: Asked) -> int:
    """Check the database file from end to end: structure, promises between tables, every checksum.

    Takes about a second for each 100 MB and changes nothing. Beside a live host it reads one
    snapshot, and the log of the host grows meanwhile. Exit code 5: something is damaged.
    """
    from embedq.storage.inspect import check as check_file  # noqa: PLC0415  # not for --help

    path = os.path.realpath(access.path_of(asked))
    with output.Steps(as_json=asked.json) as steps:
        report = check_file(
            path, progress=lambda what, done, total: steps(f"checking {what}: parts", done, total)
        )
    if asked.json:
        output.document(
            {
                "path": report.path,
                "sound": report.sound,
                "pages": report.pages,
                "messages": report.messages,
                "letters": report.letters,
                "findings": [json_finding(finding) for finding in report.findings],
            }
        )
    else:
        for finding in report.findings:
            output.say(finding_text(finding))
        verdict = "sound" if report.sound else "damaged"
        output.say(
            f"{plain(report.path)} is {verdict}: {counted(report.pages, 'page')}, "
            f"{counted(report.messages, 'message')}, {counted(report.letters, 'dead letter')}"
        )
    return Exit.OK if report.sound else Exit.DAMAGE


@click.command()
@click.argument("target", type=click.Path())
@click.option("--overwrite", is_flag=True, help="Replace TARGET if it exists.")
@asks
@pass_asked
def backup(asked: Asked, target: str, *, overwrite: bool) -> None:
    """Copy the database as it is at this moment into the new file TARGET.

    Works while an application has the file open, and keeps nobody waiting; the log of that host
    grows meanwhile. TARGET is checked and synced before it gets its name.
    """
    onlooker = access.look(asked)
    with output.Progress("copying: pages", as_json=asked.json) as bar:
        report = onlooker.backup(target, overwrite=overwrite, progress=bar)
    if asked.json:
        output.document(
            {
                "path": str(report.path),
                "pages": report.pages,
                "messages": report.messages,
                "seconds": round(report.seconds, 3),
            }
        )
    else:
        output.say(
            f"{plain(str(report.path))}: {counted(report.messages, 'message')}, "
            f"{counted(report.pages, 'page')}, {report.seconds:.1f} s"
        )


@click.command()
@click.argument("source", type=click.Path())
@click.argument("target", type=click.Path())
@json_option
@pass_asked
def salvage(asked: Asked, source: str, target: str) -> int:
    """Bring everything readable of the damaged database SOURCE into the new database TARGET.

    SOURCE is only read. Messages whose content is not what was put become dead letters with the
    reason corrupt. Needs twice the space of SOURCE. Exit code 5: something was lost.
    """
    from embedq.storage.owners import owners_kept_out  # noqa: PLC0415  # not for --help
    from embedq.storage.salvage import salvage as salvage_file  # noqa: PLC0415  # as above

    with (
        owners_kept_out(source),
        output.Steps(as_json=asked.json) as steps,
    ):
        saved = salvage_file(source, target, progress=steps)
    lost = bool(saved.lost or saved.damaged or saved.dropped or saved.lost_frames or saved.notes)
    if asked.json:
        output.document(
            {
                "path": str(saved.path),
                "whole": saved.whole,
                "counts": saved.counts,
                "damaged": saved.damaged,
                "dropped": saved.dropped,
                "lost_frames": saved.lost_frames,
                "lost": [each._asdict() for each in saved.lost],
                "notes": saved.notes,
            }
        )
    else:
        counts = saved.counts
        output.say(
            f"{plain(str(saved.path))}: {counted(counts['msg'], 'message')}, "
            f"{counted(counts['dead'], 'dead letter')} in {counted(counts['queue'], 'queue')}"
        )
        for text in (*_losses(saved.lost), *saved.notes):
            output.say(plain(text))
        if saved.damaged:
            output.say(f"{counted(saved.damaged, 'dead letter')} because of damaged content")
        if not lost:
            output.say("nothing was lost")
    return Exit.DAMAGE if lost else Exit.OK


def _losses(lost: Sequence[Lost]) -> list[str]:
    texts = [
        f"lost or settled before: {each.table} {number(each.first)} to {number(each.last)}"
        for each in lost[:_FEW]
    ]
    if len(lost) > _FEW:
        texts.append(f"and {len(lost) - _FEW} more ranges")
    return texts
