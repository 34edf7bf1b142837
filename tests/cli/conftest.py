"""What every test of the command line gets: a folder, a database path, a way to run commands."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from embedq.broker.host import open_engine
from embedq.cli import access
from embedq.cli.program import program
from embedq.message import ErrorInfo
from embedq.storage.sqlite import SqliteStore


@dataclass
class Command:
    """Runs `embedq` in this process, on one database."""

    db: Path

    def __call__(self, *args: str, stdin: str | bytes | None = None) -> Result:
        return CliRunner().invoke(
            program, ["--db", str(self.db), *args], input=stdin, prog_name="embedq"
        )

    def ok(self, *args: str, stdin: str | bytes | None = None) -> str:
        result = self(*args, stdin=stdin)
        assert result.exit_code == 0, (result.exit_code, result.output, result.exception)
        return result.stdout

    def json(self, *args: str, stdin: str | bytes | None = None):
        return json.loads(self.ok(*args, "--json", stdin=stdin))

    def lines(self, *args: str, stdin: str | bytes | None = None) -> list:
        return [json.loads(line) for line in self.ok(*args, "--json", stdin=stdin).splitlines()]

    def error(self, *args: str) -> tuple[int, dict]:
        result = self(*args, "--json")
        return result.exit_code, json.loads(result.stderr)["error"]

    @staticmethod
    def sql(desk, statement: str) -> None:
        """Change something behind the back of the engine."""
        assert isinstance(desk.store, SqliteStore)
        with desk.writer.lock:
            desk.store.connection.execute(statement)

    def bury(self, queue: str, *bodies: bytes, text: str = "it broke") -> None:
        """Put messages and let them fail until they are dead."""
        with open_engine(self.db, upkeep=False) as desk:
            state = desk.queue(queue)
            group = desk.group(state)
            desk.put_many(state, bodies)
            for lease in desk.claim(group, len(bodies)):
                desk.reject(lease, "rejected here", ErrorInfo("ValueError", text, "  File x\n"))


@pytest.fixture
def embedq(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith("EMBEDQ_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(access, "WAIT_S", 0.3)  # for a file that stays in use
    return Command(tmp_path / "q.db")
