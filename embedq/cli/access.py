"""Reaching the database: from outside for a look, through its host, or as its host for a moment.

Knows: where the path comes from, how long to wait for others, what a host of a moment owes.
Does not know: what is done with it.

A command never serves others, and never takes the place of a host that ends.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeGuard

from embedq.cli.asked import Asked
from embedq.cli.output import Progress
from embedq.clock import Clock, SystemClock
from embedq.errors import EmbedqError, InvalidOption, QueueNotFound, StoreInUse
from embedq.ipc.address import is_address

if TYPE_CHECKING:
    from embedq.app.settings import Settings
    from embedq.broker.desk import Desk
    from embedq.broker.port import DeskPort, QueuePort
    from embedq.ipc.remote import RemoteDesk
    from embedq.storage.onlooker import Onlooker

#: The path that a broker takes for a store without a file.
MEMORY: Final = ":memory:"

#: How long to wait for one other command that has the file for a moment; the next one counts anew.
WAIT_S: Final = 3.0
#: Whoever has had the file for longer is no command but an application.
_MOMENT_S: Final = 3.0
_RETRY_S: Final = 0.02

_IN_USE: Final = (
    "it serves no other process: stop it, or let it do this; peek, queues, stats, dead list, "
    "dead show, doctor, check and backup work beside it"
)


def settings_of(asked: Asked, name: str = "--db") -> Settings:
    """Return the settings. `name`: what gave the path.

    Raises InvalidOption where there is no path, or a wrong value.
    """
    from embedq.app.settings import resolve  # noqa: PLC0415  # --help needs no settings

    with of_the_shell(asked.db, name):
        return resolve({"path": asked.db})


@contextmanager
def of_the_shell(path: str | None, name: str = "--db") -> Iterator[None]:
    """Say in words of the command line what is wrong with the path that `name` gave."""
    try:
        yield
    except InvalidOption as error:
        if error.details.get("argument") != "path":
            raise
        if path is not None:
            raise InvalidOption(
                f"{name} {path!r} is no path",
                hint=f"write {'--db ' if name == '--db' else ''}var/app.db; an empty one may be a "
                "variable that is not set",
                argument="path",
            ) from error
        raise InvalidOption(
            "there is no path to the database file",
            hint="write --db PATH, set EMBEDQ_PATH, or path in [tool.embedq] of pyproject.toml",
            argument="path",
        ) from error


def path_of(asked: Asked) -> str:
    """Return the path of the database, which must be there. Raises InvalidOption."""
    path = settings_of(asked).path
    if is_address(path):
        raise InvalidOption(
            f"{path} is no file",
            hint="commands that read the file itself run on the host's machine",
            argument="path",
        )
    why = _not_there(path)
    if why is not None:
        text, hint = why
        raise InvalidOption(text, hint=hint, argument="path")
    return path


def _not_there(path: str) -> tuple[str, str] | None:
    """Say what is wrong with a path that ought to name a file, and what to do; None: nothing."""
    if path == MEMORY:
        return "a database in memory ends with its process", "name a file"
    try:
        mode = Path(path).stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return f"there is no database file {path}", "correct --db; `embedq put` creates a file"
    except OSError as error:
        hint = "let this user search the folders on the way, or correct --db"
        return f"{path} cannot be looked at: {error.strerror}", hint
    if stat.S_ISDIR(mode):
        return f"{path} is a folder", "name the file in it"
    if not stat.S_ISREG(mode):
        return f"{path} is not a file", "a database is a regular file on a disk: correct --db"
    return None


def look(asked: Asked) -> Onlooker:
    """Return an onlooker, which is in nobody's way."""
    from embedq.storage.onlooker import Onlooker  # noqa: PLC0415  # --help needs no database

    return Onlooker(path_of(asked))


