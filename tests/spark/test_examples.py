"""The examples that use Spark print what they promise, in the session that the tests share."""

from __future__ import annotations

import logging
import runpy
import sys
import tempfile
from pathlib import Path

import pytest

from embedq.spark.pipelines.archiving import TOO_LATE
from tests.docs import transcript
from tests.docs.markdown import ROOT

FOLDER = ROOT / "examples"
TURNS = 8
EXAMPLES = [path.with_suffix(".py") for path in sorted(FOLDER.glob("spark_*.txt"))]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_of_spark_prints_what_the_file_beside_it_says(
    path, spark, tmp_path, monkeypatch, capsys
):
    (step,) = transcript.steps(path.with_suffix(".txt"))
    for turn in range(TURNS):
        folder = tmp_path / str(turn)
        folder.mkdir()
        with monkeypatch.context() as patched:
            patched.chdir(folder)
            patched.setattr(tempfile, "tempdir", str(folder))
            patched.setattr(sys, "argv", step.command.split())
            # Where a part of an example looks for its database; it is gone afterwards.
            patched.setenv("EMBEDQ_PATH", str(folder / "app.db"))
            patched.syspath_prepend(FOLDER)
            if "sample" in step.command:
                transcript.make_sample(folder / "sample")
            in_time = run(path)
        printed = capsys.readouterr().out
        if in_time:
            break
    assert transcript.fits(step.output, printed), printed


def run(path: Path) -> bool:
    """Run an example; return whether Spark had the patience for it (see patience.py)."""
    from pyspark.errors import StreamingQueryException

    logger = logging.getLogger("embedq")
    level = logger.level
    try:
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit as ended:
        if ended.code:
            raise
    except StreamingQueryException as error:
        if TOO_LATE not in str(error):
            raise
        return False
    finally:
        logger.setLevel(level)
        for part in [name for name in sys.modules if name.startswith("spark_")]:
            del sys.modules[part]
    return True
