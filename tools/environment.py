"""Make and keep the virtual environment of a work tree.

Knows: venv, pip, dependency groups, the stamp that says what is installed, the lock beside it.
Does not know: the commands, and nothing outside the standard library: it runs before the rest.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
import sys
import tomllib
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

ROOT = Path(__file__).resolve().parent.parent
STAMP = "embedq-stamp.json"

# Debian and Ubuntu keep what venv needs in a package of its own.
VENV_HINT = "on Debian and Ubuntu: apt-get install python{0}.{1}-venv (or python3-venv)"


class SetupError(Exception):
    """Something the developer has to put right; the text says how."""


class Needs(NamedTuple):
    """What has to be installed beside the project itself."""

    groups: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()


# --- what to install -----------------------------------------------------------------------------


class Project(NamedTuple):
    """What pyproject.toml says about installing: changing a lint rule installs nothing."""

    extras: Mapping[str, Sequence[str]]
    groups: Mapping[str, Sequence[object]]
    digest: str

    @classmethod
    def read(cls, path: Path) -> Project:
        """Read a pyproject.toml."""
        data: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        parts = [data.get(table) for table in ("build-system", "project", "dependency-groups")]
        parts.append(data.get("tool", {}).get("hatch"))
        text = json.dumps(parts, sort_keys=True)
        return cls(
            extras=data["project"].get("optional-dependencies", {}),
            groups=data.get("dependency-groups", {}),
            digest=hashlib.sha256(text.encode()).hexdigest(),
        )

    def install_arguments(self, needs: Needs) -> list[str]:
        """Build the arguments of `pip install` for the project and its needs.

        Raises:
            SetupError: a group or an extra that is needed is not declared.
        """
        for extra in needs.extras:
            if extra not in self.extras:
                known = ", ".join(self.extras)
                raise SetupError(f"pyproject.toml has no extra {extra!r}; it has: {known}")
        project = str(ROOT) + (f"[{','.join(needs.extras)}]" if needs.extras else "")
        return ["--editable", project, *self.requirements(needs.groups)]

    def requirements(self, groups: Sequence[str]) -> list[str]:
        """List the requirements of dependency groups, following `include-group`.

        pip can do this since 25.1; Python 3.11 brings an older one, and this is the whole feature.

        Raises:
            SetupError: a group is not declared, or an entry is neither text nor an include.
        """
        found: set[str] = set()
        todo = list(groups)
        seen: set[str] = set()
        while todo:
            name = todo.pop()
            if name in seen:
                continue
            seen.add(name)
            if name not in self.groups:
                raise SetupError(f"pyproject.toml has no dependency group {name!r}")
            for entry in self.groups[name]:
                if isinstance(entry, str):
                    found.add(entry)
                elif isinstance(entry, dict) and "include-group" in entry:
                    todo.append(str(entry["include-group"]))
                else:
                    raise SetupError(f"dependency group {name!r} has an unknown entry: {entry!r}")
        return sorted(found)


# --- the environment -----------------------------------------------------------------------------


class Environment:
    """The virtual environment of this work tree: `.venv`, or the folder in EMBEDQ_VENV."""

    def __init__(self, folder: Path, report: Callable[[str], None]) -> None:
        self.folder = folder
        self.report = report
        self.python = folder / "bin" / "python"

    def prepare(self, needs: Needs) -> None:
        """Make the environment have what is needed; do nothing if it already has.

        Safe when several run at once: one works, the others wait and find it done.

        Raises:
            SetupError: the environment cannot be made, or pip failed.
        """
        project = Project.read(ROOT / "pyproject.toml")
        if self.stamped(project, needs):
            return
        with self.locked():
            if self.stamped(project, needs):
                return
            installed = self.installed()
            # What is there stays: a demo after a test run does not take the linters away.
            needs = Needs(
                tuple(sorted({*needs.groups, *installed.groups})),
                tuple(sorted({*needs.extras, *installed.extras})),
            )
            arguments = project.install_arguments(needs)
            if not self.usable():
                self.report(f"making {self.folder} with Python {sys.version.split()[0]}")
                self.create()
            (self.folder / STAMP).unlink(missing_ok=True)
            self.report(
                "installing embedq and what the command needs (the first time takes a minute)"
            )
            if "spark" in needs.extras and "spark" not in installed.extras:
                self.report(
                    "PySpark is among it: 0.9 GB, built for some minutes without a word; "
                    "pip keeps what it has built for other environments"
                )
            self.install(arguments)
            self.write_stamp(project, needs)

    def read_stamp(self) -> dict[str, object]:
        """Read what the last preparation left; empty if it is missing or damaged."""
        try:
            stamp = json.loads((self.folder / STAMP).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return stamp if isinstance(stamp, dict) else {}

    def installed(self) -> Needs:
        """List the groups and extras that a usable environment already has."""
        stamp = self.read_stamp() if self.usable() else {}
        groups, extras = stamp.get("groups"), stamp.get("extras")
        return Needs(
            tuple(map(str, groups)) if isinstance(groups, list) else (),
            tuple(map(str, extras)) if isinstance(extras, list) else (),
        )

    def stamped(self, project: Project, needs: Needs) -> bool:
        """Tell whether the environment is known to fit this pyproject.toml and these needs."""
        if self.read_stamp().get("pyproject") != project.digest or not self.usable():
            return False
        has = self.installed()
        return set(needs.groups) <= set(has.groups) and set(needs.extras) <= set(has.extras)

    def usable(self) -> bool:
        """Tell whether the environment exists, for this Python version and this place.

        An environment that was moved or copied still runs, but its scripts point to the old place.
        """
        if not self.python.exists():
            return False
        here = self.read_stamp().get("folder", str(self.folder))
        return here == str(self.folder) and self.version() == tuple(sys.version_info[:2])

    def version(self) -> tuple[int, int] | None:
        """Read the Python version an environment was made with from its pyvenv.cfg."""
        try:
            lines = (self.folder / "pyvenv.cfg").read_text(encoding="utf-8").splitlines()
        except OSError:
            return None
        for line in lines:
            key, _, value = (part.strip() for part in line.partition("="))
            if key in {"version", "version_info"}:
                major, minor = value.split(".")[:2]
                return int(major), int(minor)
        return None

    def create(self) -> None:
        """Make the environment anew, with pip.

        Raises:
            SetupError: this Python lacks ensurepip, or venv failed.
        """
        # Inside the environment that is to be replaced, the Python it was made from does the work.
        python = os.path.realpath(sys.executable) if self.is_running() else sys.executable
        if run([python, "-c", "import ensurepip, venv"], quiet=True) != 0:
            hint = VENV_HINT.format(*sys.version_info[:2])
            raise SetupError(f"{python} cannot make virtual environments; {hint}")
        if self.folder.exists() and not (self.folder / "pyvenv.cfg").exists():
            # --clear below empties the folder: EMBEDQ_VENV may name one that is somebody's work.
            raise SetupError(f"{self.folder} is not a virtual environment; remove it yourself")
        if run([python, "-m", "venv", "--clear", str(self.folder)]) != 0:
            raise SetupError(f"{python} -m venv failed; what it printed stands above")

    def install(self, arguments: Sequence[str]) -> None:
        """Install with pip.

        Raises:
            SetupError: pip failed.
        """
        pip = [str(self.python), "-m", "pip"]
        # Environments that other tools make may come without pip.
        if run([*pip, "--version"], quiet=True) != 0:
            run([str(self.python), "-m", "ensurepip"], quiet=True)
        options = ["--quiet", "--no-input", "--disable-pip-version-check"]
        if not os.environ.get("PYTHONDONTWRITEBYTECODE"):
            # Of 7,000 modules a fifth is ever imported, and each of those compiled by who does it:
            # 20 s less.
            options.append("--no-compile")
        if run([*pip, "install", *options, *arguments]) != 0:
            raise SetupError(
                "pip failed; what it printed stands above. It needs the network once; "
                f"to start afresh, remove {self.folder}"
            )

    def write_stamp(self, project: Project, needs: Needs) -> None:
        """Record that the environment fits, in one step: a reader sees all of it or nothing."""
        stamp = {
            "folder": str(self.folder),
            "pyproject": project.digest,
            "groups": list(needs.groups),
            "extras": list(needs.extras),
        }
        fresh = self.folder / (STAMP + ".new")
        fresh.write_text(json.dumps(stamp, indent=2) + "\n", encoding="utf-8")
        fresh.replace(self.folder / STAMP)

    def is_running(self) -> bool:
        """Tell whether this very process runs inside the environment."""
        return Path(sys.prefix).resolve() == self.folder.resolve()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock on the environment; it lies beside the folder, which may be replaced."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with self.folder.with_name(self.folder.name + ".lock").open("a", encoding="utf-8") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                self.report(f"another dev.py is preparing {self.folder}; waiting for it")
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def variables(self) -> dict[str, str]:
        """Build the environment variables of an activated environment."""
        variables = dict(os.environ)
        variables.pop("PYTHONHOME", None)
        variables["VIRTUAL_ENV"] = str(self.folder)
        path = variables.get("PATH", os.defpath)
        variables["PATH"] = str(self.folder / "bin") + os.pathsep + path
        return variables


def run(command: Sequence[str], *, quiet: bool = False) -> int:
    """Run a program with its output on stderr, or nowhere, and return its exit code."""
    output = subprocess.DEVNULL if quiet else sys.stderr
    return subprocess.call(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
