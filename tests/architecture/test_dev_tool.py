"""tools/dev.py: a newcomer's first contact has to work, or say what is missing."""

import ast
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import dev
import environment
from environment import Environment, Needs, Project, SetupError
from tests import processes

PROJECT = """
[project]
name = "toy"
optional-dependencies = { spark = ["pyspark"] }
[dependency-groups]
test = ["pytest", "hypothesis"]
lint = ["ruff", { include-group = "test" }]
dev = [{ include-group = "test" }, { include-group = "lint" }]
bench = [{ include-group = "test" }]
odd = [3]
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return project_from(tmp_path, PROJECT)


def project_from(folder: Path, text: str) -> Project:
    (folder / "pyproject.toml").write_text(text)
    return Project.read(folder / "pyproject.toml")


class Rehearsal(Environment):
    """An environment that only counts what would be made and installed."""

    def __init__(self, folder: Path) -> None:
        self.said: list[str] = []
        super().__init__(folder, self.said.append)
        self.installs: list[list[str]] = []

    def create(self) -> None:
        self.python.parent.mkdir(parents=True, exist_ok=True)
        self.python.touch()
        version = "{}.{}.0".format(*sys.version_info[:2])
        (self.folder / "pyvenv.cfg").write_text(f"home = /usr/bin\nversion = {version}\n")

    def install(self, arguments) -> None:
        self.installs.append(list(arguments))


# --- which Python --------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [(3, 7), (3, 8), (3, 10)])
def test_dev_parses_on_a_python_that_is_too_old(version: tuple[int, int]) -> None:
    ast.parse(Path(dev.__file__).read_text(), feature_version=version)


def stand_in(folder: Path, name: str, answer: str, code: int = 0) -> None:
    program = folder / name
    program.write_text(f"#!/bin/sh\necho {answer}\nexit {code}\n")
    program.chmod(0o755)


def test_the_newest_python_that_really_runs_is_found(tmp_path: Path) -> None:
    stand_in(tmp_path, "python3.14", "", code=127)  # a shim whose version is not installed
    stand_in(tmp_path, "python3.12", "3 12")
    stand_in(tmp_path, "python3", "3 9")
    assert dev.find_python(str(tmp_path)) == str(tmp_path / "python3.12")


def test_no_python_is_found_where_all_are_too_old(tmp_path: Path) -> None:
    stand_in(tmp_path, "python3", "3 10")
    assert dev.find_python(str(tmp_path)) is None


# --- what to install -----------------------------------------------------------------------------


def test_groups_are_followed_into_the_groups_they_include(project: Project) -> None:
    assert project.requirements(["dev"]) == ["hypothesis", "pytest", "ruff"]
    assert project.requirements([]) == []


@pytest.mark.parametrize("group", ["absent", "odd"])
def test_a_group_that_cannot_be_installed_is_named(project: Project, group: str) -> None:
    with pytest.raises(SetupError, match=repr(group)):
        project.requirements([group])


def test_extras_are_installed_with_the_project(project: Project) -> None:
    arguments = project.install_arguments(Needs(("test",), ("spark",)))
    assert arguments == ["--editable", f"{environment.ROOT}[spark]", "hypothesis", "pytest"]
    with pytest.raises(SetupError, match=r"'fast'.* it has: spark"):
        project.install_arguments(Needs(extras=("fast",)))


def test_a_changed_lint_rule_installs_nothing_a_changed_dependency_does(tmp_path: Path) -> None:
    before = project_from(tmp_path, PROJECT).digest
    assert project_from(tmp_path, PROJECT + "[tool.ruff]\nline-length = 99\n").digest == before
    assert project_from(tmp_path, PROJECT.replace("pyspark", "pyspark>=4")).digest != before


# --- the environment -----------------------------------------------------------------------------


def test_what_is_installed_is_installed_once_and_kept(tmp_path: Path) -> None:
    place = Rehearsal(tmp_path / "env")
    place.prepare(Needs(("dev",)))
    place.prepare(Needs(("dev",)))
    place.prepare(Needs())
    assert len(place.installs) == 1
    place.prepare(Needs(extras=("spark",)))
    assert place.installed() == Needs(("dev",), ("spark",))
    assert any(word.startswith("pytest") for word in place.installs[1])


def test_what_takes_minutes_is_announced_before_it_starts_and_only_then(tmp_path: Path) -> None:
    place = Rehearsal(tmp_path / "env")
    place.prepare(Needs(("dev",)))
    assert not any("PySpark" in said for said in place.said)
    place.prepare(Needs(("dev",), ("spark",)))
    assert "built for some minutes" in place.said.pop()
    place.prepare(Needs(("bench",), ("spark",)))
    assert not any("PySpark" in said for said in place.said)


def test_tests_and_the_gate_have_spark_and_the_demo_does_without() -> None:
    with_spark = {name for name, command in dev.COMMANDS.items() if "spark" in command.extras}
    assert with_spark == {"test", "check"}


def test_two_preparations_at_once_install_once(tmp_path: Path) -> None:
    first, second = Rehearsal(tmp_path / "env"), Rehearsal(tmp_path / "env")
    inside, waiting = threading.Event(), threading.Event()

    def slow_install(arguments) -> None:
        inside.set()
        assert waiting.wait(30)
        first.installs.append(list(arguments))

    def note_waiting(text: str) -> None:
        second.said.append(text)
        waiting.set()

    first.install = slow_install  # type: ignore[method-assign]
    second.report = note_waiting
    one = threading.Thread(target=first.prepare, args=(Needs(("dev",)),))
    two = threading.Thread(target=second.prepare, args=(Needs(("dev",)),))
    one.start()
    assert inside.wait(30)
    two.start()
    for thread in (one, two):
        thread.join(30)
        assert not thread.is_alive()
    assert (len(first.installs), len(second.installs)) == (1, 0)
    assert "another dev.py is preparing" in second.said[0]


def test_an_environment_is_made_anew_where_its_place_or_python_changed(tmp_path: Path) -> None:
    Rehearsal(tmp_path / "env").prepare(Needs())
    (tmp_path / "env").rename(tmp_path / "moved")
    moved = Rehearsal(tmp_path / "moved")
    assert not moved.usable()
    moved.prepare(Needs())
    assert moved.usable()
    (moved.folder / "pyvenv.cfg").write_text("home = /usr/bin\nversion_info = 3.8.2.final.0\n")
    assert not moved.usable()


@pytest.mark.parametrize("stamp", ["", "[1]", '{"pyproject": 3, "groups": "dev"}', "\x00"])
def test_a_damaged_stamp_only_means_installing_again(tmp_path: Path, stamp: str) -> None:
    place = Rehearsal(tmp_path / "env")
    place.prepare(Needs())
    (place.folder / environment.STAMP).write_text(stamp)
    place.prepare(Needs())
    assert len(place.installs) == 2


def test_a_failed_install_leaves_no_stamp(tmp_path: Path) -> None:
    place = Rehearsal(tmp_path / "env")
    place.prepare(Needs())

    def fail(arguments) -> None:
        raise SetupError("pip failed")

    place.install = fail  # type: ignore[method-assign]
    with pytest.raises(SetupError):
        place.prepare(Needs(extras=("spark",)))
    assert place.read_stamp() == {}


@pytest.mark.parametrize(("forbidden", "compiles"), [("1", "by pip"), ("", "later")])
def test_pip_compiles_only_where_nobody_else_may(
    tmp_path: Path, monkeypatch, forbidden: str, compiles: str
) -> None:
    ran: list[list[str]] = []

    def run(command: list[str], **_: object) -> int:
        ran.append(command)
        return 0

    monkeypatch.setattr(environment, "run", run)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", forbidden)
    Environment(tmp_path / "env", print).install(["something"])
    assert ("--no-compile" in ran[-1]) is (compiles == "later")


def test_a_folder_that_is_no_environment_is_never_emptied(tmp_path: Path) -> None:
    (tmp_path / "work.txt").write_text("mine")
    with pytest.raises(SetupError, match="remove it yourself"):
        Environment(tmp_path, print).create()
    assert (tmp_path / "work.txt").read_text() == "mine"


def test_a_python_without_ensurepip_names_the_missing_package(tmp_path: Path, monkeypatch) -> None:
    stand_in(tmp_path, "python3", "", code=1)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python3"))
    with pytest.raises(SetupError, match=r"apt-get install python3\.\d+-venv"):
        Environment(tmp_path / "env", print).create()


# --- the command line ----------------------------------------------------------------------------


@pytest.mark.parametrize("words", [["-k", "lease"], ["tests/domain", "-x"], []])
def test_tests_are_spread_over_the_cores(words: list[str]) -> None:
    assert dev.pytest_arguments(words) == ["-n", "auto", "--dist", "worksteal", *words]


@pytest.mark.parametrize("word", ["-n0", "--numprocesses=3", "--pdb", "-s", "-pno:xdist"])
def test_a_caller_who_decides_or_debugs_is_left_alone(word: str) -> None:
    assert dev.pytest_arguments([word]) == [word]


def run_dev(
    script: Path, *words: str, cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    # The tests themselves may run in an environment that was chosen this way.
    inherited = {key: value for key, value in os.environ.items() if key != "EMBEDQ_VENV"}
    return processes.run(
        [sys.executable, str(script), *words],
        cwd=cwd,
        env={**inherited, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_an_unknown_command_is_refused_and_the_known_ones_are_shown() -> None:
    done = run_dev(Path(dev.__file__), "tset")
    assert done.returncode == 2
    assert "'tset'" in done.stderr
    assert all(f"  {name} " in done.stderr for name in dev.COMMANDS)


@pytest.fixture
def toy_tree(tmp_path: Path) -> Path:
    """A small work tree whose environment counts as prepared."""
    tree = tmp_path / "tree with space"
    (tree / "tools").mkdir(parents=True)
    (tree / "examples").mkdir()
    for module in (dev, environment):
        source = Path(module.__file__ or "")
        (tree / "tools" / source.name).write_text(source.read_text())
    project = project_from(tree, PROJECT)
    place = Rehearsal(tree / ".venv")
    place.create()
    place.python.unlink()
    place.python.symlink_to(sys.executable)
    place.write_stamp(project, Needs(("bench", "dev")))
    return tree


def test_the_program_gets_the_arguments_and_gives_the_exit_code(
    toy_tree: Path, tmp_path: Path
) -> None:
    (toy_tree / "examples" / "quickstart.py").write_text(
        "import os, sys; print(sys.argv[1:], os.getcwd(), os.environ['VIRTUAL_ENV']); sys.exit(7)"
    )
    done = run_dev(toy_tree / "tools" / "dev.py", "demo", "-k", "a b", cwd=tmp_path)
    assert done.stdout == f"['-k', 'a b'] {toy_tree} {toy_tree / '.venv'}\n"
    assert (done.returncode, done.stderr) == (7, "")


def test_a_program_that_is_absent_is_named(toy_tree: Path) -> None:
    done = run_dev(toy_tree / "tools" / "dev.py", "bench")
    assert done.returncode == 1
    assert "tools/bench.py does not exist" in done.stderr


def test_a_shell_can_enter_the_environment(toy_tree: Path) -> None:
    done = run_dev(toy_tree / "tools" / "dev.py", "shell-env")
    assert done.stdout == f". '{toy_tree}/.venv/bin/activate'\n"


def test_another_folder_can_be_chosen(toy_tree: Path) -> None:
    (toy_tree / ".venv").rename(toy_tree / ".venv-2")
    place = Rehearsal(toy_tree / ".venv-2")
    place.write_stamp(Project.read(toy_tree / "pyproject.toml"), Needs(("dev",)))
    done = run_dev(toy_tree / "tools" / "dev.py", "shell-env", EMBEDQ_VENV=".venv-2")
    assert done.stdout == f". '{toy_tree}/.venv-2/bin/activate'\n"
