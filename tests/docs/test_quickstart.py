"""The demo on real input: a kill in the middle loses nothing, and a loss would be seen."""

import re
import sqlite3
import sysconfig
from contextlib import closing
from pathlib import Path

import pytest

from tests.docs import transcript
from tests.docs.markdown import ROOT

EXAMPLES = ROOT / "examples"
pytestmark = pytest.mark.reliability


def rows(path: Path, question: str) -> list[tuple]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute(question).fetchall()


def test_half_of_the_standard_library_survives_a_kill_and_the_rest_follows(tmp_path: Path) -> None:
    stdlib = Path(sysconfig.get_path("stdlib")).resolve()
    files = {str(path) for path in stdlib.rglob("*.py") if "site-packages" not in path.parts}
    data = tmp_path / "quickstart-data"

    printed = transcript.run("quickstart.py --crash", EXAMPLES, tmp_path)
    assert printed.startswith(f"put {len(files):,} messages\n")
    assert printed.endswith("Killed\n"), printed
    before = {name for (name,) in rows(data / "results.sqlite", "SELECT file FROM result")}
    assert len(files) / 2 <= len(before) < len(files)

    printed = transcript.run("quickstart.py", EXAMPLES, tmp_path)
    assert printed.startswith(f"the {len(files):,} messages of an earlier run are here"), printed
    counted = {name for (name,) in rows(data / "results.sqlite", "SELECT file FROM result")}
    dead = {body.decode() for (body,) in rows(data / "queue.db", "SELECT body FROM dead")}
    assert counted | dead == files
    assert not counted & dead
    assert before <= counted
    assert "0 lost, 0 counted and dead" in printed
    assert rows(data / "queue.db", "SELECT count(*) FROM msg") == [(0,)]


def test_a_message_that_vanishes_between_the_two_runs_is_reported_as_lost(tmp_path: Path) -> None:
    transcript.make_sample(tmp_path / "sample")
    printed = transcript.run("quickstart.py sample --crash", EXAMPLES, tmp_path)
    assert printed.endswith("Killed\n"), printed
    with closing(sqlite3.connect(tmp_path / "quickstart-data" / "queue.db")) as database, database:
        database.execute("DELETE FROM msg WHERE seq = (SELECT max(seq) FROM msg)")
    printed = transcript.run("quickstart.py sample", EXAMPLES, tmp_path)
    assert re.search(r"\b1 lost, 0 counted and dead", printed), printed
    assert printed.endswith("exit code 1\n")
