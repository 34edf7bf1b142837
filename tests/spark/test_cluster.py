"""On a cluster: executors are processes of their own, which reach the queue over tcp:// by key."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import kill
from tests.spark.conftest import QUICK_JAVA
from tests.spark.standalone import environment_in

ROOT = Path(__file__).parents[2]


@pytest.mark.spark
def test_executors_of_a_cluster_write_and_read_over_tcp_with_keys(
    spark_settings: dict[str, str], spark_java: str, tmp_path: Path
) -> None:
    settings = {
        **spark_settings,
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": QUICK_JAVA,
    }
    environment = environment_in(tmp_path, spark_java)
    command = [sys.executable, "-m", "tests.spark.cluster", str(tmp_path), json.dumps(settings)]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=ROOT,
        start_new_session=True,
    ) as process:
        try:
            said, trouble = process.communicate(timeout=600)
        finally:
            kill(process)
    assert process.returncode == 0, trouble[-4_000:]
    told = json.loads(said.splitlines()[-1])
    assert (told["written"], told["whole"], told["stored"]) == (4_000, True, 4_000)
    assert told["flowed"] == 300
    assert told["tasks"] > 1
    assert told["executors"]
    assert process.pid not in told["executors"]
    assert "does not allow the key" in told["stranger"]
    assert "not-there" in told["elsewhere"]
    assert any((tmp_path / "home" / "work").iterdir())
