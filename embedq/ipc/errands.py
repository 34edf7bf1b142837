"""A light connection to a host, for a process that only has errands there.

Knows: how an address becomes a place to connect to, how long it waits, which option is wrong.
Does not know: who has errands and why, queues, deliveries.

It loads neither asyncio nor the application's room: a process that lives for one question pays for
little more than ZeroMQ. Spark's Python processes use it.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from embedq.broker.office import Office
from embedq.errors import InvalidOption, KeyRefused, NoHost
from embedq.ipc import frames
from embedq.ipc.address import is_address, is_endpoint
from embedq.ipc.keys import ClientKeys, client_keys
from embedq.ipc.link import Link
from embedq.ipc.place import Found, find_host
from embedq.ipc.verbs import OnProgress, remote
from embedq.limits import LIMITS, Limits

#: Seconds that an errand waits for a host that is not there, or is being replaced.
PATIENCE_S: Final = 30.0


@contextmanager
def open_office(
    address: str | os.PathLike[str],
    keys: str | os.PathLike[str] | None = None,
    *,
    patience_s: float = PATIENCE_S,
    name: str = "",
    limits: Limits = LIMITS,
) -> Iterator[Office]:
    """Connect to the host at `address` and give its office; leaving says goodbye.

    `address`: what `Broker` takes, the path of a database file on this machine or
    `tcp://host:port`; for the latter `keys` names the file of a client's secret key, or a folder
    with one. `patience_s`: seconds to wait for a host, at first and when it is replaced under a
    call. `name`: what the host shows of this process.

    This process never becomes the host. A child made by `fork` opens an office of its own: the one
    of its parent raises ForkedBroker there. Raises NoHost, KeyRefused, WrongVersion, InvalidOption
    and InsecurePermissions; calls raise what the host raises, NoHost, and HostGone for what must
    not be asked twice.
    """
    place = os.fspath(address)
    found = _found_abroad(place, keys)
    token = os.urandom(16)
    called = name or f"errand-{os.getpid()}@{socket.gethostname()}"
    hello = frames.Hello(list(frames.VERSIONS), token, called, os.getpid())
    link = Link(
        (lambda: found) if found is not None else (lambda: find_host(place)),
        lambda: hello,
        patience_s=patience_s,
        max_bytes=limits.batch_bytes + frames.OVERHEAD,
    )

    def ask(verb: str, args: bytes, repeat: bool, progress: OnProgress | None) -> bytes:  # noqa: FBT001
        try:
            answer = link.ask(
                lambda n, _: frames.Call(n, verb, msgspec.Raw(args)),
                repeat=repeat,
                progress=progress,
            )
        except NoHost as error:
            raise _nobody(place, error) from error
        return bytes(cast("frames.Result", answer).value)

    try:
        _start(link, place, patience_s)
        yield remote(ask)
    finally:
        link.close()


def _start(link: Link, place: str, patience_s: float) -> None:
    try:
        link.start(patience_s)
    except NoHost as error:
        raise _nobody(place, error) from error
    except KeyRefused as error:
        raise KeyRefused(error.message, hint=f"{error.hint}; or set `keys` to another") from error


def _found_abroad(place: str, keys: str | os.PathLike[str] | None) -> Found | None:
    """Return where a host on another machine is; None: `place` is a file here."""
    if not is_address(place):
        if not place or "://" in place:
            raise _no_address(place)
        return None
    if not is_endpoint(place, to_bind=False):
        raise _no_address(place)
    return Found(None, 0, place, _keys(place, keys))


def _keys(place: str, keys: str | os.PathLike[str] | None) -> ClientKeys:
    if not keys:
        raise InvalidOption(
            f"endpoint {place}: a host on another machine asks for a key",
            hint="set `keys` to the file of the client's secret key, there on every machine",
            argument="keys",
        )
    return client_keys(keys)


def _no_address(place: str) -> InvalidOption:
    return InvalidOption(
        f"endpoint {place!r} is no address of a host",
        hint="it is the path of a database file on this machine, or tcp://host:port",
        argument="endpoint",
    )


def _nobody(place: str, error: NoHost) -> NoHost:
    """Return the error that says which address it is about, and what to change."""
    if is_address(place):
        return NoHost(error.message, hint=f"{error.hint}; the address is the option `endpoint`")
    where = "" if Path(place).exists() else ", and there is no such file"
    details: dict[str, Any] = {"path": place}
    return NoHost(
        f"no process hosts {place}{where}",
        hint="start the application that opens it, or correct the option `endpoint`",
        **details,
    )
