"""An application by name: `module:broker` imported, or why that cannot be done.

Knows: what people write by mistake, which lines of a traceback are theirs.
Does not know: what is done with the broker.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
import traceback
from types import ModuleType
from typing import Final

from embedq.app.broker import Broker
from embedq.errors import UsageError

_HINT: Final = "write the module and the name of its broker, as in shop.queues:broker"


class NoApplication(UsageError):
    """The name of an application leads to no broker. `traceback`: of an import that failed."""

    code = "no_application"
    hint = _HINT

    def __init__(self, message: str, hint: str | None = None, trace: str = "") -> None:
        super().__init__(message, hint=hint)
        self.traceback = trace


def load(reference: str) -> Broker:
    """Import `module:broker` and return the broker; the name may be left out if there is one.

    The current folder comes first on the import path. Raises NoApplication.
    """
    module_name, _, name = reference.partition(":")
    _check(reference, module_name)
    if "" not in sys.path:
        sys.path.insert(0, "")
    importlib.invalidate_caches()
    module = _import(module_name)
    return _named(module, name) if name else _only(module)


def _check(reference: str, module: str) -> None:
    if not module:
        raise NoApplication(f"{reference!r} names no module")
    if module.endswith(".py") or "/" in module:
        meant = module.removesuffix(".py").strip("./").replace("/", ".")
        raise NoApplication(f"{module} is a file", f"name the module: {meant}:broker")


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name != missing and not name.startswith(f"{missing}."):
            raise _failed(name, error) from error
        raise NoApplication(
            f"there is no module {missing!r} in this folder or the environment",
            "run the command in the folder that contains it, and with the Python that has it",
        ) from error
    except (Exception, SystemExit) as error:
        raise _failed(name, error) from error


def _failed(module: str, error: BaseException) -> NoApplication:
    return NoApplication(
        f"the module {module!r} cannot be imported: {type(error).__name__}: {error}",
        "correct it; the traceback shows where",
        _trace(error),
    )


def _trace(error: BaseException) -> str:
    """Return the traceback without the lines that led into the application."""
    frames = traceback.extract_tb(error.__traceback__)
    mine = [
        frame
        for frame in frames
        if not frame.filename.startswith("<frozen")
        and frame.filename not in {__file__, importlib.__file__}
    ]
    lines = traceback.format_list(mine)
    lines += traceback.format_exception_only(error)
    return "Traceback (most recent call last):\n" + "".join(lines)


def _named(module: ModuleType, name: str) -> Broker:
    found: object = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise NoApplication(f"{module.__name__!r} has no {name!r}", _others(module))
        found = getattr(found, part)
    if isinstance(found, Broker):
        return found
    kind = type(found).__name__
    raise NoApplication(f"{module.__name__}:{name} is a {kind}, not a Broker", _others(module))


def _only(module: ModuleType) -> Broker:
    found = _brokers(module)
    distinct = list({id(broker): broker for broker in found.values()}.values())
    if len(distinct) == 1:
        return distinct[0]
    if found:
        raise NoApplication(f"{module.__name__!r} has several brokers", _others(module))
    raise NoApplication(f"{module.__name__!r} has no broker at its top level")


def _brokers(module: ModuleType) -> dict[str, Broker]:
    return {name: each for name, each in vars(module).items() if isinstance(each, Broker)}


def _others(module: ModuleType) -> str | None:
    names = [f"{module.__name__}:{name}" for name in _brokers(module)]
    return f"it has {', '.join(names)}" if names else None
