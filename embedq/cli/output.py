"""Standard output and standard error: documents, lines, bytes, errors, progress.

Knows: that whoever reads the output may go away, and what is shown only on a terminal.
Does not know: what is said.
"""

from __future__ import annotations

import base64
import errno
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import UnsupportedOperation
from typing import Final, Self, TextIO

import click

from embedq.clock import Clock, SystemClock
from embedq.errors import EmbedqError
from embedq.printable import plain

_BAR: Final = 30
_REDRAW_S: Final = 0.1


class OutputFailed(Exception):
    """The standard output cannot be written."""


class ReaderGone(Exception):
    """Whoever read the standard output went away. No OSError: click would end with 1 for it."""


@contextmanager
def _written() -> Iterator[None]:
    try:
        if sys.stdout is None:  # whoever started us closed it
            raise OSError(errno.EBADF, "it is closed")  # noqa: TRY301  # told like other failures
        yield
    except BrokenPipeError as error:
        raise ReaderGone from error
    except OSError as error:
        text = f"the output cannot be written: {error.strerror or error}"
        raise OutputFailed(text) from error


def say(text: str) -> None:
    """Print a text for people, which must be escaped already."""
    with _written():
        click.echo(text)


def document(value: object) -> None:
    """Print one JSON document."""
    with _written():
        click.echo(_json(value, indent=2))


def line(value: object) -> None:
    """Print one JSON document on one line."""
    with _written():
        click.echo(_json(value))


def raw(data: bytes) -> None:
    """Write bytes as they are."""
    with _written():
        sys.stdout.buffer.write(data)


def flush() -> None:
    """Hand over to the kernel what was printed. Raises if that cannot be done."""
    with _written():
        sys.stdout.flush()


def _json(value: object, indent: int | None = None) -> str:
    # ASCII only: no terminal and no encoding can make something else of it.
    return json.dumps(value, indent=indent, ensure_ascii=True)


def json_body(body: bytes) -> dict[str, str]:
    """Return a body for JSON: its text, or base64 if it is no UTF-8; `encoding` says which."""
    try:
        return {"encoding": "utf-8", "body": body.decode()}
    except UnicodeDecodeError:
        return {"encoding": "base64", "body": base64.b64encode(body).decode()}


def note(text: str, *, as_json: bool) -> None:
    """Tell people something beside the result; nothing with --json."""
    if not as_json:
        with suppress(OSError):  # a note that nobody can read is no reason to fail
            click.echo(plain(text), err=True)


def complain(
    code: str, message: str, hint: str | None, details: dict[str, object], *, as_json: bool
) -> None:
    """Print an error on standard error."""
    if as_json:
        told = {"code": code, "message": message, "hint": hint, **_plain_details(details)}
        text = _json({"error": told})
    else:
        text = f"error: {plain(message)}"
        if hint:
            text += f"\nhint: {plain(hint)}"
    with suppress(OSError):  # then only the exit code is left to tell
        click.echo(text, err=True)


def _plain_details(details: dict[str, object]) -> dict[str, object]:
    kept = {n: v for n, v in details.items() if v is None or isinstance(v, str | int | float)}
    return {"details": kept} if kept else {}


def complain_of(error: EmbedqError, *, as_json: bool) -> None:
    """Print an error of embedq's."""
    complain(error.code, error.message, error.hint, error.details, as_json=as_json)


def forget_output() -> None:
    """Let the interpreter end without another try to write what nobody reads."""
    with suppress(OSError, ValueError, UnsupportedOperation, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


class Progress:
    """A bar on standard error while something takes long; nothing unless that is a terminal."""

    def __init__(
        self,
        label: str,
        *,
        as_json: bool,
        clock: Clock | None = None,
        stream: TextIO | None = None,
    ) -> None:
        self._label = label
        self._stream = stream or sys.stderr
        self._shown = not as_json and self._stream is not None and self._stream.isatty()
        self._clock = clock or SystemClock()
        self._next = 0.0
        self._width = 0

    def __enter__(self) -> Self:
        """Return the bar."""
        return self

    def __exit__(self, *_: object) -> None:
        """Clear the line: what comes next says how it ended."""
        if self._width:
            self._draw("")

    def __call__(self, done: int, total: int) -> None:
        """Show that `done` of `total` is done; 0 in all: nobody knows how much there is."""
        if not self._shown:
            return
        now = self._clock.monotonic()
        if now < self._next:
            return
        self._next = now + _REDRAW_S
        if total > 0:
            part = min(1.0, done / total)
            bar = "#" * round(_BAR * part)
            self._draw(f"{self._label}  [{bar:-<{_BAR}}]  {done:,} of {total:,}  {part:4.0%}")
        else:
            self._draw(f"{self._label}  {done:,}" if done else self._label)

    def _draw(self, text: str) -> None:
        with suppress(OSError):
            self._stream.write(f"\r{text:{self._width}}" + ("" if text else "\r"))
            self._stream.flush()
        self._width = max(self._width, len(text)) if text else 0


class Steps:
    """Shows what is being done, one bar after the other."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._doing = ""
        self._bar = Progress("", as_json=as_json)

    def __enter__(self) -> Self:
        """Return this."""
        return self

    def __exit__(self, *_: object) -> None:
        """Clear the line."""
        self._bar.__exit__()

    def __call__(self, doing: str, done: int = 0, total: int = 0) -> None:
        """Show how far something is, see Progress; another text begins another bar."""
        if doing != self._doing:
            self._bar.__exit__()
            self._doing = doing
            self._bar = Progress(doing, as_json=self._as_json)
        self._bar(done, total)
