"""The configuration file of `embedq serve`: which queues, listeners, users and limits there are.

Knows: its keys; that paths in it begin at its folder.
Does not know: what a protocol's options mean, how listeners are made.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, get_type_hints

from embedq.app.options import QueueOptions
from embedq.app.settings import check
from embedq.errors import EmbedqError, InvalidOption
from embedq.net.auth import TokenFile, UsersFile
from embedq.net.limits import NetLimits
from embedq.net.tls import TLS

_TOP: Final = {"path", "durability", "queues", "listen"}
_TLS: Final = ("cert", "key", "ca")
#: Arguments of Broker.listen that no file can give.
_NOT_HERE: Final = {
    "auth": "users and tokens name the file of who may log in",
    "tls": "cert, key and ca name the files of certificates",
    "transport": "the protocol is the first part of the url",
}


@dataclass(slots=True)
class Served:
    """What is to be served. `listeners`: each its URL and the arguments of Broker.listen."""

    path: str | None = None
    durability: Any = None
    queues: dict[str, dict[str, Any]] = field(default_factory=dict)
    listeners: list[tuple[str, dict[str, Any]]] = field(default_factory=list)


def read_config(path: Path) -> Served:
    """Read a file. Raises InvalidOption, which names the file and what is wrong in it."""
    try:
        with path.open("rb") as file:
            found = tomllib.load(file)
    except OSError as error:
        raise _wrong(path, f"cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _wrong(path, f"is no TOML: {error}") from error
    _check_keys(path, "", found, _TOP)
    served = Served(durability=found.get("durability"))
    with named(str(path)):
        check({"durability": served.durability})
    if "path" in found:
        served.path = str(path.parent / _text(path, "path", found["path"]))
    for name, options in _table(path, "queues", found.get("queues", {})).items():
        where = f"queues.{name}"
        options = _table(path, where, options)  # noqa: PLW2901  # checked
        _check_keys(path, where, options, set(get_type_hints(QueueOptions)))
        served.queues[name] = dict(options)
    listeners = found.get("listen", [])
    if not isinstance(listeners, list):
        raise _wrong(path, "listen is written [[listen]], once for each listener")
    for number, given in enumerate(listeners, 1):
        where = f"listen {number}"
        served.listeners.append(_listener(path, where, dict(_table(path, where, given))))
    return served


def _listener(path: Path, where: str, given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Take out what every listener can have; the rest are options of its protocol."""
    for name, instead in _NOT_HERE.items():
        if name in given:
            raise _wrong(path, f"{where}: there is no key {name!r}: {instead}")
    url = _text(path, f"{where}: url", given.pop("url", None))
    folder = path.parent
    options: dict[str, Any] = {}
    names = {name: given.pop(name) for name in ("users", "tokens") if name in given}
    if len(names) > 1:
        raise _wrong(path, f"{where} has users and tokens: it can ask for one of them")
    for name, file in names.items():
        place = folder / _text(path, f"{where}: {name}", file)
        with named(f"{path}: {where}: {name}"):
            options["auth"] = UsersFile(place) if name == "users" else TokenFile(place)
    papers = {
        name: folder / _text(path, f"{where}: {name}", given.pop(name))
        for name in _TLS
        if name in given
    }
    if papers:
        if "cert" not in papers:
            raise _wrong(path, f"{where} has {next(iter(papers))} and no cert")
        options["tls"] = TLS(**papers)
    if "limits" in given:
        options["limits"] = _limits(path, where, given.pop("limits"))
    return url, {**given, **options}


def _limits(path: Path, where: str, given: object) -> NetLimits:
    table = _table(path, f"{where}: limits", given)
    _check_keys(path, f"{where}: limits", table, {each.name for each in fields(NetLimits)})
    with named(f"{path}: {where}"):
        return NetLimits(**table)


@contextmanager
def named(place: str) -> Iterator[None]:
    """Say in which part of the configuration it stands that is refused."""
    try:
        yield
    except EmbedqError as error:
        error.args = (f"{place}: {error.message}",)
        raise


def _table(path: Path, where: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _wrong(path, f"{where} is no table")
    return value


def _text(path: Path, where: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise _wrong(path, f"{where} is missing, or no text")
    return value


def _check_keys(path: Path, where: str, found: Mapping[str, Any], known: set[str]) -> None:
    for name in found:
        if name not in known:
            place = f"{where}: " if where else ""
            raise InvalidOption(
                f"{path}: {place}there is no key {name!r}",
                hint=f"the keys are {', '.join(sorted(known))}",
                argument="config",
            )


def _wrong(path: Path, why: str) -> InvalidOption:
    return InvalidOption(f"{path}: {why}", hint="docs/listeners.md has one", argument="config")
