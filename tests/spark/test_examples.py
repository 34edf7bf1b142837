"""The examples that use Spark print what they promise, in the session that the tests share."""

from __future__ import annotations

import logging
import runpy
import tempfile

import pytest

from tests.docs import transcript
from tests.docs.markdown import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("spark_*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_of_spark_prints_what_the_file_beside_it_says(
    path, spark, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    logger = logging.getLogger("embedq")
    level = logger.level
    try:
        runpy.run_path(str(path), run_name="__main__")
    finally:
        logger.setLevel(level)
    (step,) = transcript.steps(path.with_suffix(".txt"))
    printed = capsys.readouterr().out
    assert transcript.fits(step.output, printed), printed
