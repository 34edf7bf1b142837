"""Who a client is: tokens and users in files, or a function of the application's.

Knows: how secrets are kept and compared: in constant time, the same for names nobody has.
Does not know: protocols, connections.

A file is read again when it has changed. Its lines, empty ones and those that begin with # aside:

    tokens:  name token
    users:   name scrypt$n$r$p$salt$hash        (`embedq users add` writes them)

A name may be followed by rights in brackets: `anna[put,consume]`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import inspect
import os
import re
import secrets
import stat
import threading
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

from embedq.errors import InsecurePermissions, InvalidOption, shown
from embedq.net.port import Authenticator, Credentials, Identity

RIGHTS: Final = frozenset({"put", "consume", "manage"})
_NAME: Final = re.compile(r"([^\s\[\]#:]{1,255})(?:\[([a-z,]*)\])?")
_N, _R, _P, _SALT, _LENGTH = 1 << 14, 8, 1, 16, 32
_MEMORY: Final = 64 << 20
#: What to do about a file that is refused.
_LINES: Final = (
    "`embedq users add {path} NAME` writes users; tokens are a name and a token on a line"
)
_RIGHTS: Final = f"rights are {', '.join(sorted(RIGHTS))}, as in anna[put,consume]"


#: Says what is wrong with a secret: gets the place of its line, its name and itself.
Check = Callable[[str, str, str], None]


class _LinesFile:
    """A file of names and secrets, read again when it has changed."""

    def __init__(self, path: str | os.PathLike[str], check: Check | None = None) -> None:
        self._path = Path(path)
        self._check = check
        self._lock = threading.Lock()
        self._seen: tuple[int, int, int] | None = None
        self._known: dict[str, tuple[Identity, str]] = {}
        self.entries()

    def entries(self) -> Mapping[str, tuple[Identity, str]]:
        """Return what is in it. Raises InvalidOption, InsecurePermissions."""
        with self._lock:
            try:
                found = self._path.stat()
            except OSError as error:
                raise _unreadable(self._path, error.strerror) from error
            if not stat.S_ISREG(found.st_mode):
                raise _unreadable(self._path, "it is no file")
            seen = (found.st_mtime_ns, found.st_size, found.st_ino)
            if seen != self._seen:
                if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                    raise InsecurePermissions(
                        f"{self._path} holds secrets, and others than its owner may read it",
                        hint=f"chmod 600 {self._path}",
                    )
                self._known = _parse(self._path, self._check)
                self._seen = seen
            return self._known


def _unreadable(path: Path, why: str | None) -> InvalidOption:
    return InvalidOption(
        f"auth: {path} cannot be read: {why}", hint=_LINES.format(path=path), argument="auth"
    )


def _wrong(path: Path, number: int, why: str, hint: str = _LINES) -> InvalidOption:
    return InvalidOption(
        f"auth: {path}, line {number}{why}", hint=hint.format(path=path), argument="auth"
    )


def _parse(path: Path, check: Check | None = None) -> dict[str, tuple[Identity, str]]:
    known: dict[str, tuple[Identity, str]] = {}
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise _unreadable(path, error.strerror) from error
    except UnicodeDecodeError as error:
        raise _unreadable(path, f"it is no text: {error}") from error
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        match = _NAME.fullmatch(words[0])
        if match is None or len(words) != 2:  # noqa: PLR2004  # a name and a secret
            raise _wrong(path, number, ", is no name with a secret")
        rights = RIGHTS if match[2] is None else frozenset(match[2].split(",")) - {""}
        if not rights <= RIGHTS:
            wrong = ", ".join(sorted(rights - RIGHTS))
            raise _wrong(path, number, f": there is no right {wrong}", _RIGHTS)
        if match[1] in known:
            raise _wrong(path, number, f": {match[1]!r} is there twice", "leave one line of it")
        if check is not None:
            check(f"auth: {path}, line {number}", match[1], words[1])
        known[match[1]] = (Identity(match[1], rights), words[1])
    return known


class TokenFile:
    """Clients with a token each; the token alone says who it is."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = _LinesFile(path)

    def identify(self, credentials: Credentials) -> Identity | None:
        """Return whose token it is. All are compared, so that the time tells nothing."""
        found = None
        for identity, token in self._file.entries().values():
            if credentials.proves is not None:
                # A name is no secret; a signature is checked with the secret of its name only.
                named = hmac.compare_digest(credentials.name.encode(), identity.name.encode())
                right = named and credentials.proves(token.encode())
            else:
                right = hmac.compare_digest(credentials.secret, token.encode())
            if right:
                found = identity
        return found


