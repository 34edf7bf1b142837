"""What `queue.watch_folder` takes and gives: the options, and the record of a file.

Knows: what may be asked for, that a watch runs while the broker does.
Does not know: how files are found (folders.py).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from embedq.app.options import check_flag
from embedq.clock import parse_duration
from embedq.errors import InvalidOption, shown
from embedq.policy import Duration

if TYPE_CHECKING:
    from embedq.app.broker import Broker

_SETTLE_MAX_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class WatchedFile:
    """A file as `queue.watch_folder` found it: the body of its message.

    `path` is absolute. `size`: bytes. `mtime`: seconds since 1970. `sha256`: of the content, in
    hexadecimal digits. The file may have changed again, or gone, when the message is handled.
    """

    path: str
    size: int
    mtime: float
    sha256: str


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be watched. `settle`: seconds."""

    folder: Path
    pattern: str
    recursive: bool
    settle: float
    existing: bool


class _Queue(Protocol):
    broker: Broker
    name: str
    type: Any


class Watching:
    """The part of a queue that fills it from folders."""

    def watch_folder(
        self: _Queue,
        path: str | os.PathLike[str],
        pattern: str = "*",
        *,
        recursive: bool = False,
        settle: Duration = "200ms",
        existing: bool = True,
    ) -> None:
        """Put a WatchedFile for each new or changed file of a folder, while the broker runs.

        Each content of a path becomes one message, however often the program restarts and however
        many processes watch; what changed while nobody ran is found at the next start. `pattern`:
        of names, as in a shell. `recursive`: folders below, too. `settle`: how long size and time
        of a file must stay as they are before it is read. `existing`: False leaves alone what is
        there whenever the broker starts. Hidden files, removed ones and symbolic links that lead
        out of the folder are ignored.

        Raises InvalidOption.
        """
        wish = _checked(path, pattern, settle, recursive=recursive, existing=existing)
        if self.type not in {None, Any, object, WatchedFile}:
            raise InvalidOption(
                f"queue {self.name!r} has bodies of another type than WatchedFile",
                hint=f"declare it with broker.queue({self.name!r}, WatchedFile)",
                argument="type",
            )
        from embedq.app.folders import FolderWatch  # noqa: PLC0415  # only for those who watch

        self.broker.accompany(FolderWatch(self.broker, self.name, wish))


def _checked(
    path: object, pattern: object, settle: Duration, *, recursive: bool, existing: bool
) -> Wish:
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
    if not isinstance(text, str) or not text or "\0" in text:
        raise _refused("path", path, "the path of a folder")
    if not isinstance(pattern, str) or not pattern or "/" in pattern:
        raise _refused("pattern", pattern, 'a pattern of names, as in "*.csv"')
    seconds = parse_duration(settle, "settle")
    if not 0 <= seconds <= _SETTLE_MAX_S:
        raise _refused("settle", settle, f"at most {_SETTLE_MAX_S:g} seconds")
    check_flag(recursive, "recursive")
    check_flag(existing, "existing")
    return Wish(Path(text).absolute(), pattern, recursive, seconds, existing)


def _refused(argument: str, value: object, wanted: str) -> InvalidOption:
    return InvalidOption(
        f"watch_folder({argument}={shown(value)}): it is not {wanted}", argument=argument
    )
