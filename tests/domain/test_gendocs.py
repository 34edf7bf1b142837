"""The rendered pages.

Knows: that they are fresh, complete, and that a stale one is noticed.
Does not know: other pages.
"""

import importlib.util
import shutil
from dataclasses import fields
from pathlib import Path

import pytest

from embedq import lifecycle, limits

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def gendocs():
    spec = importlib.util.spec_from_file_location("gendocs", ROOT / "tools" / "gendocs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_are_fresh(gendocs):
    assert gendocs.main(["--check"]) == 0


@pytest.mark.parametrize("name", ["lifecycle.md", "errors.md", "limits.md", "events.md", "cli.md"])
def test_a_stale_or_missing_page_fails_the_check_and_is_not_written(
    gendocs, name, tmp_path, capsys
):
    pages = shutil.copytree(ROOT / "docs", tmp_path / "docs")
    assert gendocs.main(["--check", "--out", str(pages)]) == 0
    text = (pages / name).read_text(encoding="utf-8")
    (pages / name).write_text(text.replace("|", "!", 1), encoding="utf-8")
    assert gendocs.main(["--check", "--out", str(pages)]) == 1
    assert (pages / name).read_text(encoding="utf-8") != text
    printed = capsys.readouterr().out
    assert name in printed
    assert gendocs.FIX in printed
    (pages / name).unlink()
    assert gendocs.main(["--check", "--out", str(pages)]) == 1
    assert not (pages / name).exists()
    assert gendocs.main(["--out", str(pages)]) == 0
    assert (pages / name).read_text(encoding="utf-8") == text


def test_every_limit_has_a_unit_and_a_reason(gendocs):
    comments = gendocs.comments_of(limits, "Limits")
    assert list(comments) == [field.name for field in fields(limits.Limits)]
    for comment in comments.values():
        unit, colon, reason = comment.partition(": ")
        assert colon
        assert len(unit.split()) == 1
        assert reason.endswith(".")


@pytest.mark.parametrize("kind", [lifecycle.State, lifecycle.Outcome, lifecycle.Reason])
def test_every_state_outcome_and_reason_is_explained(gendocs, kind):
    comments = gendocs.comments_of(lifecycle, kind.__name__)
    assert all(comments[member.name] for member in kind)
