"""Every example is short, says what it shows, and prints what it promises."""

import ast
import io
import tokenize
from pathlib import Path

import pytest

from tests.docs import transcript
from tests.docs.markdown import ROOT

pytestmark = pytest.mark.slow

FOLDER = ROOT / "examples"
FILES = sorted(FOLDER.glob("*.py"))
MOST_LINES = 60
NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}


def belongs_to(path: Path) -> Path | None:
    """Return the example that a file is a part of: shop_parts.py belongs to shop.py."""
    owners = [other for other in FILES if path.stem.startswith(f"{other.stem}_")]
    return owners[0] if owners else None


EXAMPLES = [path for path in FILES if belongs_to(path) is None]


def code_lines(source: str) -> int:
    """Count lines with code: without comments, docstrings and blank lines."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in NO_CODE and token.string:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            continue
        if ast.get_docstring(node) is not None:
            text = node.body[0]
            lines.difference_update(range(text.lineno, (text.end_lineno or 0) + 1))
    return len(lines)


#: Those of Spark run in the session that its tests have (tests/spark/test_examples.py).
HERE = [path for path in EXAMPLES if not path.stem.startswith("spark_")]


@pytest.mark.parametrize("path", HERE, ids=lambda path: path.stem)
def test_an_example_prints_what_the_file_beside_it_says(path: Path, tmp_path: Path) -> None:
    transcript.make_sample(tmp_path / "sample")
    for step in transcript.steps(path.with_suffix(".txt")):
        printed = transcript.run(step.command, FOLDER, tmp_path)
        assert transcript.fits(step.output, printed), printed


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_example_is_short_and_says_what_it_shows(path: Path) -> None:
    source = path.read_text()
    assert code_lines(source) <= MOST_LINES
    assert ast.get_docstring(ast.parse(source))


def test_every_expected_output_has_its_example_and_every_part_its_user() -> None:
    assert sorted(FOLDER.glob("*.txt")) == [path.with_suffix(".txt") for path in EXAMPLES]
    for path in FILES:
        owner = belongs_to(path)
        assert owner is None or f"from {path.stem} import" in owner.read_text()


# --- the checks above, shown something wrong -----------------------------------------------------


def test_comments_docstrings_and_blank_lines_are_not_counted() -> None:
    source = (
        '"""Doc.\n\nMore.\n"""\n\nx = """a\nb"""  # why\n\n\ndef f():\n    """Doc."""\n    # why\n'
    )
    assert code_lines(source) == 3


def test_a_wrong_output_a_wrong_end_and_a_warning_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(
        "$ python a.py 1\n1 lost, ... s\n$ python a.py 0\n0 lost, ... s\n"
    )
    (tmp_path / "a.py").write_text("import sys\nprint(sys.argv[1], 'lost, 0.3 s')\n")
    first, second = transcript.steps(tmp_path / "a.txt")
    for step in (first, second):
        assert transcript.fits(step.output, transcript.run(step.command, tmp_path, tmp_path))
    assert not transcript.fits(first.output, transcript.run("a.py 0", tmp_path, tmp_path))
    (tmp_path / "a.py").write_text("print('0 lost, 0.3 s')\nraise SystemExit(1)\n")
    assert not transcript.fits(second.output, transcript.run("a.py 0", tmp_path, tmp_path))
    (tmp_path / "a.py").write_text("import warnings\nwarnings.warn('0 lost, 0.3 s')\n")
    assert not transcript.fits(second.output, transcript.run("a.py 0", tmp_path, tmp_path))
    (tmp_path / "a.py").write_text("import os\nprint('0 lost, 0.3 s')\nos.kill(os.getpid(), 9)\n")
    assert not transcript.fits(second.output, transcript.run("a.py 0", tmp_path, tmp_path))
