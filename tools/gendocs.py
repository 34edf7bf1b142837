"""Renders the lifecycle, errors, limits, events and command line pages from the modules.

Knows: the tables in embedq/lifecycle.py, errors.py, limits.py, catalogue.py and cli/exits.py,
their comments, and the help of every command.
Does not know: any other page; `--check` writes nothing and fails when a page is stale.
"""

import argparse
import ast
import inspect
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
# Runs from a checkout that is not installed, too.
sys.path.insert(0, str(ROOT))

import click  # noqa: E402

from embedq import catalogue, decisions, errors, lifecycle, limits  # noqa: E402
from embedq.cli import exits, program  # noqa: E402
from embedq.net import limits as net_limits  # noqa: E402

FIX: Final = "python3 tools/gendocs.py"
_ABSENT: Final = "-"
_HELP_WIDTH: Final = 92


def comments_of(module: ModuleType, class_name: str) -> dict[str, str]:
    """Return the `#:` comments above the fields of a class, by field, each as one line."""
    source = inspect.getsource(module)
    lines = source.splitlines()
    (wanted,) = (
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef) and node.name == class_name
    )
    found: dict[str, str] = {}
    for node in wanted.body:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                found[name] = _comment_above(lines, node.lineno - 1)
            case _:
                continue
    return found


def _comment_above(lines: Sequence[str], index: int) -> str:
    parts: list[str] = []
    while index and lines[index - 1].strip().startswith("#:"):
        index -= 1
        parts.insert(0, lines[index].strip()[2:].strip())
    return " ".join(parts)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _page(title: str, source: str, *parts: str) -> str:
    note = f"Made from `{source}` by `tools/gendocs.py`: change that file, not this page."
    return "\n\n".join([f"# {title}", note, *parts]) + "\n"


def _state(state: lifecycle.State | None) -> str:
    return _ABSENT if state is None else state.value


def render_lifecycle() -> str:
    """Return docs/lifecycle.md."""
    states = comments_of(lifecycle, "State")
    outcomes = comments_of(lifecycle, "Outcome")
    reasons = comments_of(lifecycle, "Reason")
    arrows: dict[tuple[str, str], list[str]] = {}
    for row in lifecycle.TRANSITIONS:
        ends = (row.source or "[*]", row.target or "[*]")
        arrows.setdefault(ends, []).append(row.event.value)
    diagram = "\n".join(
        f"    {source} --> {target}: {', '.join(events)}"
        for (source, target), events in arrows.items()
    )
    rows = [
        (
            f"`{row.event}`",
            _state(row.source),
            _state(row.target),
            "yes" if row.counts_attempt else "no",
            _ABSENT if row.outcome is None else f"{row.outcome.value} {row.outcome.name.lower()}",
            row.note,
        )
        for row in lifecycle.TRANSITIONS
    ]
    return _page(
        "The life cycle of a message",
        "embedq/lifecycle.py",
        "A message has one state in each consumer group. `-` is a message that is not there: "
        "not put yet, or gone.",
        _table(("state", "meaning"), [(f"`{s}`", states[s.name]) for s in lifecycle.State]),
        "## Transitions",
        "What is not in this table cannot happen. *Attempt*: whether a delivery that ends this "
        "way counts against `max_attempts`. *Outcome*: how the delivery is closed in the history.",
        _table(("event", "from", "to", "attempt", "outcome", "note"), rows),
        f"```mermaid\nstateDiagram-v2\n{diagram}\n```",
        "## Outcomes",
        f"Stored with every closed delivery. From {lifecycle.FINAL} on the message is over in "
        "its group; smaller ones lead to another attempt.",
        _table(
            ("number", "outcome", "meaning"),
            [(str(o.value), f"`{o.name.lower()}`", outcomes[o.name]) for o in lifecycle.Outcome],
        ),
        "## Reasons of dead letters",
        _table(("reason", "meaning"), [(f"`{r}`", reasons[r.name]) for r in lifecycle.Reason]),
    )


def tree_of(root: type[Exception]) -> list[tuple[int, type[Exception]]]:
    """Return `root` and its subclasses in the order of the source, with their depth."""
    found = [(0, root)]
    for child in root.__subclasses__():
        if child.__module__ == root.__module__:
            found += [(depth + 1, kind) for depth, kind in tree_of(child)]
    return found


def _first_line(kind: type) -> str:
    return (kind.__doc__ or "").strip().splitlines()[0]


