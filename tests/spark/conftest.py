"""One Spark session for all tests that need one, in one process.

A test that asks for the fixture `spark` has the marker `spark` by itself; one that starts a JVM of
its own says `@pytest.mark.spark`. No module here imports PySpark at its top: without it, all tests
are still collected, those with the marker fail and say what to install, the others pass.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent

#: Quick to start, slow in the long run: half the CPU time of a start.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what uses Spark, before markers are looked at, and keep it in one process."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) and HERE in item.path.parents:
            item.add_marker(pytest.mark.spark)
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark_settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Settings of a session for tests: two cores, four attempts, everything in a scratch folder.

    Use them in processes that start a JVM of their own, too.
    """
    scratch = tmp_path_factory.mktemp("spark")
    return {
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": QUICK_JAVA,
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
    }


@pytest.fixture(scope="session")
def spark_java() -> str:
    """The Java for tests: always the packaged one with its shim, which any machine can have."""
    from embedq.spark.java import packaged_java_home

    return str(packaged_java_home())


@pytest.fixture(scope="session")
def spark(spark_settings: dict[str, str], spark_java: str) -> Iterator[SparkSession]:
    """The session that all tests share. Do not stop it, and leave no setting, view or query."""
    from embedq.spark import session

    before = dict(os.environ)
    os.environ["JAVA_HOME"] = spark_java
    os.environ["PYSPARK_PYTHON"] = sys.executable
    running = session("embedq-tests", master="local[2,4]", **spark_settings)
    # Only the JVM needs them: other tests find the environment as it was.
    os.environ.clear()
    os.environ.update(before)
    yield running
    running.stop()
