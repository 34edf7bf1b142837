"""`embedq doctor`: one look at everything that can be wrong with a database and around it.

Knows: what is examined, in which order, and how the result is shown.
Does not know: what each examination thinks (place.py, contents.py).
"""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

import click

import embedq
from embedq.cli import access, contents, output, place
from embedq.cli.asked import Asked, asks, pass_asked
from embedq.cli.care import finding_text, json_finding
from embedq.cli.exits import Exit
from embedq.cli.looking import host_for_json, host_text
from embedq.cli.showing import counted, fields
from embedq.errors import EmbedqError, NotAnEmbedqFile, SchemaTooNew, StoreCorrupt
from embedq.limits import LIMITS
from embedq.printable import plain
from embedq.storage.census import take
from embedq.storage.inspect import Finding, Severity
from embedq.storage.onlooker import Onlooker
from embedq.storage.owners import owner_of

if TYPE_CHECKING:
    from embedq.storage.census import Census
    from embedq.storage.owners import Owner

#: What `--json` and the list of facts show of the limits: those a disk or a memory can hit.
_LIMITS = (
    "body_bytes",
    "batch_messages",
    "disk_watermark_bytes",
    "ballast_bytes",
    "wal_limit_bytes",
    "busy_timeout_s",
    "max_crashes",
)


@click.command()
@click.option("--skip-check", is_flag=True, help="Do not let SQLite check the file.")
@asks
@pass_asked
def doctor(asked: Asked, *, skip_check: bool) -> int:
    """Examine the database and what is around it; say what is wrong and what to do about it.

    Changes nothing, and works beside a live host. Findings are damage (exit code 5), warnings
    (the store works, but something is not as it should be) and notes (good to know). `embedq
    check` looks at every row.
    """
    path = access.path_of(asked)
    facts: list[tuple[str, str]] = [
        ("embedq", embedq.__version__),
        ("Python", f"{platform.python_version()} on {platform.system()} {platform.release()}"),
    ]
    owner = owner_of(path)
    findings = [*place.examine(path, owner, facts)]
    facts.append(("host", host_text(owner)))
    census = _look_inside(path, owner, facts, findings, check=not skip_check)
    order = list(Severity)
    findings.sort(key=lambda finding: order.index(finding.severity))
    if asked.json:
        output.document(_told(path, owner, facts, findings, census))
    else:
        output.say(f"{fields(facts)}\n")
        for finding in findings:
            output.say(finding_text(finding))
        counts = ", ".join(
            _counted(sum(finding.severity is severity for finding in findings), severity)
            for severity in order
        )
        output.say(f"{plain(path)}: {counts}")
    damaged = any(finding.severity is Severity.DAMAGE for finding in findings)
    return Exit.DAMAGE if damaged else Exit.OK


def _counted(count: int, severity: Severity) -> str:
    return f"{count} {severity}" if severity is Severity.DAMAGE else counted(count, str(severity))


def _look_inside(
    path: str,
    owner: Owner | None,
    facts: list[tuple[str, str]],
    findings: list[Finding],
    *,
    check: bool,
) -> Census | None:
    """Examine the content. Damage becomes a finding; somebody else's file remains an error."""
    alive = owner is not None and owner.alive
    try:
        onlooker = Onlooker(path)
        if check:
            found = onlooker.quick_check()
            findings += contents.structure(found)
            facts.append(("quick check", "ok" if not found else "damage found"))
        census = take(onlooker, alive=alive)
        findings += contents.examine(onlooker, owner, census, facts)
    except (NotAnEmbedqFile, SchemaTooNew):
        raise
    except StoreCorrupt as error:
        findings.append(Finding(Severity.DAMAGE, error.message, error.hint or ""))
    except EmbedqError as error:
        findings.append(Finding(Severity.WARNING, error.message, error.hint or ""))
    else:
        return census
    return None


def _told(
    path: str,
    owner: Owner | None,
    facts: list[tuple[str, str]],
    findings: list[Finding],
    census: Census | None,
) -> dict[str, object]:
    return {
        "path": path,
        "host": host_for_json(owner),
        "facts": {name.replace(" ", "_").lower(): value for name, value in facts},
        "exact": None if census is None else census.exact,
        "limits": {name: getattr(LIMITS, name) for name in _LIMITS},
        "findings": [json_finding(finding) for finding in findings],
    }
