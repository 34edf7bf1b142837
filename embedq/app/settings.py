"""Settings of a broker and where they come from: argument, environment, pyproject.toml, default.

Knows: every setting, its environment variable, what it may be, and which source wins.
Does not know: settings of queues (they are stored with the queue), what a setting does.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, cast

from embedq.broker.redaction import Patterns, Redact
from embedq.clock import parse_duration
from embedq.errors import InsecureListener, InvalidOption, shown
from embedq.ipc.address import is_address, is_endpoint
from embedq.limits import Limits
from embedq.policy import Duration

Durability = Literal["full", "normal"]
Role = Literal["auto", "host", "client"]

PREFIX: Final = "EMBEDQ_"
TABLE: Final = "[tool.embedq]"
DEFAULT_GRACE_S: Final = 30.0
MEMORY: Final = ":memory:"
#: Settings that are relative to pyproject.toml where they are said there.
_PATHS: Final = ("path", "keys")


@dataclass(frozen=True, slots=True)
class Settings:
    """What a broker runs with. `sources` says for each name where its value comes from.

    `path`: the database file. `durability`: "full" survives power loss, "normal" a killed
    process. `role`: "auto", "host" or "client". `grace`: seconds a drain gives to handlers.
    `redact`: hides secrets in texts of errors; None hides nothing. `sidecar`: whether the host is
    a process of its own. `endpoint`: where the host serves other machines, None: nowhere. `keys`:
    the folder, or the file, of the keys for that.
    """

    path: str
    durability: Durability
    role: Role
    grace: float
    redact: Redact | None
    sidecar: bool
    endpoint: str | None
    keys: str | None
    sources: Mapping[str, str]

    def grace_or(self, given: Duration | None) -> float:
        """Return the seconds of a drain: what is given with the call, else the setting."""
        return self.grace if given is None else parse_duration(given, "grace")


def _path(value: object, what: str) -> str:
    if isinstance(value, bytes):
        raise _refused(what, value, "a path as text", "decode it with os.fsdecode()")
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else ""
    if not text or "\0" in os.fsdecode(text):
        raise _refused(what, value, "a path", 'write Broker("var/app.db")')
    path = os.fsdecode(text)
    if _HOME.match(path):
        # Nobody means a folder that is called "~", and one would be made here without a word.
        raise _refused(
            what,
            value,
            "a path: nobody replaces its ~ here",
            "Path(…).expanduser() does, or $HOME",
        )
    if _URL.match(path) and not is_address(path):
        raise _refused(
            what, value, "a path", 'write Broker("var/app.db"): there is no server to connect to'
        )
    if is_address(path) and not is_endpoint(path, to_bind=False):
        raise _refused(what, value, "an address", "write tcp://host:port")
    return path


def _endpoint(value: object, what: str) -> str:
    if not isinstance(value, str) or not is_endpoint(value, to_bind=True):
        raise _refused(what, value, "an address", f"write {what}=tcp://127.0.0.1:5555")
    return value


def _keys(value: object, what: str) -> str:
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else ""
    if not isinstance(text, str) or not text or "\0" in text:
        raise _refused(what, value, "a path", "name the folder of the keys")
    return text


def _durability(value: object, what: str) -> str:
    return _one_of(value, what, ("full", "normal"))


def _role(value: object, what: str) -> str:
    return _one_of(value, what, ("auto", "host", "client"))


def _grace(value: object, what: str) -> float:
    if isinstance(value, str):
        try:
            value = float(value)  # "30" in the environment is 30 seconds
        except ValueError:
            return parse_duration(cast("str", value), what)
    return parse_duration(cast("float", value), what)


def _redact(value: object, what: str) -> Redact | None:
    if callable(value):
        return value
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise _refused(
            what,
            value,
            "a list of regular expressions, or a function",
            r'write redact = ["password=\S+"]',
        )
    return Patterns(texts, what) if texts else None


def _sidecar(value: object, what: str) -> bool:
    known = _WORDS.get(value.lower()) if isinstance(value, str) else value
    if not isinstance(known, bool):
        raise _refused(what, value, "true or false")
    return known


def _one_of(value: object, what: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise _refused(what, value, " or ".join(f'"{each}"' for each in allowed))
    return str(value)


def _refused(what: str, value: object, wanted: str, hint: str | None = None) -> InvalidOption:
    return InvalidOption(f"{what}={shown(value)} is not {wanted}", hint=hint, argument=what)


#: What an environment can say.
_WORDS: Final = {"1": True, "true": True, "yes": True, "on": True} | {
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}
_HOME: Final = re.compile(r"~[^/]*/|~$")
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_CHECKS: Final[Mapping[str, Callable[[object, str], object]]] = {
    "path": _path,
    "durability": _durability,
    "role": _role,
    "grace": _grace,
    "redact": _redact,
    "sidecar": _sidecar,
    "endpoint": _endpoint,
    "keys": _keys,
}
_DEFAULTS: Final[Mapping[str, object]] = {
    "durability": "full",
    "role": "auto",
    "grace": DEFAULT_GRACE_S,
    "redact": None,
    "sidecar": False,
    "endpoint": None,
    "keys": None,
}


def check(arguments: Mapping[str, object]) -> dict[str, object]:
    """Check settings given as arguments; None means not given. Raises InvalidOption."""
    return {
        name: _CHECKS[name](value, name) for name, value in arguments.items() if value is not None
    }


def check_parts(clock: object, limits: object) -> None:
    """Check what a broker is made with in tests. Raises InvalidOption."""
    if clock is not None and not (
        callable(getattr(clock, "time", None)) and callable(getattr(clock, "monotonic", None))
    ):
        raise _refused("clock", clock, "a Clock", "it has the methods time() and monotonic()")
    if not isinstance(limits, Limits):
        raise _refused("limits", limits, "Limits", "write Limits(body_bytes=1_000_000)")


def resolve(
    arguments: Mapping[str, object],
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Settings:
    """Return the settings: argument, then EMBEDQ_*, then [tool.embedq], then the default.

    `folder`: where the search for pyproject.toml begins, going up (default: the current one).
    A path from pyproject.toml is relative to that file. Raises InvalidOption, naming the source;
    InsecureListener for an endpoint without keys.
    """
    environment = os.environ if environment is None else environment
    values: dict[str, object] = {}
    sources: dict[str, str] = {}
    project, table = _project(_here() if folder is None else folder)
    for name, check_value in _CHECKS.items():
        variable = PREFIX + name.upper()
        if arguments.get(name) is not None:
            values[name], sources[name] = check_value(arguments[name], name), "argument"
        elif environment.get(variable):
            values[name] = check_value(environment[variable], variable)
            sources[name] = variable
        elif name in table:
            values[name] = check_value(table[name], f"{name} in {TABLE}")
            sources[name] = str(project)
            if name in _PATHS and project is not None and not is_elsewhere(str(values[name])):
                values[name] = str(project.parent / str(values[name]))
        elif name in _DEFAULTS:
            values[name], sources[name] = _DEFAULTS[name], "default"
        else:
            raise InvalidOption(
                "there is no path to the database file",
                hint=f'write Broker("var/app.db"), set {variable}, or path in {TABLE}',
                argument=name,
            )
    _check_together(values)
    if values["sidecar"]:
        _check_sidecar(values, sources)
    return Settings(
        path=cast("str", values["path"]),
        durability=cast("Durability", values["durability"]),
        role=cast("Role", values["role"]),
        grace=cast("float", values["grace"]),
        redact=cast("Redact | None", values["redact"]),
        sidecar=cast("bool", values["sidecar"]),
        endpoint=cast("str | None", values["endpoint"]),
        keys=cast("str | None", values["keys"]),
        sources=sources,
    )


def is_elsewhere(path: str) -> bool:
    """Whether a path names no file: a broker in memory, the address of a host."""
    return path == MEMORY or is_address(path)


def _check_together(values: Mapping[str, object]) -> None:
    """Raise InvalidOption or InsecureListener for settings that contradict each other."""
    path, endpoint, keys = str(values["path"]), values["endpoint"], values["keys"]
    if is_address(path):
        if keys is None:
            raise InvalidOption(
                f"{path}: the host asks for a key, and there is none",
                hint='make one with `embedq keys new`, and say keys="keys" or EMBEDQ_KEYS',
                argument="keys",
            )
        if values["role"] == "host" or endpoint is not None:
            raise InvalidOption(
                f"{path} is the address of a host: this process is its client",
                hint="name the file of a database, or leave out role= and endpoint=",
                argument="role" if endpoint is None else "endpoint",
            )
    elif endpoint is not None and path == MEMORY:
        raise InvalidOption(
            "a broker in memory serves nobody", hint="name a file", argument="endpoint"
        )
    elif endpoint is not None and keys is None:
        raise InsecureListener(
            f"endpoint={str(endpoint)!r}: whoever can reach it could read and write everything",
            hint='make keys with `embedq keys new host`, and say keys="keys" or EMBEDQ_KEYS; '
            "other processes of this machine and user need no endpoint",
        )


def _check_sidecar(values: Mapping[str, object], sources: Mapping[str, str]) -> None:
    """Make sure that a process of its own can be the host. Raises InvalidOption."""
    said = f"sidecar=True ({sources['sidecar']})"
    if values["role"] != "auto":
        raise InvalidOption(
            f"{said} and role={values['role']!r} ({sources['role']}) contradict each other: the "
            "sidecar is the host, and this process starts it where there is none",
            hint="leave one of them out",
            argument="sidecar",
        )
    if is_elsewhere(str(values["path"])):
        raise InvalidOption(
            f"{said}: {values['path']} is no file that a process of this machine could host",
            hint="name a file, or leave sidecar out",
            argument="sidecar",
        )
    if not isinstance(values["redact"], Patterns | None):
        raise InvalidOption(
            f"{said}: redact ({sources['redact']}) is a function, which no other process can call",
            hint="write it as a list of regular expressions",
            argument="redact",
        )


def _here() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:  # somebody removed the folder: no project is there either
        return Path("/")


def _project(folder: Path) -> tuple[Path | None, Mapping[str, object]]:
    """Find the nearest pyproject.toml and its table."""
    for parent in (folder, *folder.parents):
        path = parent / "pyproject.toml"
        try:
            text = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError):
            continue
        try:
            table = tomllib.loads(text.decode()).get("tool", {}).get("embedq", {})
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, AttributeError) as error:
            raise InvalidOption(f"{path} cannot be read: {error}") from error
        if not isinstance(table, dict):
            raise InvalidOption(f"{TABLE} in {path} is not a table")
        unknown = table.keys() - _CHECKS.keys()
        if unknown:
            raise InvalidOption(
                f"{TABLE} in {path} has the unknown setting {min(unknown)!r}",
                hint=f"settings are {', '.join(_CHECKS)}",
            )
        return path, table
    return None, {}
