"""The command line as real processes: pipes, signals, hosts of other processes, start-up."""

import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
import tomllib
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import pytest

from embedq.broker.host import open_engine
from embedq.storage.owners import owner_of
from tests import processes
from tests.processes import line_of, patience

ROOT = Path(__file__).resolve().parents[2]
EMBEDQ = [sys.executable, "-W", "error", "-m", "embedq"]
PATIENCE_S = 30

HOST = """
import sys
from embedq.broker.host import open_engine
with open_engine(sys.argv[1]) as desk:
    queue = desk.queue("q")
    desk.put(queue, b"of the host")
    leases = desk.claim(desk.group(queue))
    print("ready", flush=True)
    sys.stdin.read()
    desk.release(leases)
"""


@pytest.fixture
def env(tmp_path):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EMBEDQ_")}
    return {**kept, "PYTHONPATH": str(ROOT), "EMBEDQ_PATH": str(tmp_path / "q.db")}


@pytest.fixture
def run(env, tmp_path):
    def run(*args, **more):
        return processes.run(
            [*EMBEDQ, *args],
            env=env,
            cwd=tmp_path,
            capture_output=True,
            check=False,
            timeout=PATIENCE_S,
            **more,
        )

    return run


@contextmanager
def started(env, *args, **more):
    process = subprocess.Popen(
        [*args], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **more
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def eventually(condition):
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def owner(tmp_path):
    found = owner_of(tmp_path / "q.db")
    assert found is not None
    return found


def stored(tmp_path):
    with open_engine(tmp_path / "q.db", upkeep=False) as desk:
        leases = desk.claim(desk.group(desk.queue("q")), 10)
        return [(lease.message.body, lease.attempt) for lease in leases]


def test_the_command_in_pyproject_is_there():
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, name = scripts["embedq"].partition(":")
    assert callable(getattr(import_module(module), name))


def test_a_message_goes_through_pipes_unchanged(run):
    data = bytes(range(256)) * 300
    assert run("put", "q", "-", input=data).returncode == 0
    done = run("get", "q")
    assert (done.stdout, done.stderr, done.returncode) == (data, b"", 0)
    empty = run("get", "q", "--json")
    assert empty.returncode == 1
    assert json.loads(empty.stderr)["error"]["code"] == "empty"


def test_arguments_that_are_no_text_arrive_as_they_are(run):
    assert run("put", "q", b"\xff\xfe raw").returncode == 0
    assert run("get", "q").stdout == b"\xff\xfe raw"


def test_output_of_any_encoding_is_possible(run, env):
    env["PYTHONIOENCODING"] = "latin-1"
    assert run("put", "grün", "漢字").returncode == 0
    shown = run("peek", "grün")
    assert shown.returncode == 0
    assert b"\\u6f22\\u5b57" in shown.stdout


def test_a_reader_that_goes_away_is_quiet_and_costs_nothing(run, env, tmp_path):
    lines = b"".join(b"%d %s\n" % (n, b"x" * 5000) for n in range(100))
    assert run("put", "q", "-", "--lines", input=lines).returncode == 0
    command = [*EMBEDQ, "get", "q", "--count", "100"]
    with started(env, *command, stderr=subprocess.PIPE) as process:
        with patience(process):
            assert process.stdout.read(10)
        process.stdout.close()
        assert process.wait(PATIENCE_S) == 141
        assert process.stderr.read() == b""
        process.stdout = None
    assert [attempt for _, attempt in stored(tmp_path)] == [1] * 10


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only on Linux")
def test_output_that_cannot_be_written_is_an_error_and_costs_nothing(run, env, tmp_path):
    run("put", "q", "x")
    with Path("/dev/full").open("wb") as full:
        done = processes.run(
            [*EMBEDQ, "get", "q"],
            env=env,
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
            timeout=PATIENCE_S,
        )
    assert done.returncode == 7
    assert done.stderr.startswith(b"error: the output cannot be written")
    assert done.stderr.count(b"\n") == 2
    assert stored(tmp_path) == [(b"x", 1)]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_gives_back_what_was_not_printed(run, env, tmp_path, number, code):
    run("put", "q", "-", input=b"x" * 1_000_000)
    with started(env, *EMBEDQ, "get", "q", stderr=subprocess.PIPE) as process:
        # It is in the middle of writing: the pipe is full, and nobody reads on.
        assert select.select([process.stdout], [], [], PATIENCE_S)[0]
        process.send_signal(number)
        assert process.wait(PATIENCE_S) == code
        assert b"Traceback" not in process.stderr.read()
    assert owner(tmp_path).clean
    assert [attempt for _, attempt in stored(tmp_path)] == [1]


def test_lines_are_put_as_they_come_and_the_file_is_free_in_between(env, tmp_path):
    with started(env, *EMBEDQ, "put", "q", "-", "--lines", "--json") as process:
        for number in (1, 2):
            process.stdin.write(b"line\n")
            process.stdin.flush()
            assert json.loads(line_of(process))["seq"] == number
            eventually(lambda: not owner(tmp_path).alive)
        process.stdin.close()
        process.stdin = None
        assert process.wait(PATIENCE_S) == 0


def test_commands_beside_a_host_look_or_are_refused(run, env, tmp_path):
    with started(env, sys.executable, "-c", HOST, str(tmp_path / "q.db")) as host:
        assert line_of(host) == b"ready\n"
        told = json.loads(run("stats", "--json").stdout)
        assert told["host"]["pid"] == host.pid
        assert told["queues"][0]["groups"][0]["leased"] == 1
        assert run("doctor").returncode == 0
        assert json.loads(run("backup", "copy.db", "--json").stdout)["messages"] == 1
        refused = run("get", "q", "--json")
        error = json.loads(refused.stderr)["error"]
        assert (refused.returncode, error["code"]) == (3, "store_in_use")
        assert error["details"]["pid"] == host.pid
        assert str(host.pid) in error["message"]
        assert host.poll() is None
        host.communicate(b"", timeout=PATIENCE_S)
        assert host.returncode == 0


def test_what_a_killed_host_left_open_is_shown(run, env, tmp_path):
    with started(env, sys.executable, "-c", HOST, str(tmp_path / "q.db")) as host:
        assert line_of(host) == b"ready\n"
        host.kill()
        host.wait(PATIENCE_S)
    told = json.loads(run("stats", "--json").stdout)
    found = told["queues"][0]["groups"][0]
    assert (found["waiting"], found["leased"], found["interrupted"]) == (1, 0, 1)
    text = run("doctor").stdout.decode()
    assert f"(process {host.pid}) died" in text
    assert "1 delivery broken off" in text
    assert run("get", "q").stdout == b"of the host"


def test_commands_at_the_same_time_wait_for_each_other(env, tmp_path):
    command = [*EMBEDQ, "put", "q", "x"]
    together = [
        subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        for _ in range(5)
    ]
    try:
        refusals = [process.communicate(timeout=PATIENCE_S)[1] for process in together]
        assert [process.returncode for process in together] == [0] * 5, refusals
    finally:
        for process in together:
            process.kill()
            process.wait()
    assert len(stored(tmp_path)) == 5


def test_help_is_quick_and_loads_no_database(env):
    code = (
        "import sys, runpy\n"
        "sys.argv = ['embedq', '--help']\n"
        "try: runpy.run_module('embedq', run_name='__main__')\n"
        "except SystemExit: pass\n"
        "heavy = {'sqlite3', 'asyncio', 'zmq', 'sqlite_utils', 'embedq.broker'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = processes.run(
        [sys.executable, "-c", code],
        env=env,
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.stderr.strip() == "[]"
    # CPU time: what the clock on the wall says depends on who else is at work.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.6
