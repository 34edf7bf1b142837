"""docs/promises.md names tests for each of its promises."""

import re

from tests.docs.markdown import ROOT
from tests.docs.test_pages import names_of_tests

PAGE = (ROOT / "docs" / "promises.md").read_text(encoding="utf-8")
PROMISES = [f"P{number}" for number in range(1, 11)]


def unproven(page: str, known: set[str]) -> list[str]:
    """List the promises that do not name a test, or name one that does not exist."""
    rows = re.findall(r"^\| (P\d+) \| ([^|]*)\|$", page, re.MULTILINE)
    assert [promise for promise, _ in rows] == PROMISES
    return [
        promise
        for promise, tests in rows
        if not (named := set(re.findall(r"`(test_\w+)`", tests))) or named - known
    ]


def test_every_promise_is_stated() -> None:
    stated = re.findall(r"^\| (P\d+) \| [A-Z][^|]*\. \|[^|]*\|$", PAGE, re.MULTILINE)
    assert stated == PROMISES


def test_every_promise_names_tests_that_exist() -> None:
    assert unproven(PAGE, names_of_tests()) == []


def test_a_promise_without_a_test_is_found() -> None:
    known = names_of_tests()
    (named,) = re.findall(r"^\| P3 \| (`.*?) \|$", PAGE, re.MULTILINE)
    assert unproven(PAGE.replace(named, ""), known) == ["P3"]
    assert unproven(PAGE.replace(named, "`test_nothing_at_all`"), known) == ["P3"]