def render_errors() -> str:
    """Return docs/errors.md."""
    tree = tree_of(errors.EmbedqError)
    drawing = "\n".join(f"{'    ' * depth}{kind.__name__}" for depth, kind in tree)
    rows = [
        (
            f"`{kind.__name__}`",
            f"`{kind.code}`",
            "yes" if kind.retryable else "no",
            _first_line(kind),
            kind.hint or _ABSENT,
        )
        for _, kind in tree
        if issubclass(kind, errors.EmbedqError)
    ]
    outcomes = [
        (f"`{kind.__name__}`", _first_line(kind)) for _, kind in tree_of(decisions.DeliveryOutcome)
    ]
    return _page(
        "Errors",
        "embedq/errors.py",
        "Everything that embedq raises on purpose is an `EmbedqError` with a stable `code`, a "
        "`hint` (the next step) and `details` (facts for programs). *Retryable*: the same call "
        "is worth repeating after a pause.",
        f"```text\n{drawing}\n```",
        _table(("error", "code", "retryable", "when", "hint"), rows),
        "## Not errors: what a handler raises to decide",
        _table(("exception", "meaning"), outcomes),
    )


def render_limits() -> str:
    """Return docs/limits.md."""

    def table(module: ModuleType, kind: str, values: object) -> str:
        rows = []
        for name, comment in comments_of(module, kind).items():
            unit, _, reason = comment.partition(":")
            value = getattr(values, name)
            rows.append((f"`{name}`", _number(value), unit.strip(), reason.strip()))
        return _table(("limit", "value", "unit", "what and why"), rows)

    return _page(
        "Limits",
        "embedq/limits.py",
        "Beyond a limit of a message or a call there is a `LimitExceeded`, `InvalidName` or "
        "`InvalidOption` that names it. The others are bounds of the machinery.",
        table(limits, "Limits", limits.LIMITS),
        "## Of a listener\n\n`embedq.net.NetLimits`, from embedq/net/limits.py. A client that is "
        "over one of them pays with its own connection. A time of 0 is no bound.",
        table(net_limits, "NetLimits", net_limits.NET_LIMITS),
    )


def render_events() -> str:
    """Return docs/events.md."""
    rows = [
        (
            f"`{name}`",
            spec.level_name,
            ", ".join(f"`{field}`" for field in spec.fields),
            spec.note,
        )
        for name, spec in catalogue.CATALOGUE.items()
    ]
    return _page(
        "Events",
        "embedq/catalogue.py",
        "`broker.on(name, listener)` calls `listener(notice)` after the fact, on a thread of its "
        "own, one event after the other; `*` is every event. `notice.name`, `notice.at` (seconds "
        "since 1970), `notice.fields` (a dict), `notice.text` (one sentence).",
        "The logger `embedq` gets the same sentence at the level below, with `record.event` (the "
        "name) and `record.embedq` (the fields). Events of the level *counted* happen for every "
        "message: nobody can listen to them, `stats().events` says how often they and all others "
        "have happened since the host opened.",
        "No event carries a body. Names and fields are an API: none is renamed, fields are only "
        "added.",
        _table(("event", "level", "fields", "meaning"), rows),
        "## Fields",
        _table(
            ("field", "what it holds"),
            [(f"`{name}`", meaning) for name, meaning in catalogue.FIELDS.items()],
        ),
    )


