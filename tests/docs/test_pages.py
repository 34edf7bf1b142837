"""The documents say only true things: their code runs, their links lead somewhere."""

import os
import re
import sys
from pathlib import Path

import pytest

import dev
from tests import processes
from tests.docs.markdown import ROOT, Block, anchors, blocks, links, pages

pytestmark = pytest.mark.slow

PAGES = pages()
IDS = [path.relative_to(ROOT).as_posix() for path in PAGES]

# A page may show code that cannot run by itself as ```python no-run; it says why beside it.
RUN = "python"
OUTPUT = "output"
FIGURE = re.compile(r"(?<![\d.,])\d+[.,]\d+(?![.,]?\d)")
SHELL = {"console", "sh", "shell", "bash"}


def script_of(found: list[Block]) -> str:
    """Join the blocks that run into one script whose line numbers are those of the page."""
    lines: list[str] = []
    for block in found:
        if block.info == RUN:
            lines += [""] * (block.line - 1 - len(lines))
            lines += block.text.rstrip("\n").split("\n")
    return "\n".join(lines) + "\n"


def run_page(text: str, folder: Path) -> tuple[int, str, str]:
    """Run a page's code in an empty folder, and return the exit code, its output and errors."""
    (folder / "page.py").write_text(script_of(list(blocks(text))))
    done = processes.run(
        [sys.executable, "-W", "error", "page.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.returncode, done.stdout, done.stderr


def broken_links(path: Path, text: str) -> list[str]:
    """List the links of a page that lead nowhere in this work tree."""
    broken = []
    for link in links(text):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = path.parent / name if name else path
        if not target.exists():
            broken.append(link)
        elif anchor and target.suffix == ".md":
            there = text if target == path else target.read_text()
            if anchor not in anchors(there):
                broken.append(link)
    return broken


def unknown_commands(found: list[Block]) -> list[str]:
    """List the shell lines that call a file or a command of dev.py that does not exist."""
    unknown = []
    for block in found:
        if block.info not in SHELL:
            continue
        for line in block.text.splitlines():
            script = re.search(r"(?:^|\s)(?:python3? )?(\S+/\S+\.py|\.ci/run)(?:\s+(\S+))?", line)
            if script is None:
                continue
            command = (script[2] or "").strip(")\"'")
            if not (ROOT / script[1]).exists() or (
                script[1] == "tools/dev.py" and command not in dev.COMMANDS
            ):
                unknown.append(line.strip())
    return unknown


def stale_figures(readme: str) -> list[str]:
    """List the figures of "How fast" that are on none of the pages to which it links."""
    _, _, section = readme.partition("\n## How fast\n")
    section = section.partition("\n## ")[0]
    pages = [ROOT / link for link in links(section)]
    known = set(FIGURE.findall(" ".join(page.read_text() for page in pages)))
    return [figure for figure in FIGURE.findall(section) if figure not in known]


def names_of_tests() -> set[str]:
    """List the tests and test files of the work tree."""
    found: set[str] = set()
    for path in (ROOT / "tests").rglob("*.py"):
        found.add(path.stem)
        found |= set(re.findall(r"def (test_\w+)\(", path.read_text()))
    return found


@pytest.mark.parametrize("path", PAGES, ids=IDS)
def test_the_code_of_a_page_runs_and_prints_what_it_says(path: Path, tmp_path: Path) -> None:
    text = path.read_text()
    found = list(blocks(text))
    if all(block.info != RUN for block in found):
        return
    code, output, errors = run_page(text, tmp_path)
    assert code == 0, errors
    expected = "".join(block.text for block in found if block.info == OUTPUT)
    assert not expected or output == expected


@pytest.mark.parametrize("path", PAGES, ids=IDS)
def test_the_links_of_a_page_lead_somewhere(path: Path) -> None:
    assert broken_links(path, path.read_text()) == []


@pytest.mark.parametrize("path", PAGES, ids=IDS)
def test_the_commands_of_a_page_exist(path: Path) -> None:
    assert unknown_commands(list(blocks(path.read_text()))) == []


def test_the_tests_that_pages_name_exist() -> None:
    known = names_of_tests()
    unknown = [
        f"{name} ({path.name})"
        for path in PAGES
        for name in re.findall(r"\btest_\w+", path.read_text())
        if name not in known
    ]
    assert unknown == []


def test_the_figures_of_the_readme_are_those_of_the_last_full_runs() -> None:
    readme = (ROOT / "README.md").read_text()
    assert stale_figures(readme) == []
    assert stale_figures(readme.replace("3,741", "37,411")) == ["37,411"]


def test_every_page_can_be_reached_from_the_index() -> None:
    reached: set[Path] = set()
    todo = [ROOT / "README.md", ROOT / "docs" / "index.md"]
    while todo:
        path = todo.pop().resolve()
        if path in reached or path.suffix != ".md" or not path.exists():
            continue
        reached.add(path)
        todo += [path.parent / link.partition("#")[0] for link in links(path.read_text())]
    assert [path for path in PAGES if path.resolve() not in reached] == []


# --- the checks above, shown something wrong -----------------------------------------------------


def test_code_that_fails_is_reported_with_the_line_of_the_page(tmp_path: Path) -> None:
    page = (
        "# Title\n\n```python\nx = 1\n```\n\ntext\n\n```python\nprint(x)\nraise KeyError(x)\n```"
    )
    code, output, errors = run_page(page, tmp_path)
    assert (code, output) == (1, "1\n")
    assert "line 11" in errors


def test_a_planted_link_command_and_heading_are_found(tmp_path: Path) -> None:
    page = "# One `two`: three\n[a](#one-two-three) [b](#four) [c](gone.md) [d](https://e.org)\n"
    (tmp_path / "page.md").write_text(page)
    assert broken_links(tmp_path / "page.md", page) == ["#four", "gone.md"]
    shell = "```sh\npython3 tools/dev.py tset\npython3 tools/dev.py test -k x\ntools/gone.py\n```"
    assert unknown_commands(list(blocks(shell))) == ["python3 tools/dev.py tset", "tools/gone.py"]
