"""The benchmark of the broker compares what belongs together, runs, and sees a slowdown.

No test here asserts how fast anything is.
"""

import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

import bench
import bench_broker
import bench_broker_alone
import bench_broker_cells
import bench_broker_peers
import bench_broker_plan as plan
import sizes
from bench_broker_sides import Host, Leased
from bench_run import Options, Seen
from tests import processes
from tests.docs import markdown

pytestmark = pytest.mark.slow

BENCH = sizes.ROOT / "tools" / "bench.py"
OURS = sorted({*plan.KEYS} - plan.PEER_KEYS)
ROWS = (*plan.ROWS, *plan.LATENCIES)


def run_bench(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCH), "broker", "--quick", "--rounds", "1", "--dir"]
    return processes.run(
        [*command, str(folder), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )


def names_of(groups: Iterable[Iterable[str]]) -> set[str]:
    return {name for group in groups for name in group}


# --- the plan ------------------------------------------------------------------------------------


def test_every_row_names_cells_that_are_run_in_turns() -> None:
    groups = [set(group) for group in plan.wanted(plan.KEYS, plan.QUICK)]
    for row in ROWS:
        assert any({row.cell, row.against} <= group for group in groups), row.title
    assert names_of(groups) == names_of((row.cell, row.against) for row in ROWS)


def test_every_library_has_every_row() -> None:
    for peer in bench_broker_peers.PEERS:
        for key in plan.PEER_KEYS:
            against = [row.against for row in ROWS if row.key == key]
            assert any(name.startswith(f"{peer.package} ") for name in against), (peer, key)


def test_only_the_cells_of_the_wanted_rows_are_run() -> None:
    (group,) = plan.wanted(["tasks"], plan.QUICK)
    assert set(group) == {"aput ×256", "sqlite3 put"}
    assert plan.wanted(["import", "idle"], plan.QUICK) == []


# --- the sides -----------------------------------------------------------------------------------


def test_a_held_consumer_claims_nothing_and_one_that_is_let_go_drains(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.fill(1000)
    host.start(plan.handle, 4)
    assert host.idle
    assert host.acked == 0
    host.let_go()
    bench_broker_cells.wait_until(lambda: host.acked == 1000, "drained")
    bench_broker_cells.wait_until(lambda: host.awaited, "waiting again")
    host.close()


def test_the_reference_takes_every_message_once_and_leaves_nothing(tmp_path: Path) -> None:
    side = Leased(tmp_path)
    side.fill(1000)
    assert [side.take(400) for _ in range(4)] == [400, 400, 200, None]
    assert side.execute("SELECT count(*) FROM m").fetchone() == (0,)
    assert side.execute("SELECT count(*) FROM lease").fetchone() == (0,)
    side.close()


def test_a_drain_counts_messages_and_commits(tmp_path: Path) -> None:
    cell = bench_broker_cells.Drain("a", Host(tmp_path), plan.handle, 1, 1000)
    cell.begin()
    cell.run_for(0.05)
    cell.run_for(0.05)
    (figure,) = cell.end().values()
    cell.close()
    assert figure.rate > 0
    assert figure.commits is not None
    assert 0.9 <= figure.commits <= 3  # settling is its own commit for the last of a slice only
    assert cell.each == 1


def test_a_drain_that_has_done_everything_too_early_is_filled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_broker_cells, "_WARM_S", 20.0)  # as on a machine that stands still
    cell = bench_broker_cells.Drain("a", Host(tmp_path), plan.handle, 1, 1_000)
    cell.begin()
    cell.run_for(20.0)
    cell.run_for(20.0)
    (figure,) = cell.end().values()
    cell.close()
    assert figure.rate > 0
    assert cell._tally.messages == 2_000


def test_waiting_for_what_does_not_come_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_broker_cells, "_PATIENCE_S", 0.01)
    with pytest.raises(bench_broker_cells.Stuck, match="never"):
        bench_broker_cells.wait_until(lambda: False, "never")