@contextmanager
def desk_of(
    asked: Asked, *, create: bool = False, clock: Clock | None = None
) -> Iterator[DeskPort]:
    """Work at the desk of the host, or be the host inside the block, which ought to be short.

    In the latter case nobody can start an application on the file meanwhile. Raises StoreInUse
    for a host that serves nobody, and what opening raises.
    """
    settings = settings_of(asked)
    path = settings.path if create or is_address(settings.path) else path_of(asked)
    desk = _reached(path, settings, clock or SystemClock())
    with closing(desk):
        desk.redact = settings.redact
        if is_ours(desk):
            _settle_the_past(desk, asked)
        yield desk


def is_ours(desk: DeskPort) -> TypeGuard[Desk]:
    """Whether the desk is that of this process: there is no other host."""
    from embedq.broker.desk import Desk  # noqa: PLC0415  # --help needs no engine

    return isinstance(desk, Desk)


def _connected(path: str) -> RemoteDesk | None:
    """Connect to the host; None if it serves nobody, or has just ended."""
    from embedq.ipc.place import find_host  # noqa: PLC0415  # only where there is a host

    if find_host(path) is None:
        return None
    from embedq.ipc.remote import RemoteDesk  # noqa: PLC0415  # it loads asyncio

    desk = RemoteDesk(path, name=f"embedq-{os.getpid()}")
    try:
        desk.open(WAIT_S)
    except EmbedqError as error:
        if error.retryable:
            return None
        raise
    return desk


def _reached(path: str, settings: Settings, clock: Clock) -> Desk | RemoteDesk:
    from embedq.broker.host import open_engine  # noqa: PLC0415  # --help needs no engine

    if path == MEMORY:
        raise InvalidOption(
            "a database in memory ends with its process", hint="name a file", argument="path"
        )
    if is_address(path):
        return _abroad(path, settings)
    holder: tuple[object, object] = (0, 0)
    until = 0.0
    while True:
        try:
            return open_engine(path, durability=settings.durability, upkeep=False)
        except StoreInUse as error:
            connected = _connected(path)
            if connected is not None:
                return connected
            started = error.details.get("started_ms")
            if holder != (error.pid, started):  # the one before has made room, for another
                holder, until = (error.pid, started), clock.monotonic() + WAIT_S
            settled = isinstance(started, int) and clock.time() - started / 1000 > _MOMENT_S
            if settled or clock.monotonic() >= until:
                raise StoreInUse(
                    error.message, hint=_IN_USE, pid=error.pid, started_ms=started
                ) from error
        time.sleep(_RETRY_S)


def _abroad(address: str, settings: Settings) -> RemoteDesk:
    """Connect to a host on another machine. Raises NoHost, KeyRefused, what the keys lack."""
    from embedq.ipc.keys import client_keys  # noqa: PLC0415  # --help needs no keys
    from embedq.ipc.remote import RemoteDesk  # noqa: PLC0415  # it loads asyncio

    desk = RemoteDesk(address, keys=client_keys(settings.keys or ""))
    desk.open(WAIT_S)
    return desk


def _settle_the_past(desk: Desk, asked: Asked) -> None:
    """Do what a host does in the background: a close that says "clean" must mean it."""
    desk.store.look_around()
    if desk.upkeep.verifier is not None:
        with Progress("verifying after a restart of the machine: rows", as_json=asked.json) as bar:
            while (verifier := desk.upkeep.verifier) is not None:
                desk.upkeep.verify()
                bar(verifier.checked, 0)
    if not desk.counts_exact:
        desk.upkeep.count()


def queue_in(desk: DeskPort, name: str) -> QueuePort:
    """Return a queue that exists. Raises QueueNotFound, naming those that do."""
    try:
        found: QueuePort = desk.existing_queue(name)
    except QueueNotFound as error:
        raise not_found(name, desk.office.queues()) from error
    return found


def not_found(name: str, names: list[str]) -> QueueNotFound:
    """Return the error for a queue that does not exist."""
    known = ", ".join(repr(each) for each in sorted(names)[:10])
    more = ", …" if len(names) > 10 else ""  # noqa: PLR2004  # as many as were named
    hint = f"queues are {known}{more}" if names else "there are no queues yet"
    return QueueNotFound(f"there is no queue {name!r}", hint=hint)
