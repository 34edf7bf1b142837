"""A host beside the application: a sidecar is started where there is none, and connected to.

Knows: who starts it, what it is told, that whoever leaves last waits for its end.
Does not know: what it does (sidecar.py), what is asked of it.

Every process that wants a sidecar starts one when the host is gone. The lock of the file decides,
as ever; a second lock keeps several of them from starting as many interpreters for nothing.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import spawn
from typing import Any, Final

import msgspec

from embedq.app.hosting import PATIENCE_S, Connected
from embedq.app.settings import Settings
from embedq.app.sidecar import Orders
from embedq.broker.redaction import Patterns
from embedq.clock import Clock, SystemClock
from embedq.errors import EmbedqError, InvalidOption, StoreFailed, StoreInUse
from embedq.events import Notice
from embedq.ipc.failures import raised
from embedq.ipc.frames import Failed
from embedq.ipc.place import find_host, folder_of, make_folder
from embedq.limits import Limits
from embedq.storage.owners import owner_of

#: Seconds that the last one to leave waits for the file to be closed.
END_S: Final = 10.0
_PAUSE_S: Final = 0.05
_LOOK_S: Final = 0.005
_PROGRAM: Final = "embedq.app.sidecar"
_LOCK: Final = "sidecar.lock"


def open_beside(settings: Settings, clock: Clock | None, limits: Limits) -> Beside:
    """Connect to the host of the file; start a sidecar if there is none.

    Raises InvalidOption for a clock that cannot cross a process, StoreInUse for a host that serves
    nobody, NoHost, and why the file cannot be opened: as without a sidecar.
    """
    if not isinstance(clock, SystemClock | None):
        raise InvalidOption(
            "sidecar=True: the host is another process, which cannot have this clock",
            hint="leave out sidecar or clock",
            argument="clock",
        )
    orders = _orders(settings, limits)

    def start() -> Started:
        return start_sidecar(orders)

    pause = threading.Event()
    in_use: StoreInUse | None = None
    for attempt in range(round(PATIENCE_S / _PAUSE_S)):
        started = None
        try:
            if find_host(orders.path) is None:
                started = start()
            return Beside.to(
                orders.path, limits, PATIENCE_S, clock=clock, open_host=start, host=started
            )
        except StoreInUse as error:
            in_use = error  # one that is just starting or ending, or serves nobody
        except BaseException as error:
            if started is not None:
                started.close()
            if started is not None or not getattr(error, "retryable", False):
                raise
        pause.wait(_PAUSE_S * min(attempt, 4))
    raise in_use or StoreInUse(f"database {orders.path} has hosts that come and go")


def _orders(settings: Settings, limits: Limits) -> Orders:
    redact, keys = settings.redact, settings.keys
    return Orders(
        path=os.path.abspath(settings.path),  # noqa: PTH100 - a text, as Desk.path
        durability=settings.durability,
        limits=limits,
        redact=redact.texts if isinstance(redact, Patterns) else (),
        starter=os.getpid(),
        endpoint=settings.endpoint,
        keys=None if keys is None else os.path.abspath(keys),  # noqa: PTH100 - as above
    )


# ------------------------------------------------------------------------------ its start


class Started:
    """A sidecar that this process has started, and is the parent of."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        # Whoever is the parent has to take notice of the end, whenever that is.
        thread = threading.Thread(target=process.wait, name="embedq-sidecar", daemon=True)
        thread.start()

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def close(self) -> None:
        """Need it no more: it ends, unless somebody is connected to it."""
        self._process.terminate()


def start_sidecar(orders: Orders) -> Started:
    """Start a sidecar and return once it serves.

    Raises StoreInUse if there is a host, or somebody else is just starting one; why the file
    cannot be opened; StoreFailed if no process can be started.
    """
    with _alone(orders.path):
        owner = owner_of(orders.path)
        if owner is not None and owner.alive:
            raise StoreInUse(f"database {orders.path} has a host", pid=owner.pid)
        process = _spawn(orders)
        try:
            report = _report_of(process, orders)
        except BaseException:
            process.kill()
            process.wait()
            raise
    if report:
        process.wait()
        raise raised(msgspec.json.decode(report, type=Failed))
    return Started(process)