# --- the libraries -------------------------------------------------------------------------------


def test_a_library_that_does_not_sync_is_not_measured(tmp_path: Path) -> None:
    closed = []

    class Lazy(bench_broker_peers.Peer):
        package, licence, made_durable, taking = "lazy", "MIT", "hope", "take"
        path = tmp_path / "lazy.db"

        def synchronous(self) -> int:
            return 1

        def put(self) -> object:
            return True

        take = put

        def fill(self, messages: int) -> None:
            assert messages == 10

        def close(self) -> None:
            closed.append(self)

    with pytest.raises(bench_broker_peers.NotDurable, match="lazy: PRAGMA synchronous is 1"):
        bench_broker_peers.open_peer(Lazy, tmp_path, 10)
    assert len(closed) == 1


def test_a_missing_library_names_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def version(_: str) -> str:
        raise PackageNotFoundError

    monkeypatch.setattr(bench_broker_peers, "version", version)
    with pytest.raises(bench_broker_peers.PeersMissing):
        bench_broker.measure(Options(["put"], tmp_path, quick=True), lambda _: None)
    assert bench.main(["broker", "--quick", "--only", "put", "--dir", str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert "huey" in told
    assert "python3 tools/dev.py bench broker" in told
    assert list(tmp_path.iterdir()) == []


def test_the_libraries_are_measured_where_they_are_installed(tmp_path: Path) -> None:
    done = run_bench(tmp_path, *(f"--only={key}" for key in sorted(plan.PEER_KEYS)))
    if done.returncode == 2:
        assert bench_broker_peers.COMMAND in done.stderr
        return
    assert done.returncode == 0, done.stderr
    for row in ROWS:
        assert (row.key in plan.PEER_KEYS) == (f"| {row.title} " in done.stdout)


# --- the whole -----------------------------------------------------------------------------------


def test_a_quick_run_measures_every_row_of_our_own(tmp_path: Path) -> None:
    done = run_bench(tmp_path, *(f"--only={key}" for key in OURS))
    assert done.returncode == 0, done.stderr
    tables = re.findall(r"(?:^\|.*\n)+", done.stdout, re.MULTILINE)
    assert len(tables) == 3
    for row in ROWS:
        assert (row.key in OURS) == (f"| {row.title} " in done.stdout)
    assert f"| {bench_broker_alone.IMPORT_TITLE} " in tables[2]
    assert list(tmp_path.iterdir()) == []
    assert str(tmp_path) not in done.stdout


@pytest.mark.parametrize("plant", bench_broker.PLANTS, ids=lambda plant: plant.title)
def test_a_planted_slowdown_is_seen_and_only_that(
    plant: bench_broker.Plant, tmp_path: Path
) -> None:
    # Under a heavy load one attempt may be all noise; what is planted is there every time.
    size = replace(plan.QUICK, backlog=1_000)

    def look(seconds: float) -> Seen:
        return bench_broker.look_for(plant, tmp_path, size, seconds, rounds=1)

    assert any(look(bench_broker.PLANTED_S).seen for _ in range(3))
    assert any(not look(0.0).seen for _ in range(3))


def test_the_self_test_fails_when_a_slowdown_is_not_seen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blind = bench.BENCHMARKS["broker"]._replace(
        self_test=lambda _: [Seen("a", "1", "2", seen=True), Seen("b", "1", "1", seen=False)]
    )
    monkeypatch.setitem(bench.BENCHMARKS, "broker", blind)
    assert bench.main(["broker", "--self-test", "--dir", str(tmp_path)]) == 1
    assert "b: 1 as it is, 1 slowed down: NOT SEEN" in capsys.readouterr().out


def test_the_page_has_room_for_the_tables() -> None:
    page = (markdown.ROOT / "docs" / "performance-broker.md").read_text(encoding="utf-8")
    assert "new" in bench.insert(page, "new\n")
