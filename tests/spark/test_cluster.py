"""On a cluster: executors are processes of their own, which reach the queue over tcp:// by key."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.processes import kill
from tests.spark.conftest import QUICK_JAVA

ROOT = Path(__file__).parents[2]


def home_in(folder: Path) -> Path:
    """Return PySpark as a folder of links: workers make theirs here, not where it is installed."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    home = folder / "home"
    home.mkdir()
    for each in Path(spec.origin).parent.iterdir():
        if each.name != "work":
            (home / each.name).symlink_to(each)
    return home


@pytest.mark.spark
def test_executors_of_a_cluster_write_and_read_over_tcp_with_keys(
    spark_settings: dict[str, str], spark_java: str, tmp_path: Path
) -> None:
    settings = {
        **spark_settings,
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": QUICK_JAVA,
    }
    environment = {
        **os.environ,
        "JAVA_HOME": spark_java,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(home_in(tmp_path)),
    }
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
    assert os.getpid() not in told["executors"]
    assert "does not allow the key" in told["stranger"]
    assert "not-there" in told["elsewhere"]
    assert any((tmp_path / "home" / "work").iterdir())
