"""Key files of hosts and clients on other machines: made, read, and who is allowed.

Knows: the folder of keys, which file holds what, who must not read or write it.
Does not know: sockets, handshakes, commands.

A key is 32 bytes, written as 64 hexadecimal digits in a file of one line. In a folder of keys:
`host.secret` and `host.public` of the host, `NAME.secret` and `NAME.public` of a client, and in
`clients/` the public keys of the clients that a host allows.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from embedq.errors import InsecurePermissions, InvalidOption, UnsupportedPlatform

SECRET: Final = ".secret"  # noqa: S105  # how the name of a file ends
PUBLIC: Final = ".public"
HOST: Final = "host"
CLIENTS: Final = "clients"

_BYTES: Final = 32
_NAME: Final = re.compile("[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
_PRIVATE_FILE: Final = 0o600
_PRIVATE_FOLDER: Final = 0o700
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
#: A file of a key has one line; of anything longer no more than this is read.
_MOST: Final = 256


@dataclass(frozen=True, slots=True)
class Pair:
    """The two keys of one end. The secret one is never shown."""

    public: bytes
    secret: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class HostKeys:
    """What a host needs: its own keys, and where the keys of its clients are."""

    pair: Pair
    clients: Path


@dataclass(frozen=True, slots=True)
class ClientKeys:
    """What a client needs: its own keys, the file they are from, and the host's public one."""

    pair: Pair
    file: Path
    host: bytes


def check_curve() -> None:
    """Raise UnsupportedPlatform where ZeroMQ was built without encryption."""
    import zmq  # noqa: PLC0415  # 30 ms: only who has keys pays for it

    if not zmq.has("curve"):
        raise UnsupportedPlatform(
            f"the ZeroMQ library of this Python ({zmq.zmq_version()}) was built without CURVE",
            hint="install pyzmq from its wheel, or build libzmq with libsodium",
        )


def check_name(name: str) -> str:
    """Return the name of a key. Raises InvalidOption for one that is no plain name of a file."""
    if _NAME.fullmatch(name) is None:
        raise InvalidOption(
            f"{name!r} is no name for a key",
            hint="use up to 64 letters, digits, dots, dashes and underscores",
            argument="name",
        )
    return name


def new_pair(folder: Path, name: str) -> Pair:
    """Make the keys NAME.secret and NAME.public in a folder, which is made if it is missing.

    Raises InvalidOption where such a key is there already, InsecurePermissions, OSError, and
    UnsupportedPlatform where ZeroMQ cannot encrypt.
    """
    check_curve()
    import zmq  # noqa: PLC0415  # as above
    from zmq.utils import z85  # noqa: PLC0415  # as above

    check_name(name)
    folder.mkdir(_PRIVATE_FOLDER, parents=True, exist_ok=True)
    _check_folder(folder)
    secret_file = folder / f"{name}{SECRET}"
    public, secret = (z85.decode(key) for key in zmq.curve_keypair())
    try:
        # First the secret one, which must not be there: nobody may lose a key by a second call.
        _write(secret_file, secret, exclusive=True)
    except FileExistsError:
        raise InvalidOption(
            f"there is a key {secret_file} already",
            hint="choose another name; to replace the key, remove its two files first",
            argument="name",
        ) from None
    _write(folder / f"{name}{PUBLIC}", public)
    return Pair(public, secret)


def allow(folder: Path, name: str, public: bytes) -> Path:
    """Let a client with this public key connect to the host with this folder of keys.

    Returns the file. A key of the same name is replaced. Raises InsecurePermissions, OSError.
    """
    clients = folder / CLIENTS
    clients.mkdir(_PRIVATE_FOLDER, parents=True, exist_ok=True)
    _check_folder(folder)
    file = clients / f"{check_name(name)}{PUBLIC}"
    _write(file, public)
    return file


def trust(folder: Path, public: bytes) -> Path:
    """Write down which host the clients of this folder talk to. Returns the file."""
    file = folder / f"{HOST}{PUBLIC}"
    _write(file, public)
    return file


def parse(text: str, what: str) -> bytes:
    """Return the key that a text writes down. Raises InvalidOption, which does not quote it."""
    try:
        key = bytes.fromhex(text.strip())
    except ValueError:
        key = b""
    if len(key) != _BYTES:
        raise InvalidOption(
            f"{what} is no key: a key has {2 * _BYTES} hexadecimal digits",
            hint="copy the whole line that `embedq keys new` has printed",
            argument="keys",
        )
    return key