def help_texts(command: click.Command, context: click.Context) -> Iterable[tuple[str, str]]:
    """Go through a command and those below it: (the words that call it, its help)."""
    yield context.command_path, command.get_help(context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None:
                yield from help_texts(below, click.Context(below, info_name=name, parent=context))


def render_cli() -> str:
    """Return docs/cli.md."""
    root = program.program
    settings = {**root.context_settings, "terminal_width": _HELP_WIDTH}
    context = click.Context(root, info_name="embedq", **settings)
    parts = [f"## `{path}`\n\n```text\n{text}\n```" for path, text in help_texts(root, context)]
    rows = [
        (
            str(code.value),
            text,
            ", ".join(f"`{kind.__name__}`" for kind, its in exits.ROWS if its is code) or _ABSENT,
        )
        for code, text in exits.MEANINGS.items()
    ]
    return _page(
        "The command line",
        "embedq/cli/",
        "`embedq`, or `python -m embedq`. The database is `--db PATH`, else what a broker in this "
        "folder would use: the environment variable `EMBEDQ_PATH`, else `path` in `[tool.embedq]` "
        "of the nearest `pyproject.toml`; `embedq config` shows which.",
        "## Beside a running application",
        "`peek`, `queues`, `stats`, `dead list`, `dead show`, `doctor`, `check` and `backup` read "
        "the file from outside, in snapshots, while an application is its host; they change "
        "nothing and are in nobody's way. What they count is exact at one moment, unless they say "
        "otherwise: beyond 200,000 messages they count in several steps while the host goes on. "
        "What only the memory of the host knows (deliveries per second, who waits) they cannot "
        "say.\n\n"
        "All other commands are connected to the application, which does what they ask; `get "
        "--timeout` waits there and is woken. Where there is no host they have the file to "
        "themselves for as long as they run, serve nobody, and never become the host for others: "
        "a command whose application ends fails, or, if it is `get` and has time left, waits for "
        "the next one. They wait up to three seconds for each command before them, and for an "
        "application that is just starting; one that serves nobody at all makes them end with "
        "3.\n\n"
        "`pipeline archive`, `report` and `triage` read the file beside the host as well, in many "
        "processes. `pipeline redrive` needs the host when it moves letters, and `pipeline "
        "replay` all the time: where there is none, it is the host while it runs, and serves "
        "Spark's processes and others. They need `pip install 'embedq[spark]'`, take some seconds "
        "to start, and end everything that they have started, also at Ctrl-C "
        "([guide-spark.md](guide-spark.md#pipelines)).",
        "## Running an application",
        "`run`, `worker` and `dev` import an application, named `module:broker` as Python would "
        "import it from the current folder, and run its consumers until Ctrl-C or SIGTERM; then "
        "handlers finish, what does not finish in time is given back, and the exit code is 0. A "
        "second signal ends the grace. `run` becomes the host of the file, or is connected to the "
        "process that is. `worker` adds consumers beside it, all or those of some queues, on "
        "threads as they say or in `--processes`; it is connected wherever there is a host. "
        "`dev` keeps the host in a process of its own and replaces the consumers when code has "
        "changed: [guide.md](guide.md#developing). `--db` names another file than the broker's. "
        "An application that cannot be found or imported ends `run` and `worker` with 2, after "
        "its traceback; `dev` waits for a better one.",
        "## `--json`",
        "Every command takes it. Results are one JSON document on standard output; `get` and "
        "`put --lines` print one line of JSON for each message, as they go. Times are UTC "
        "(`2030-01-31T08:00:00.000Z`), spans are seconds (`…_s`). A body is text with `encoding` "
        "`utf-8`, or else `base64`. Everything beyond ASCII is escaped. An error is one line on "
        'standard error, `{"error": {"code", "message", "hint", "details"}}`, with '
        "the codes of [errors.md](errors.md), and `usage`, `io`, `defect`. There are no progress "
        "bars and no questions: what removes needs `--yes`. Fields are only added, never renamed.",
        "## Bodies on a terminal",
        "Control characters, and characters that hide or turn text around, are shown as escapes, "
        "so that no message can make the terminal obey it. Into a file or a pipe `get` writes the "
        "bytes as they are.",
        "## Exit codes",
        _table(("code", "meaning", "errors"), rows),
        *parts,
    )


def _number(value: float) -> str:
    if isinstance(value, int) and value >= limits.MIB and value % limits.MIB == 0:
        return f"{value // limits.MIB} Mi"
    if isinstance(value, int) and value >= limits.KIB and value % limits.KIB == 0:
        return f"{value // limits.KIB} Ki"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.10g}"


PAGES: Final[dict[str, Callable[[], str]]] = {
    "lifecycle.md": render_lifecycle,
    "errors.md": render_errors,
    "limits.md": render_limits,
    "events.md": render_events,
    "cli.md": render_cli,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pages, or with --check compare them; return 1 when one is stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if stale")
    parser.add_argument("--out", type=Path, default=ROOT / "docs", help="folder of the pages")
    options = parser.parse_args(arguments)
    stale = []
    for name, render in PAGES.items():
        path: Path = options.out / name
        text = render()
        current = path.read_text(encoding="utf-8") if path.exists() else None
        if current == text:
            continue
        stale.append(name)
        if not options.check:
            path.write_text(text, encoding="utf-8")
    verb = "stale" if options.check else "written"
    for name in stale:
        print(f"{verb}: {options.out / name}")
    if stale and options.check:
        print(f"fix: {FIX}")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
