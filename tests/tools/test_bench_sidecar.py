"""The benchmark of sidecars measures both sides of every row, and calls a bad ratio so.

No test here asserts how fast anything is.
"""

import os
from dataclasses import replace
from pathlib import Path

import pytest

import bench_process_plan
import bench_processes
import bench_sidecar
from bench_figures import Figure

ROWS = (*bench_sidecar.ROWS, *bench_sidecar.LATENCIES)
QUICK = replace(bench_process_plan.QUICK, slot_s=0.05, backlog=40_000)


def run_in(folder: Path) -> bench_processes.ProcessRun:
    run = bench_processes.ProcessRun(QUICK, [bench_sidecar.KEY], folder, 60.0)
    run.look_at_machine(1)
    return run


@pytest.mark.skipif(
    not os.environ.get("EMBEDQ_TEST_LONG"),
    reason="only on request, with EMBEDQ_TEST_LONG=1: half a minute of both cores",
)
def test_a_round_measures_both_sides_of_every_row_and_leaves_nothing(tmp_path: Path) -> None:
    run = run_in(tmp_path)
    (group,) = run.groups()
    assert set(group) == set(bench_sidecar.SIDES)
    run.do_rounds(lambda _: None)
    assert {name for row in ROWS for name in (row.cell, row.against)} == set(run.results)
    assert all(figure is not None and figure.rate > 0 for (figure,) in run.results.values())
    for row in ROWS:
        assert f"| {row.title} " in run.report()
    assert list(tmp_path.iterdir()) == []


def test_an_application_that_costs_others_more_than_half_is_called_so(tmp_path: Path) -> None:
    run = run_in(tmp_path)
    run.results = {row.against: [Figure(100.0, 1.0, p50_ms=1.0, p99_ms=1.0)] for row in ROWS}
    cells = {row.cell for row in ROWS} - set(run.results)
    for rate, p99_ms, bad in ((51.0, 1.9, 0), (49.0, 1.9, 1), (49.0, 2.1, 2)):
        run.results |= {cell: [Figure(rate, 1.0, p50_ms=p99_ms, p99_ms=p99_ms)] for cell in cells}
        assert run.report().count("**no**") == bad


def test_what_is_not_asked_for_is_not_run(tmp_path: Path) -> None:
    assert bench_processes.ProcessRun(QUICK, ["idle"], tmp_path, 1.0).groups() == []