class UsersFile:
    """Users with a password each, of which the file has hashes only."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = _LinesFile(path, _check_hash)
        # What a name that nobody has is compared with: it costs as much as any other.
        self._nobody = hash_password(secrets.token_bytes(_SALT))

    def identify(self, credentials: Credentials) -> Identity | None:
        """Return the user, if the password is right. A signature cannot be checked with hashes."""
        identity, stored = self._file.entries().get(credentials.name, (None, self._nobody))
        right = check_password(credentials.secret, stored)
        return identity if right else None


def _check_hash(place: str, name: str, stored: str) -> None:
    """Refuse a password as it is: it would let nobody in, and lie there for all to read."""
    if not stored.startswith("scrypt$"):
        raise InvalidOption(
            f"{place}: what {name!r} has is no hash of a password",
            hint=f"write the line with `embedq users add FILE {name}`",
            argument="auth",
        )


def hash_password(password: bytes) -> str:
    """Return what a users file keeps of a password (scrypt, 16 MiB, some 50 ms)."""
    salt = secrets.token_bytes(_SALT)
    made = _scrypt(password, salt, _N, _R, _P)
    return f"scrypt${_N}${_R}${_P}${_text(salt)}${_text(made)}"


def check_password(password: bytes, stored: str) -> bool:
    """Whether it is the password of a hash. A hash that cannot be read is nobody's."""
    try:
        kind, n, r, p, salt, made = stored.split("$")
        right = base64.b64decode(made, validate=True)
        tried = _scrypt(password, base64.b64decode(salt, validate=True), int(n), int(r), int(p))
    except ValueError:
        return False
    return kind == "scrypt" and len(right) == _LENGTH and hmac.compare_digest(right, tried)


def _scrypt(password: bytes, salt: bytes, n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(password, salt=salt, n=n, r=r, p=p, maxmem=_MEMORY, dklen=_LENGTH)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def change_user(
    path: str | os.PathLike[str], name: str, password: bytes | None, rights: str | None = None
) -> bool:
    """Add a user to a file or give it a new password; None removes it. False: nobody to remove.

    The file is replaced in one step, readable by its owner only. Raises InvalidOption.
    """
    place = Path(path)
    written = name if rights is None else f"{name}[{rights}]"
    if _NAME.fullmatch(written) is None:
        raise InvalidOption(f"{name!r} is no name of a user", hint="no spaces, #, : or brackets")
    lines = place.read_text("utf-8").splitlines() if place.exists() else []
    kept = [line for line in lines if _name_of(line) != name]
    found = len(kept) < len(lines)
    if password is not None:
        kept.append(f"{written} {hash_password(password)}")
    elif not found:
        return False
    draft = place.with_name(f"{place.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in kept))
            file.flush()
            os.fsync(file.fileno())
        _parse(draft)
        draft.replace(place)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    return found or password is not None


def _name_of(line: str) -> str | None:
    words = line.split()
    match = _NAME.fullmatch(words[0]) if words else None
    return None if match is None else match[1]


class Asking:
    """A function of the application's: it gets Credentials, returns an Identity, a name, or None.

    It may be a coroutine function, and is called on another thread if it is not.
    """

    def __init__(self, function: Callable[[Credentials], object]) -> None:
        self._function = function

    def identify(self, credentials: Credentials) -> Identity | Awaitable[Identity | None] | None:
        """Ask it."""
        found = self._function(credentials)
        if inspect.isawaitable(found):
            return self._later(found)
        return _identity(found)

    async def _later(self, found: Awaitable[object]) -> Identity | None:
        return _identity(await found)


def _identity(found: object) -> Identity | None:
    if isinstance(found, str) and found:
        return Identity(found)
    return found if isinstance(found, Identity) else None


def authenticator(given: object) -> Authenticator | None:
    """Return what `auth=` means: an Authenticator, or a function. Raises InvalidOption."""
    if given is None:
        return None
    if callable(getattr(given, "identify", None)):
        return given  # type: ignore[return-value]  # it has the one method
    if callable(given):
        return Asking(given)
    raise InvalidOption(
        f"auth={shown(given)} is neither a TokenFile, a UsersFile, nor a function of Credentials",
        hint="all three are in embedq.net",
        argument="auth",
    )
