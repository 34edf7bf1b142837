"""The benchmark of listeners compares what belongs together, runs, and sees what is slow.

No test here asserts how fast anything is.
"""

import os
import re
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from importlib.util import find_spec
from pathlib import Path

import pytest

import bench
import bench_listener_peer as peer
import bench_listener_plan as plan
import bench_listener_sides as sides
import bench_listeners
from bench_broker_peers import PeersMissing
from bench_broker_sides import Leased
from bench_figures import Figure
from bench_listener_wires import TEXT, WIRES
from bench_run import Options
from tests.docs import markdown

TINY = replace(
    plan.QUICK, slot_s=0.02, backlog=1_000, peer_backlog=100, idle=8, active=4, active_s=0.1
)
LONG = bool(os.environ.get("EMBEDQ_TEST_LONG"))
#: Protocols that are measured here; the long form takes all.
SOME = list(WIRES) if LONG else ["sspq"]


def rated(rate: float) -> list[Figure | None]:
    return [Figure(rate, 10.0)]


# --- the plan ------------------------------------------------------------------------------------


def test_every_row_names_cells_that_are_run_in_turns() -> None:
    groups = [set(group) for group in plan.wanted(plan.KEYS, plan.QUICK, has_peer=True)]
    for row in plan.ROWS:
        assert any({row.cell, row.against} <= group for group in groups), row.title
    named = {name for row in plan.ROWS for name in (row.cell, row.against)}
    assert {name for group in groups for name in group} == named


def test_every_protocol_has_a_row_of_puts_with_a_goal() -> None:
    for wire in WIRES.values():
        (row,) = [row for row in plan.ROWS if row.cell == plan.puts_of(wire) and row.goal]
        assert row.against == plan.THREAD_PUTS


def test_only_the_cells_of_the_wanted_rows_are_run() -> None:
    (group,) = plan.wanted(["take"], plan.QUICK, has_peer=True)
    assert {plan.THREAD_TAKES, plan.PEER_TAKES} <= set(group)
    assert plan.THREAD_PUTS not in group
    assert plan.wanted(["memory"], plan.QUICK, has_peer=True) == []


def test_without_beanstalkd_its_rows_are_empty_and_it_is_said(tmp_path: Path) -> None:
    for group in plan.wanted(plan.KEYS, plan.QUICK, has_peer=False):
        assert not any("beanstalkd" in name for name in group)
    run = bench_listeners.ListenerRun(plan.QUICK, ["put"], tmp_path, 1.0)
    run.has_peer = False
    run.look_at_machine(1)
    run.results = {plan.puts_of(WIRES["sspq"]): rated(50.0), plan.THREAD_PUTS: rated(100.0)}
    assert "apt-get install beanstalkd" in run.report()
    assert re.search(r"sspq / beanstalkd pipelining +\|.*\| +– \| +– \|", run.report())


def test_a_ratio_that_is_too_small_is_called_so(tmp_path: Path) -> None:
    run = bench_listeners.ListenerRun(plan.QUICK, ["put"], tmp_path, 1.0)
    run.look_at_machine(1)
    run.results = {plan.THREAD_PUTS: rated(100.0)}
    run.results |= {plan.puts_of(wire): rated(49.0) for wire in WIRES.values()}
    assert run.report().count("**no**") == len(WIRES)
    run.results |= {plan.puts_of(wire): rated(51.0) for wire in WIRES.values()}
    assert "**no**" not in run.report()


# --- the cells -----------------------------------------------------------------------------------


class Shelf:
    """A server that has what it is told to have: what was put and taken at each look."""

    def __init__(self, looks: Sequence[sides.Look]) -> None:
        self.looks = list(looks)
        self.filled: list[int] = []

    def look(self) -> sides.Look:
        return self.looks.pop(0)

    def fill_up(self, messages: int) -> None:
        self.filled.append(messages)

    def empty(self) -> float:
        return 0.0

    def close(self) -> None:
        assert not self.looks


class Hand:
    """A load that says how much it has done."""

    def __init__(self, count: int) -> None:
        self.count = count

    def run(self, seconds: float) -> tuple[int, float]:
        return self.count, seconds

    def close(self) -> None:
        """Nothing is open."""


