"""Speculative attempts, by Spark itself: a standalone cluster, one task that never ends.

With EMBEDQ_TEST_LONG=1, as six JVMs take a minute of CPU. What Spark asks of the sink then,
test_faults.py asks without a cluster.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests import processes
from tests.spark import straggling
from tests.spark.conftest import QUICK_JAVA
from tests.spark.standalone import cluster, environment_in

ROOT = Path(__file__).parents[2]
LONG = os.environ.get("EMBEDQ_TEST_LONG") == "1"
#: Two addresses of this machine, two hosts to Spark.
HOSTS = ["127.0.0.1", "127.0.0.2"]

if LONG:

    @pytest.mark.spark
    @pytest.mark.timeout(1500)
    def test_the_rows_of_a_task_that_spark_has_started_twice_count_once(
        spark_settings: dict[str, str], spark_java: str, tmp_path: Path
    ) -> None:
        environment = environment_in(tmp_path, spark_java)
        settings = {
            **spark_settings,
            "spark.driver.host": HOSTS[0],
            "spark.driver.bindAddress": HOSTS[0],
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": QUICK_JAVA,
        }
        with cluster(tmp_path, environment, HOSTS) as master:
            program = [sys.executable, "-m", "tests.spark.straggling", str(tmp_path), master]
            done = processes.run(
                [*program, json.dumps(settings)],
                env=environment,
                cwd=ROOT,
                capture_output=True,
                text=True,
                timeout=1200,
            )
        assert done.returncode == 0, done.stderr[-4_000:]
        told = json.loads(done.stdout.splitlines()[-1])
        assert sorted(told) == sorted(straggling.WAYS)
        for way, found in told.items():
            assert found["beside"] == "True", (way, "no attempt beside the first")
            assert (found["missing"], found["strange"]) == (0, 0), way
        assert told["atomic"]["again"] == told["stream"]["again"] == 0
        # What the first attempt has put stays, as the guide says: rows of the second task only.
        assert 10_000 <= told["direct"]["again"] <= straggling.TASK
        assert told["direct"]["first_again"] >= straggling.TASK
        # The planted bug, which counts whatever was staged, is seen.
        assert told["careless"]["again"] >= 10_000
