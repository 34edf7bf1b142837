"""The benchmark of processes compares what belongs together, runs, and sees what is slow.

No test here asserts how fast anything is.
"""

import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from importlib.util import find_spec
from pathlib import Path

import pytest

import bench
import bench_process_cpu
import bench_process_peers as peers
import bench_process_plan as plan
import bench_processes
import sizes
from bench_broker_peers import PeersMissing
from bench_figures import Figure
from bench_process_names import COUNTED
from bench_process_sides import Program, WorkerDrain
from bench_run import Options, Seen
from tests.docs import markdown
from tests.workers.pooled import is_running, until

BENCH = sizes.ROOT / "tools" / "bench.py"
ROWS = (*plan.ROWS, *plan.LATENCIES)
OURS = ("producers", "latency", "idle")
TINY = replace(plan.QUICK, backlog=40_000)


def rated(rate: float) -> list[Figure | None]:
    return [Figure(rate, 10.0)]


# --- the plan ------------------------------------------------------------------------------------


def test_every_row_names_cells_that_are_run_in_turns() -> None:
    groups = [set(group) for group in plan.wanted(plan.KEYS, plan.QUICK, has_redis=True)]
    for row in ROWS:
        assert any({row.cell, row.against} <= group for group in groups), row.title
    named = {name for row in ROWS for name in (row.cell, row.against)}
    assert {name for group in groups for name in group} == named


def test_only_the_cells_of_the_wanted_rows_are_run() -> None:
    (group,) = plan.wanted(["latency"], plan.QUICK, has_redis=True)
    assert set(group) == {plan.TO_WORKER, plan.PROBE}
    assert plan.wanted(["idle"], plan.QUICK, has_redis=True) == []


def test_without_redis_the_libraries_that_need_it_are_left_out_and_it_is_said(
    tmp_path: Path,
) -> None:
    (group,) = plan.wanted(["workers"], plan.QUICK, has_redis=False)
    assert set(group) == {plan.WORKERS, "huey-sqlite, 2 workers"}
    run = bench_processes.ProcessRun(plan.QUICK, ["workers"], tmp_path, 1.0)
    run.has_redis = False
    run.look_at_machine(1)
    run.results = {plan.WORKERS: rated(1_200.0), "huey-sqlite, 2 workers": rated(100.0)}
    assert "apt-get install redis-server" in run.report()
    assert re.search(r"\| 2 workers / celery +\|.*\| +– \| +≥ 12 \| +– \|", run.report())


def test_a_ratio_that_is_too_small_is_called_so(tmp_path: Path) -> None:
    run = bench_processes.ProcessRun(plan.QUICK, ["workers", "latency"], tmp_path, 1.0)
    run.look_at_machine(1)
    run.results = {row.against: rated(100.0) for row in plan.ROWS}
    run.results |= {plan.WORKERS: rated(1_190.0)}
    run.results |= {
        plan.TO_WORKER: [Figure(1.0, 1.0, p50_ms=2.1)],
        plan.PROBE: [Figure(1.0, 1.0, p50_ms=1.0)],
    }
    assert run.report().count("**no**") == len(peers.PEERS) + 1
    run.results |= {plan.WORKERS: rated(1_210.0), plan.TO_WORKER: [Figure(1.0, 1.0, p50_ms=1.9)]}
    assert "**no**" not in run.report()


# --- the programs --------------------------------------------------------------------------------


def test_a_drain_counts_what_is_acked_and_leaves_no_process(tmp_path: Path) -> None:
    cell = WorkerDrain("a", tmp_path, 20_000)
    cell.begin()
    cell.run_for(20.0)  # until nothing is left
    (figure,) = cell.end().values()
    cell.close()
    assert figure.rate > 0
    assert figure.commits is not None
    assert 0 < figure.commits <= 2
    if sys.platform == "linux":
        assert figure.cpu_us > 0
        assert os.getpid() in bench_process_cpu.group_of(os.getpgid(0))


def test_a_drain_that_has_done_everything_too_early_is_filled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench_process_sides._WARM_S", 20.0)  # as on a machine that stands still
    cell = WorkerDrain("a", tmp_path, 1_000)
    cell.begin()
    cell.run_for(20.0)
    cell.run_for(20.0)
    (figure,) = cell.end().values()
    cell.close()
    assert figure.rate > 0
    assert cell._messages == 2_000


def test_a_program_that_ends_instead_of_answering_is_told(tmp_path: Path) -> None:
    program = Program("bench_process_producer.py", str(tmp_path / "none.db"), "one")
    with pytest.raises(RuntimeError, match=r"bench_process_producer\.py has ended"):
        program.met()


def test_workers_that_are_ended_take_their_children_with_them() -> None:
    script = "import os, time; os.fork(); os.write(1, b'%d\\n' % os.getpid()); time.sleep(600)"
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    pids = [int(process.stdout.readline()) for _ in range(2)]
    os.killpg(process.pid, signal.SIGSTOP)
    os.killpg(process.pid, signal.SIGCONT)
    peers._end([process])
    assert process.returncode == -signal.SIGTERM
    assert process.pid in pids
    until(lambda: not any(map(is_running, pids)), "both have ended")


# --- the libraries -------------------------------------------------------------------------------


def test_a_missing_library_names_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def version(_: str) -> str:
        raise PackageNotFoundError

    monkeypatch.setattr(peers, "version", version)
    arguments = ["processes", "--quick", "--only", "workers", "--dir", str(tmp_path)]
    assert bench.main(arguments) == 2
    told = capsys.readouterr().err
    assert "celery" in told
    assert "python3 tools/dev.py bench processes" in told
    assert list(tmp_path.iterdir()) == []


def test_the_libraries_are_measured_where_they_are_installed(tmp_path: Path) -> None:
    peer = peers.PEERS[0]
    if find_spec("huey") is None:
        with pytest.raises(PeersMissing, match=peers.COMMAND):
            peers.versions()
        return
    cell = peers.PeerDrain("a", peer, tmp_path, 0.1)
    try:
        cell.begin()
        while not cell._messages:
            cell.run_for(0.1)
        (figure,) = cell.end().values()
    finally:
        cell.close()
    assert figure.rate > 0
    assert len(list(tmp_path.glob(f"*{COUNTED}"))) == 2


# --- the whole -----------------------------------------------------------------------------------


def test_a_quick_run_measures_every_row_of_our_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    size = replace(TINY, slot_s=0.05, producers=1, idle_s=0.1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "QUICK", size)
        run = bench_processes.measure(Options(OURS, tmp_path, quick=True), lambda _: None)
    for row in ROWS:
        assert (row.key in OURS) == (f"| {row.title} " in run.report())
    assert "8 idle workers on 5 queues" in run.report()
    assert list(tmp_path.iterdir()) == []
    assert str(tmp_path) not in run.report()


def test_a_planted_slowdown_of_a_worker_is_seen_and_only_that(tmp_path: Path) -> None:
    # Under a heavy load one attempt may be all noise; what is planted is there every time.
    def look(seconds: float) -> Seen:
        return bench_processes.look_for(tmp_path, TINY, seconds, rounds=1)

    assert any(look(bench_processes.PLANTED_S).seen for _ in range(3))
    assert any(not look(0.0).seen for _ in range(3))


def test_the_page_has_room_for_the_tables() -> None:
    page = (markdown.ROOT / "docs" / "performance-processes.md").read_text(encoding="utf-8")
    assert "new" in bench.insert(page, "new\n")