@contextmanager
def _alone(path: str) -> Iterator[None]:
    """Let no other process start a sidecar meanwhile. Raises StoreInUse if one is doing so.

    A lock of the process: a child that somebody forks does not hold it.
    """
    place = make_folder(folder_of(path)) / _LOCK
    try:
        fd = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise StoreFailed(f"{place} cannot be opened: {error.strerror}") from error
    try:
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StoreInUse(f"database {path}: another process starts its sidecar") from error
        yield
    finally:
        os.close(fd)


def _spawn(orders: Orders) -> subprocess.Popen[bytes]:
    # In a session of its own: a Ctrl-C of the terminal is for the application, which drains.
    try:
        process = subprocess.Popen(  # noqa: S603 - this interpreter, and a path
            [_interpreter(), "-P", "-m", _PROGRAM, orders.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if _is_open(2) else subprocess.DEVNULL,
            env=_environment(os.environ),
            start_new_session=True,
        )
    except OSError as error:
        raise StoreFailed(
            f"database {orders.path}: no sidecar can be started: {error.strerror}",
            hint="see whether the machine has room for a process; or leave sidecar out",
        ) from error
    assert process.stdin is not None  # noqa: S101 - asked for above
    try:
        process.stdin.write(msgspec.json.encode(orders) + b"\n")
        process.stdin.close()
    except OSError:
        pass  # it has ended, and says why or does not: see _report_of
    return process


def _report_of(process: subprocess.Popen[bytes], orders: Orders) -> bytes | None:
    """Return why the sidecar cannot serve; None: it serves. Raises StoreFailed if it is silent."""
    assert process.stdout is not None  # noqa: S101 - asked for in _spawn
    with process.stdout as says:
        line: bytes = says.readline().strip()
    if not line:
        code = process.wait()
        raise StoreFailed(
            f"database {orders.path}: the sidecar ended at its start, with "
            + (f"signal {-code}" if code < 0 else f"exit code {code}"),
            hint="its standard error, which is that of this process, says more",
        )
    return None if line == b"null" else line


def _interpreter() -> str:
    return os.fsdecode(spawn.get_executable() or sys.executable)


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with the import path of this process: its embedq is to be found."""
    folders = [os.path.abspath(each) for each in sys.path]  # noqa: PTH100 - "" is a folder, too
    found = [each for each in folders if os.pathsep not in each]
    return {**environment, "PYTHONPATH": os.pathsep.join(found)}


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


# ---------------------------------------------------------------------------- the client


class Beside(Connected):
    """The host is a sidecar, or another process that was first."""

    @contextmanager
    def ending_on_failure(self, stop: Callable[[], object]) -> Iterator[None]:
        """Call `stop` when the store of the host has stopped; leaving raises why."""
        heard: list[Mapping[str, Any]] = []

        def hear(notice: Notice) -> None:
            heard.append(notice.fields)
            stop()

        off = self.desk.events.on("store_failed", hear)
        try:
            yield
        finally:
            off()
        if heard:
            message, _, hint = str(heard[0].get("detail")).partition("\nhint: ")
            raise raised(Failed(0, str(heard[0].get("code")), message, hint or None, {}))

    def close(self) -> None:
        """Leave. If nobody else is connected, return once the file is closed."""
        super().close()
        until = SystemClock().monotonic() + END_S
        pause = threading.Event()
        while SystemClock().monotonic() < until:
            try:
                owner = owner_of(self.path)
            except EmbedqError:
                return  # the file is gone, or nobody may look at it any more
            if owner is None or not owner.alive or owner.socket:
                return
            pause.wait(_LOOK_S)
