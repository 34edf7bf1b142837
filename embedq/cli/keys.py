"""`embedq keys`: make the keys of a host or a client, allow a client, list who is allowed.

Knows: which folder is meant, what is printed.
Does not know: how keys are kept or checked.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from embedq.cli import output
from embedq.cli.asked import Asked, asks, pass_asked
from embedq.cli.showing import table
from embedq.errors import EmbedqError, StoreFailed
from embedq.printable import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    F = TypeVar("F", bound=Callable[..., Any])

_FOLDER: Final = "keys"


def _asks_folder(command: F) -> F:
    return click.option(
        "--keys",
        "folder",
        metavar="FOLDER",
        help="The folder of the keys. Default: EMBEDQ_KEYS, keys in [tool.embedq], then ./keys.",
    )(command)


def _folder(given: str | None) -> Path:
    from embedq.app.settings import resolve  # noqa: PLC0415  # not for --help

    if given is not None:
        return Path(given)
    try:
        found = resolve({"path": "-"}).keys
    except EmbedqError:  # an endpoint without keys: these are about to be made
        found = None
    place = Path(found or _FOLDER)
    return place.parent if place.is_file() else place


@contextmanager
def _named(folder: Path) -> Iterator[None]:
    """Turn what the operating system refuses into an error that says where."""
    try:
        yield
    except OSError as error:
        raise StoreFailed(
            f"the keys in {folder} cannot be worked with: {error.strerror}",
            hint="see who may write to that folder",
        ) from error


def _key_of(text: str) -> bytes:
    """Return a key that was given as it is, or as the file that has it."""
    from embedq.ipc import keys  # noqa: PLC0415  # not for --help

    file = Path(text)
    if file.suffix == keys.PUBLIC:
        return keys.parse(file.read_text(encoding="ascii", errors="replace"), f"what is in {file}")
    return keys.parse(text, "KEY")


@click.command()
@click.argument("name")
@click.option("--host", metavar="KEY", help="For a client: the public key of its host.")
@_asks_folder
@asks
@pass_asked
def new(asked: Asked, name: str, host: str | None, folder: str | None) -> None:
    """Make the keys of a host (NAME is "host") or of a client, and print the public one.

    The secret key stays in its file, which only this user can read. The public one, 64 digits, is
    what the other end wants to know: a host's for `embedq keys new NAME --host KEY`, a client's
    for `embedq keys allow NAME KEY`.
    """
    from embedq.ipc import keys  # noqa: PLC0415  # not for --help

    trusted = None if host is None else _key_of(host)
    place = _folder(folder)
    with _named(place):
        pair = keys.new_pair(place, name)
        if trusted is not None:
            keys.trust(place, trusted)
    secret = place / f"{name}{keys.SECRET}"
    if asked.json:
        output.document({"name": name, "public": pair.public.hex(), "secret_file": str(secret)})
        return
    output.say(pair.public.hex())
    text = f"the secret key is in {plain(str(secret))}: it never leaves this machine"
    output.note(text, as_json=False)


@click.command()
@click.argument("name")
@click.argument("key")
@_asks_folder
@asks
@pass_asked
def allow(asked: Asked, name: str, key: str, folder: str | None) -> None:
    """Let the client with this public key connect to the host with these keys.

    KEY: what `embedq keys new` has printed there, or the file NAME.public. It counts at once. To
    take it back remove the file: the client's next connection is refused.
    """
    from embedq.ipc import keys  # noqa: PLC0415  # not for --help

    public, place = _key_of(key), _folder(folder)
    with _named(place):
        file = keys.allow(place, name, public)
    if asked.json:
        output.document({"name": name, "public": public.hex(), "file": str(file)})
        return
    output.say(f"{name} may connect; remove {plain(str(file))} to take that back")


@click.command("list")
@_asks_folder
@asks
@pass_asked
def list_keys(asked: Asked, folder: str | None) -> None:
    """List the clients that may connect to the host with these keys."""
    from embedq.ipc import keys  # noqa: PLC0415  # not for --help

    place = _folder(folder)
    with _named(place):
        found = sorted(
            (name, key.hex()) for key, name in keys.allowed(place / keys.CLIENTS).items()
        )
    if asked.json:
        output.document({"folder": str(place), "clients": dict(found)})
        return
    output.say(table(("CLIENT", "PUBLIC KEY"), found) if found else "no client may connect")
