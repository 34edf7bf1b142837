"""The Java that Spark gets: found, or made whole by a shim. No JVM of Spark is started here."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest

from embedq import MissingExtra, UsageError
from embedq.spark import java
from tests import processes

WHOLE = "java.base jdk.incubator.vector"
TRIMMED = "java.base java.sql"


def install(home: Path, version: str = "21.0.1", modules: str = TRIMMED) -> Path:
    """Make a folder that looks like a Java, whose program prints its arguments."""
    (home / "bin").mkdir(parents=True)
    (home / "lib").mkdir()
    (home / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    program = home / "bin" / "java"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def machine(tmp_path, monkeypatch):
    """A machine without any Java, with a cache folder of its own."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr(java, "_of_package", lambda: None)


def test_a_whole_java_is_taken_as_it_is(tmp_path, monkeypatch):
    home = install(tmp_path / "jdk", modules=WHOLE)
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.java_home() == home
    assert not (tmp_path / "cache").exists()


def test_a_java_on_the_path_is_found_behind_its_links(tmp_path, monkeypatch):
    home = install(tmp_path / "jdk", modules=WHOLE)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert java.java_home() == home


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2", "16", ""])
def test_a_java_that_is_too_old_is_passed_over_for_the_package(tmp_path, monkeypatch, version):
    monkeypatch.setenv("JAVA_HOME", str(install(tmp_path / "old", version, WHOLE)))
    packaged = install(tmp_path / "packaged", modules=WHOLE)
    monkeypatch.setattr(java, "_of_package", lambda: packaged)
    assert java.java_home() == packaged


def test_where_there_is_no_java_the_extra_is_named():
    with pytest.raises(MissingExtra, match=r"there is none.*\n.*embedq\[spark\]"):
        java.java_home()


def test_a_shim_leaves_out_one_argument_and_keeps_all_others(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(install(tmp_path / 'a java\'s "home" $HOME')))
    home = java.java_home()
    assert home.is_relative_to(tmp_path / "cache" / "embedq")
    words = ["-cp", "a b", "", "--add-modules=jdk.incubator.vector", "--add-modules=java.sql", "*"]
    said = subprocess.check_output([str(home / "bin" / "java"), *words], text=True, timeout=60)
    assert said.splitlines() == ["-cp", "a b", "", "--add-modules=java.sql", "*"]


def test_a_shim_is_made_once_and_is_no_java_that_needs_one(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(install(tmp_path / "jre")))
    home = java.java_home()
    made = (home / "bin" / "java").stat().st_ino
    assert java.java_home() == home
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.java_home() == home
    assert (home / "bin" / "java").stat().st_ino == made


@pytest.mark.parametrize("damage", ["script", "link"])
def test_a_shim_that_somebody_damaged_is_made_anew(tmp_path, monkeypatch, damage):
    monkeypatch.setenv("JAVA_HOME", str(install(tmp_path / "jre")))
    home = java.java_home()
    if damage == "script":
        (home / "bin" / "java").write_text("#!/bin/sh\n")
    else:
        (home / "lib").unlink()
    assert java.java_home() == home
    assert (home / "lib").exists()
    assert "exec" in (home / "bin" / "java").read_text()


def test_a_home_that_cannot_be_written_is_replaced_by_a_temporary_folder(tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("a file, where a folder is needed")
    monkeypatch.setenv("JAVA_HOME", str(install(tmp_path / "jre")))
    assert java.java_home().is_relative_to(tmp_path / "temporary")


def test_where_nothing_can_be_written_both_places_are_named(tmp_path, monkeypatch):
    for name in ("cache", "temporary"):
        (tmp_path / name).write_text("a file, where a folder is needed")
    monkeypatch.setenv("JAVA_HOME", str(install(tmp_path / "jre")))
    with pytest.raises(UsageError, match=r"cache/embedq/java: .*temporary/embedq-java") as caught:
        java.java_home()
    assert "XDG_CACHE_HOME" in str(caught.value)


def test_many_processes_at_once_make_one_shim(tmp_path):
    home = install(tmp_path / "jre")
    code = (
        "import sys; from pathlib import Path; from embedq.spark import java;"
        "sys.stdin.readline(); print(java.shimmed(java.look_at(Path(sys.argv[1]))))"
    )
    with ExitStack() as stack:
        everyone = []
        for _ in range(4):
            process = subprocess.Popen(
                [sys.executable, "-c", code, str(home)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "shared")},
            )
            everyone.append(stack.enter_context(process))
            stack.enter_context(processes.patience(process))
        for process in everyone:
            assert process.stdin is not None
            process.stdin.write("now\n")
            process.stdin.flush()
        answers = {processes.line_of(process) for process in everyone}
    (made,) = answers
    assert [entry.name for entry in (tmp_path / "shared" / "embedq" / "java").iterdir()] == [
        Path(made.strip()).name
    ]
