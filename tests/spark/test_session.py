"""The session: quiet, local, fair, and it finds the format without being told."""

from __future__ import annotations

import pytest

from embedq import InvalidOption
from embedq.spark import register, session


def test_a_session_runs_jobs_and_has_the_settings_of_one_machine(spark):
    assert spark.range(10).selectExpr("sum(id) as total").first().total == 45
    settings = dict(spark.sparkContext.getConf().getAll())
    assert settings["spark.scheduler.mode"] == "FAIR"
    assert settings["spark.ui.enabled"] == "false"
    assert settings["spark.driver.host"] == "127.0.0.1"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"


def test_a_second_call_returns_the_session_that_runs(spark):
    assert session() is spark


def test_the_format_is_found_without_being_registered(spark):
    known = spark._jsparkSession.sessionState().dataSourceManager()
    assert known.dataSourceExists("embedq")
    register(spark)  # nor does it harm
    assert known.dataSourceExists("embedq")


def test_a_setting_that_is_none_of_sparks_is_named():
    with pytest.raises(InvalidOption, match=r"session\(memory='2g'\).*'spark\.'"):
        session(memory="2g")
