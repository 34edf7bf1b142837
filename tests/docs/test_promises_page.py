"""docs/promises.md names a test for everything that it says holds now."""

import re

from tests.docs.markdown import ROOT
from tests.docs.test_pages import names_of_tests

PAGE = (ROOT / "docs" / "promises.md").read_text(encoding="utf-8")
PROMISES = [f"P{number}" for number in range(1, 11)]


def unproven(page: str, known: set[str]) -> list[str]:
    """List the promises that are said to hold without naming a test that exists."""
    rows = re.findall(r"^\| (P\d+) \| (holds[^|]*) \| ([^|]*)\|[^|]*\|$", page, re.MULTILINE)
    assert [promise for promise, *_ in rows] == PROMISES
    return [
        promise
        for promise, _, tests in rows
        if not (named := set(re.findall(r"`(test_\w+)`", tests))) or named - known
    ]


def test_every_promise_is_stated() -> None:
    stated = re.findall(r"^\| (P\d+) \| [A-Z][^|]*\. \|[^|]*\|$", PAGE, re.MULTILINE)
    assert stated == PROMISES


def test_every_promise_that_holds_names_tests_that_exist() -> None:
    assert unproven(PAGE, names_of_tests()) == []


def test_a_promise_without_a_test_is_found() -> None:
    known = names_of_tests()
    for named in re.findall(r"^\| P3 \| holds \| (.*?) \|", PAGE, re.MULTILINE):
        assert unproven(PAGE.replace(named, ""), known) == ["P3"]
        assert unproven(PAGE.replace(named, "`test_nothing_at_all`"), known) == ["P3"]
