"""What pages show of the command line is what it prints."""

from pathlib import Path

import pytest

from tests.docs import console
from tests.docs.markdown import ROOT, blocks, pages

PAGES = {
    path.relative_to(ROOT).as_posix(): console.typed(list(blocks(path.read_text())))
    for path in pages()
}


@pytest.mark.parametrize("name", [name for name, steps in PAGES.items() if steps])
def test_the_commands_of_a_page_print_what_it_shows(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    for step in console.run(PAGES[name], folder):
        assert step.is_as_told, f"{name}, line {step.typed.line}: {step}"


# --- the check above, shown something wrong ------------------------------------------------------


def told(page: str, folder: Path) -> list[bool]:
    folder.mkdir()
    return [step.is_as_told for step in console.run(console.typed(list(blocks(page))), folder)]


def test_blocks_share_a_shell_and_its_folder(tmp_path: Path) -> None:
    page = (
        "```console\n$ NAME=a; echo x > one\n```\n```text\n$ false\n```\n"
        "```console\n$ echo $NAME; ls\na\none\n$ echo 1.5 s\n... s\n```\n"
    )
    assert told(page, tmp_path / "empty") == [True, True, True]


def test_a_wrong_output_an_exit_code_and_an_end_of_the_shell_are_found(tmp_path: Path) -> None:
    page = "```console\n$ echo a\nb\n$ false\n$ false; echo $?\n1\n$ exit 0\n$ echo c\nc\n```\n"
    assert told(page, tmp_path / "empty") == [False, False, True, False, False]


def test_embedq_on_a_page_is_the_one_of_this_work_tree(tmp_path: Path) -> None:
    page = "```console\n$ embedq --db a put q hi > id\n$ embedq --db a get q; echo\nhi\n```\n"
    assert told(page, tmp_path / "empty") == [True, True]


def test_an_output_before_any_command_is_refused() -> None:
    with pytest.raises(ValueError, match="line 2"):
        console.typed(list(blocks("```console\nhello\n```\n")))