def look(stored: int = 0, put: int = 0, taken: int = 0, cpu: float = 0.0) -> sides.Look:
    return sides.Look(stored, put, taken, put // 10, cpu)


def test_puts_that_are_not_stored_end_the_benchmark() -> None:
    cell = sides.Puts("a", Shelf([look(put=7), look(put=106)]), Hand(100), ExitStack())
    with pytest.raises(RuntimeError, match="100 written, 99 stored"):
        cell.run_for(1.0)


def test_a_figure_counts_what_was_stored_while_the_clients_worked() -> None:
    shelf = Shelf([look(put=7), look(put=107, cpu=0.001)])
    cell = sides.Puts("a", shelf, Hand(100), ExitStack())
    cell.run_for(0.5)
    assert cell.end() == {"a": Figure(rate=200.0, cpu_us=10.0, commits=0.1)}


def test_a_slice_in_which_everything_was_taken_is_repeated_with_more() -> None:
    looks = [look(50), look(0, taken=50), look(100), look(20, taken=130)]
    shelf = Shelf(looks)
    cell = sides.Takes("a", shelf, Hand(0), ExitStack())
    cell.backlog = 50
    cell.run_for(1.0)
    assert shelf.filled == [50, 100]
    assert cell.end()["a"].rate == 130.0


def test_a_slice_in_which_nothing_was_settled_goes_on_and_its_time_counts() -> None:
    shelf = Shelf([look(50), look(50), look(50), look(40, taken=10)])
    cell = sides.Takes("a", shelf, Hand(0), ExitStack())
    cell.backlog = 50
    cell.run_for(1.0)
    assert cell.end()["a"].rate == 5.0


def test_a_bare_table_that_was_emptied_hands_out_what_comes_next(tmp_path: Path) -> None:
    side = Leased(tmp_path, "normal")
    try:
        for _ in range(2):
            side.fill(1_000)
            assert side.take(2_000) == 1_000
            assert side.take(1) is None
    finally:
        side.close()


# --- the programs --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SOME)
def test_clients_put_consume_and_settle_through_a_listener(name: str, tmp_path: Path) -> None:
    wire = WIRES[name]
    with ExitStack() as stack:
        host = sides.Ours(tmp_path, wire)
        stack.callback(host.close)
        port = host.listen()
        for verb in ("put", "take"):
            client = sides.client_program(verb, wire._replace(burst=20), port, 2)
            stack.callback(client.close)
            written, _ = client.ask(0.02)
            if verb == "put":
                assert written >= 40
                assert host.look().put == written
        while not host.look().taken:
            host.fill_up(1_000)
            client.ask(0.1)
        now = host.look()
        assert now.taken <= now.put


@pytest.mark.parametrize("name", SOME)
def test_clients_of_a_bare_server_move_what_the_protocol_moves(name: str, tmp_path: Path) -> None:
    cell = sides.bare_takes("a", tmp_path, WIRES[name], 2, 1_000)
    try:
        cell.run_for(0.05)
        assert cell.end()["a"].rate > 0
    finally:
        cell.close()


def test_all_protocols_can_carry_what_is_put() -> None:
    assert len(TEXT) == 1_024
    assert TEXT.isascii()


# --- beanstalkd ----------------------------------------------------------------------------------


def test_a_missing_client_names_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def version(_: str) -> str:
        raise PackageNotFoundError

    monkeypatch.setattr(peer, "version", version)
    monkeypatch.setattr(peer, "has_server", lambda: True)
    arguments = ["listeners", "--quick", "--only", "put", "--dir", str(tmp_path)]
    assert bench.main(arguments) == 2
    told = capsys.readouterr().err
    assert "greenstalk" in told
    assert "python3 tools/dev.py bench listeners" in told
    assert list(tmp_path.iterdir()) == []


def test_beanstalkd_is_measured_where_it_is_installed(tmp_path: Path) -> None:
    if find_spec("greenstalk") is None:
        with pytest.raises(PeersMissing, match=peer.COMMAND):
            peer.versions()
        return
    if not peer.has_server():
        with pytest.raises(FileNotFoundError):
            peer.Beanstalkd(tmp_path)
        return
    assert re.fullmatch(r"beanstalkd \S+ -b -f 0, greenstalk \S+", peer.versions())
    server = sides.Theirs(tmp_path, 64)
    try:
        assert server.look()[:3] == (64, 0, 0)
        clients = sides._peer_clients("take", server, 1)
        try:
            taken = 0
            while not taken:
                taken += clients.run(0.02)[0]
        finally:
            clients.close()
        assert server.look().taken == taken
    finally:
        server.close()


# --- the whole -----------------------------------------------------------------------------------


def test_a_quick_run_measures_every_row_that_was_asked_for(tmp_path: Path) -> None:
    keys = plan.KEYS if LONG else ("memory",)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "QUICK", TINY)
        patch.setattr(bench_listeners, "WIRES", {name: WIRES[name] for name in SOME})
        run = bench_listeners.measure(Options(keys, tmp_path, quick=True), lambda _: None)
    for row in plan.ROWS:
        assert (row.key in keys) == (f"| {row.title} " in run.report())
    for name in SOME:
        titled = f"memory of 8 idle and 4 active connections, {name} "
        assert re.search(titled + r".* MiB over .* MiB; the idle alone .*≤ 24 MiB", run.report())
    assert list(tmp_path.iterdir()) == []
    assert str(tmp_path) not in run.report()


NAMES = list(bench_listeners.subjects(TINY, 0.0))


@pytest.mark.parametrize("name", NAMES if LONG else NAMES[:1])
def test_a_planted_slowdown_of_a_listener_is_seen(name: str, tmp_path: Path) -> None:
    # Under a heavy load one attempt may be all noise; what is planted is there every time.
    planted_s = bench_listeners.PLANTED_S
    looked = (bench_listeners.look_for(name, tmp_path, TINY, planted_s, 1) for _ in range(3))
    assert any(seen for _, _, _, seen in looked)


def test_only_a_slowdown_of_about_the_size_of_what_is_planted_counts() -> None:
    assert not bench_listeners.judge("a", 100.0, 240.0).seen
    assert bench_listeners.judge("a", 100.0, 260.0).seen


def test_the_page_has_room_for_the_tables() -> None:
    page = (markdown.ROOT / "docs" / "performance-listeners.md").read_text(encoding="utf-8")
    assert "new" in bench.insert(page, "new\n")