def host_keys(folder: str | os.PathLike[str]) -> HostKeys:
    """Read the keys of a host. Raises InvalidOption, InsecurePermissions, UnsupportedPlatform."""
    check_curve()
    folder = Path(folder)
    file = folder / f"{HOST}{SECRET}"
    _check_folder(folder)
    return HostKeys(_pair_of(file, "embedq keys new host"), folder / CLIENTS)


def client_keys(place: str | os.PathLike[str]) -> ClientKeys:
    """Read the keys of a client: from a folder with one secret key, or from that very file.

    Raises InvalidOption, InsecurePermissions, UnsupportedPlatform.
    """
    check_curve()
    place = Path(place)
    file = _only_secret(place) if place.is_dir() else place
    _check_folder(file.parent)
    pair = _pair_of(file, "embedq keys new NAME --host KEY")
    host = file.with_name(f"{HOST}{PUBLIC}")
    return ClientKeys(pair, file, _read(host, "embedq keys new NAME --host KEY"))


def _only_secret(folder: Path) -> Path:
    found = sorted(each for each in folder.glob(f"*{SECRET}") if each.stem != HOST)
    if len(found) == 1:
        return found[0]
    names = ", ".join(each.name for each in found) or "none"
    raise InvalidOption(
        f"keys={str(folder)!r} must have one secret key of a client, and has {names}",
        hint=f"name the file: keys={str(found[0])!r}"
        if found
        else "make one: embedq keys new NAME --host KEY",
        argument="keys",
    )


def allowed(clients: Path) -> dict[bytes, str]:
    """Return who may connect now: names by public key. What is no key there is left out.

    Raises InsecurePermissions where others could add themselves, OSError where it cannot be read.
    """
    if not clients.exists():
        return {}
    _check_folder(clients)
    found = {}
    for file in clients.glob(f"*{PUBLIC}"):
        try:
            _refuse_writers(file)
            found[parse(_text(file), str(file))] = file.stem
        except (InvalidOption, FileNotFoundError):
            continue  # half written, or just removed: the next connection sees
    return found


def _pair_of(file: Path, how: str) -> Pair:
    import zmq  # noqa: PLC0415  # as above
    from zmq.utils import z85  # noqa: PLC0415  # as above

    secret = _read(file, how)
    mode = stat.S_IMODE(file.stat().st_mode)
    if mode & _OTHERS:
        raise InsecurePermissions(
            f"the secret key {file} has mode {mode:04o}: others can read it",
            hint=f"chmod 600 {file}; if somebody may have read it, make a new one",
        )
    return Pair(z85.decode(zmq.curve_public(z85.encode(secret))), secret)


def _read(file: Path, how: str) -> bytes:
    try:
        text = _text(file)
    except FileNotFoundError:
        raise InvalidOption(
            f"there is no key {file}", hint=f"make it: {how}", argument="keys"
        ) from None
    except OSError as error:
        raise InvalidOption(
            f"the key {file} cannot be read: {error.strerror}", argument="keys"
        ) from error
    return parse(text, f"what is in {file}")


def _text(file: Path) -> str:
    with file.open("rb") as opened:
        return opened.read(_MOST).decode("ascii", "replace")


def _write(file: Path, key: bytes, *, exclusive: bool = False) -> None:
    """Write a file that others cannot read; one that is there is replaced as a whole."""
    made = file if exclusive else file.with_name(f".{file.name}.{os.getpid()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    flags |= os.O_EXCL if exclusive else os.O_TRUNC
    fd = os.open(made, flags, _PRIVATE_FILE)
    with open(fd, "w", encoding="ascii") as opened:  # noqa: PTH123 - of a descriptor
        opened.write(f"{key.hex()}\n")
    if made != file:
        made.replace(file)


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise InvalidOption(
            f"there is no folder {folder} of keys",
            hint="embedq keys new makes it",
            argument="keys",
        )
    _refuse_writers(folder)


def _refuse_writers(path: Path) -> None:
    """Raise InsecurePermissions for what somebody else could replace or add to."""
    found = path.stat()
    mode = stat.S_IMODE(found.st_mode)
    if mode & _OTHERS_WRITE:
        raise InsecurePermissions(
            f"{path} has mode {mode:04o}: others could put their own keys there",
            hint=f"chmod go-w {path}",
        )
    if found.st_uid not in {os.geteuid(), 0}:
        raise InsecurePermissions(
            f"{path} belongs to user {found.st_uid}, who could put other keys there",
            hint=f"chown it to the user of this process ({os.geteuid()})",
        )
