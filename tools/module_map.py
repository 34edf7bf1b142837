"""Draw docs/map.md: every room of the house with the first line of its docstring.

Knows: module docstrings, the folders that hold modules, which names the package exports.
Does not know: what the modules do beyond that line.
"""

from __future__ import annotations

import ast
import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import embedq
from sizes import python_files

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "map.md"
COMMAND = "python tools/module_map.py"
FOLDERS = ("embedq", "pyspark_embedq", "transports/embedq_transports", "tools", "examples")

HEAD = f"""# The map

Made by `{COMMAND}` from the first line of every module's docstring.
The lines after it, in the module, say what it knows and what it must not know.
"""


def first_line(docstring: str | None) -> str:
    """Take the first line of a docstring as a table cell."""
    return (docstring or "").strip().partition("\n")[0].replace("|", "\\|")


def rows(folder: str, paths: list[str]) -> Iterator[str]:
    """Write one table row per module of a folder."""
    for path in paths:
        if Path(path).parent.as_posix() == folder:
            docstring = ast.get_docstring(ast.parse((ROOT / path).read_text(encoding="utf-8")))
            yield f"| [`{Path(path).name}`](../{path}) | {first_line(docstring)} |"


def public_names() -> Iterator[str]:
    """Write one table row per name that `from embedq import …` gives."""
    for name in sorted(getattr(embedq, "__all__", ())):
        thing = getattr(embedq, name)
        if inspect.isclass(thing) or inspect.isroutine(thing):
            yield f"| `{name}` | `{thing.__module__}` | {first_line(thing.__doc__)} |"


def render() -> str:
    """Write the whole page."""
    paths = python_files(ROOT)
    folders = sorted(
        {Path(path).parent.as_posix() for path in paths if path.startswith(FOLDERS)},
        key=lambda folder: ([folder.startswith(top) for top in FOLDERS].index(True), folder),
    )
    parts = [HEAD]
    for folder in folders:
        table = "\n".join(rows(folder, paths))
        parts.append(f"## {folder}/\n\n| module | what it is |\n| --- | --- |\n{table}\n")
    if names := "\n".join(public_names()):
        title = "## Names that `embedq` exports"
        parts.append(f"{title}\n\n| name | from | what it is |\n| --- | --- | --- |\n{names}\n")
    return "\n".join(parts)


def main(argv: list[str]) -> int:
    """Write the page, or with --check only compare it; exit code 1 if it is stale."""
    page = render()
    if "--check" not in argv:
        TARGET.write_text(page, encoding="utf-8")
        return 0
    if TARGET.exists() and TARGET.read_text(encoding="utf-8") == page:
        return 0
    print(f"{TARGET.relative_to(ROOT)} is stale; run: {COMMAND}")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
