"""No file and no function grows beyond what a reader can hold."""

from pathlib import Path

import sizes


def test_nothing_in_this_work_tree_is_too_large() -> None:
    found = sizes.findings(sizes.ROOT, sizes.python_files(sizes.ROOT))
    assert [str(finding) for finding in found if not finding.is_note] == []


def test_a_file_above_the_limit_is_found(tmp_path: Path) -> None:
    source = "x = 1\n" * (sizes.FILE_LINES + 1)
    (tmp_path / "big.py").write_text(source)
    (finding,) = sizes.findings(tmp_path, ["big.py"])
    assert "401 lines" in finding.text
    assert list(sizes.check_file("tests/test_big.py", source)) == []


def function_of(lines: int, docstring_lines: int = 0) -> str:
    docstring = '    """' + "text\n" * docstring_lines + '    """\n' if docstring_lines else ""
    return "def f():\n" + docstring + "    x = 1\n" * (lines - 1)


def test_a_function_is_a_note_above_fifty_lines_and_an_error_above_seventy() -> None:
    assert list(sizes.check_file("a.py", function_of(50))) == []
    assert [found.is_note for found in sizes.check_file("a.py", function_of(51))] == [True]
    assert [found.is_note for found in sizes.check_file("a.py", function_of(70))] == [True]
    assert [found.is_note for found in sizes.check_file("a.py", function_of(71))] == [False]


def test_a_docstring_does_not_make_a_function_long() -> None:
    assert list(sizes.check_file("a.py", function_of(50, docstring_lines=30))) == []


def test_a_name_that_says_nothing_is_found() -> None:
    assert "'utils'" in next(sizes.check_file("embedq/utils.py", "")).text
    assert "'common'" in next(sizes.check_file("embedq/common/reader.py", "")).text
    assert list(sizes.check_file("embedq/database.py", "")) == []
