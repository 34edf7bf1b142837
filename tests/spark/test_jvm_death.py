"""A JVM that is killed under running jobs costs no attempt, and is made anew once for all."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests import processes

PROGRAM = Path(__file__).with_name("jvm_death.py")


@pytest.mark.spark
def test_two_jobs_whose_jvm_is_killed_run_again_as_their_first_attempt(
    tmp_path, spark_settings, spark_java
):
    done = processes.run(
        [sys.executable, str(PROGRAM), str(tmp_path / "q.db"), json.dumps(spark_settings)],
        env={**os.environ, "JAVA_HOME": spark_java, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout)
    assert told["attempts"] == [["a", 1], ["a", 1], ["b", 1], ["b", 1]]
    assert told["lost"] == ["a", "b"]
    assert told["made"] == 2
