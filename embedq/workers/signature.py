"""What a handler asks for: read once from its signature, used for every message.

Knows: which parameter takes the body, the delivery or the batch, and the type of the body.
Does not know: queues, deliveries themselves, how a body is decoded.
"""

from __future__ import annotations

import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import Parameter
from typing import Any, Final, Literal

import msgspec

from embedq.errors import InvalidOption

Role = Literal["body", "delivery", "batch", "bodies"]
#: Calls the handler with a body (or a batch) and a delivery; what it does not want is left out.
Call = Callable[[object, object], object]

_EMPTY: Final = Parameter.empty
_POSITIONAL: Final = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_VARIADIC: Final = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
_ANYTHING: Final = (_EMPTY, Any, object)
#: Our class as an annotation that cannot be evaluated names it, perhaps with `None` as well.
_NAMED: Final = re.compile(
    r"(?:None\s*\|\s*|(?:\w+\.)*Optional\[)?(?:\w+\.)*(Delivery|Batch)\b(\[)?"
)


@dataclass(frozen=True, slots=True)
class Signature:
    """How to call a handler.

    `type`: what the body (of a batch: each body) is decoded to, None when nothing is asked for.
    `wants_delivery`: whether a Delivery has to be made. `takes`: what its main parameter gets.
    """

    call: Call
    type: object
    takes: Role | None
    wants_delivery: bool
    is_async: bool


def read_signature(function: Callable[..., object], *, batch: bool = False) -> Signature:
    """Read what `function` asks for; `batch` says that it is to get many messages at once.

    Raises InvalidOption, naming the parameter, for a handler that cannot be called with a
    message, whose annotation no body can become, or that is a generator.
    """
    where = described(function)
    _refuse_what_is_no_function(function, where)
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise InvalidOption(
            f"the parameters of {where} cannot be read: {error}",
            hint="wrap it in a function of your own: def handle(body): ...",
        ) from error
    if parameters and _is_unbound(function, parameters[0].name):
        raise InvalidOption(
            f"{where} is a method: nobody would give it its {parameters[0].name!r}",
            hint="register the method of an object: queue.consumer(Mailer().send)",
        )
    roles = _Roles(where, batch=batch)
    annotations = _annotations_of(function, parameters)
    for parameter in parameters:
        roles.assign(parameter, annotations[parameter.name])
    if roles.takes is None and not roles.wants_delivery:
        roles.use_variadic(parameters)
    roles.check()
    return Signature(
        call=_caller(function, parameters, roles.of),
        type=roles.type,
        takes=roles.takes,
        wants_delivery=roles.wants_delivery,
        is_async=is_async(function),
    )


def is_async(function: Callable[..., object]) -> bool:
    """Whether calling the handler gives something to await: also for callable objects."""
    if inspect.iscoroutinefunction(function):
        return True
    return inspect.iscoroutinefunction(_code_of(function))


def _code_of(function: Callable[..., object]) -> object:
    """Return the function that a call of `function` runs, as far as that can be seen."""
    inner: Any = function
    while isinstance(inner, functools.partial | staticmethod):
        inner = inner.func if isinstance(inner, functools.partial) else inner.__func__
    # A class is no callable object: calling it makes an instance.
    if inspect.isroutine(inner) or isinstance(inner, type):
        return inner
    return type(inner).__call__


def described(function: object) -> str:
    """Return name and place of a handler, for people: `app.ship (app.py:12)`."""
    inner = inspect.unwrap(function) if callable(function) else function
    name = getattr(inner, "__qualname__", None) or type(inner).__qualname__
    module = getattr(inner, "__module__", None)
    code = getattr(inner, "__code__", None)
    place = "" if code is None else f" ({code.co_filename}:{code.co_firstlineno})"
    return f"{module}.{name}{place}" if module else f"{name}{place}"


class _Roles:
    """Which parameter gets what, found one parameter at a time."""

    def __init__(self, where: str, *, batch: bool) -> None:
        self.of: dict[str, Role] = {}
        self.type: object = None
        self._of_delivery: object = _EMPTY
        self._where = where
        self._batch = batch

    @property
    def takes(self) -> Role | None:
        return next((role for role in self.of.values() if role != "delivery"), None)

    @property
    def wants_delivery(self) -> bool:
        return "delivery" in self.of.values()

    def assign(self, parameter: Parameter, annotation: object) -> None:
        """Give a role to the next parameter, or see that it can do without."""
        name = parameter.name
        if parameter.kind in _VARIADIC:
            return
        ours = _ours(annotation, "Delivery")
        if ours is not None or (annotation in _ANYTHING and name == "delivery"):
            if self.wants_delivery:
                raise self._wrong(name, "asks for the delivery a second time")
            self.of[name] = "delivery"
            self._of_delivery = _EMPTY if ours is None else ours
        elif self.takes is None:
            self._assign_main(name, annotation)
        elif parameter.default is _EMPTY:
            raise self._wrong(name, "is unknown here: a handler gets the body and the Delivery")

    def use_variadic(self, parameters: Sequence[Parameter]) -> None:
        """Let *args take the body, if nothing else does."""
        for parameter in parameters:
            if parameter.kind is Parameter.VAR_POSITIONAL:
                self.of[parameter.name] = "batch" if self._batch else "body"

    def _assign_main(self, name: str, annotation: object) -> None:
        ours = _ours(annotation, "Batch")
        if ours is not None:
            if not self._batch:
                hint = "say how many: @queue.consumer(batch=100)"
                raise self._wrong(name, "is a Batch, but batch= was not given", hint)
            self.of[name] = "batch"
            self._set_type(name, ours)
        elif not self._batch:
            self.of[name] = "body"
            self._set_type(name, annotation)
        elif annotation is _EMPTY:
            self.of[name] = "batch"
        elif typing.get_origin(annotation) is list:
            self.of[name] = "bodies"
            self._set_type(name, typing.get_args(annotation)[0])
        else:
            raise self._wrong(
                name, "gets many bodies with batch=", "annotate it as Batch[T] or as list[T]"
            )

    def _set_type(self, name: str, annotation: object) -> None:
        if isinstance(annotation, str):
            raise self._wrong(
                name,
                f"has the annotation {annotation!r}, which means nothing when the program runs",
                "import the type outside `if TYPE_CHECKING:`, and define it at module level",
            )
        if annotation in _ANYTHING or isinstance(annotation, typing.TypeVar):
            return
        unreadable = unreadable_part(annotation)
        if unreadable is not None:
            raise self._wrong(
                name,
                f"asks for {unreadable}, and no body can become that",
                "use bytes, str, JSON-able types, a dataclass, a msgspec struct or a pydantic "
                "model",
            )
        self.type = annotation

    def check(self) -> None:
        """Refuse what does not go together; let Delivery[T] say what the body is, if it must."""
        if self.takes is None and self.wants_delivery:
            self._set_type(next(iter(self.of)), self._of_delivery)
        if self._batch and self.wants_delivery:
            name = next(name for name, role in self.of.items() if role == "delivery")
            hint = "use batch.deliveries, or the outcomes of Batch itself"
            raise self._wrong(name, "is one Delivery, but a batch has many", hint)

    def _wrong(self, name: str, what: str, hint: str | None = None) -> InvalidOption:
        return InvalidOption(
            f"{self._where}: the parameter {name!r} {what}",
            hint=hint or "give the parameter a default, or remove it",
            argument=name,
        )


def unreadable_part(wanted: object) -> str | None:
    """Return the name of a type inside `wanted` that no body can become; None if all can.

    Without this check a handler with such an annotation would dead-letter every message.
    """
    if wanted in (bytes, str, bytearray, memoryview, None):
        return None
    if hasattr(wanted, "model_validate"):
        return None
    try:
        info = msgspec.inspect.type_info(wanted)
    except (TypeError, NameError) as error:
        return f"{_shown(wanted)} ({error})"
    return _custom_in(info, set())


def _custom_in(info: object, seen: set[int]) -> str | None:
    if id(info) in seen:
        return None
    seen.add(id(info))
    if isinstance(info, msgspec.inspect.CustomType):
        return None if hasattr(info.cls, "model_validate") else _shown(info.cls)
    if isinstance(info, list | tuple):
        parts = list(info)
    elif isinstance(info, msgspec.inspect.Type | msgspec.inspect.Field):
        parts = [
            getattr(info, name)
            for name in info.__struct_fields__
            if name not in {"cls", "default", "default_factory"}
        ]
    else:
        return None
    return next((found for part in parts if (found := _custom_in(part, seen))), None)


def _shown(wanted: object) -> str:
    return wanted.__qualname__ if isinstance(wanted, type) else repr(wanted)


def _refuse_what_is_no_function(function: object, where: str) -> None:
    if not callable(function):
        raise InvalidOption(f"{where} cannot be called", hint=_instead_of(function))
    code = _code_of(function)
    if inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code):
        raise InvalidOption(
            f"{where} yields: calling it would run none of its code",
            hint="remove the yield; with batch= a handler gets many messages at once",
        )
    if isinstance(function, type):
        raise InvalidOption(
            f"{where} is a class: a message would only make an instance of it",
            hint="decorate a function, or register an instance that can be called",
        )


def _instead_of(function: object) -> str:
    if isinstance(function, str):
        return "options are given by name: @queue.consumer(group=...)"
    if isinstance(function, classmethod):
        return "register it when the class is complete: queue.consumer(TheClass.the_method)"
    return "decorate a function: @queue.consumer"


def _is_unbound(function: Callable[..., object], first: str) -> bool:
    """Whether a function was decorated inside its class, where it has no object yet."""
    parent = getattr(function, "__qualname__", "").rpartition(".")[0]
    in_class = bool(parent) and not parent.endswith("<locals>")
    return first in {"self", "cls"} and in_class and inspect.isfunction(function)


def _annotations_of(
    function: Callable[..., object], parameters: Sequence[Parameter]
) -> dict[str, Any]:
    """Return every parameter's annotation; one that cannot be evaluated stays a string."""
    inner = inspect.unwrap(function)
    while isinstance(inner, functools.partial):
        inner = inner.func
    if not (inspect.isfunction(inner) or inspect.ismethod(inner)):
        inner = type(inner).__call__
    try:
        hints = typing.get_type_hints(inner, include_extras=True)
    except Exception:  # noqa: BLE001 - any expression may be an annotation; see one by one
        hints = {}
    space = getattr(inner, "__globals__", {})
    found: dict[str, Any] = {}
    for parameter in parameters:
        annotation = hints.get(parameter.name, parameter.annotation)
        if isinstance(annotation, str):
            annotation = _evaluated(annotation, space)
        found[parameter.name] = annotation
    return found


def _evaluated(text: str, space: dict[str, Any]) -> object:
    # The library's own way to evaluate one annotation is a function that has only this one.
    probe = type("probe", (), {"__annotations__": {"it": text}})
    try:
        return typing.get_type_hints(probe, space, {}, include_extras=True)["it"]
    except Exception:  # noqa: BLE001 - as above: it stays a string, and the caller decides
        return text


def _ours(annotation: object, name: str) -> object:
    """Return what T is if an annotation is our class of this name: X[T], X, X | None.

    None: it is something else. One that only type checkers can evaluate counts by its name, and
    is returned as it is if it has a T.
    """
    if isinstance(annotation, str):
        found = _NAMED.match(annotation)
        bare = annotation if found and found[2] else _EMPTY
        return bare if found and found[1] == name else None
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _ours(inner[0], name)
    if origin in {typing.Union, types.UnionType}:
        others = [each for each in inner if each is not types.NoneType]
        return _ours(others[0], name) if len(others) == 1 else None
    kind = origin or annotation
    if not isinstance(kind, type) or (kind.__name__, _package(kind)) != (name, "embedq"):
        return None
    return inner[0] if inner else _EMPTY


def _package(kind: type) -> str:
    return kind.__module__.partition(".")[0]


def _caller(
    function: Callable[..., object], parameters: Sequence[Parameter], roles: dict[str, Role]
) -> Call:
    """Return a function that puts body and delivery where the handler wants them."""
    positional: list[tuple[object, Role | None]] = []
    named: dict[str, Role] = {}
    last = 0
    for parameter in parameters:
        role = roles.get(parameter.name)
        if parameter.kind in _POSITIONAL or (parameter.kind is Parameter.VAR_POSITIONAL and role):
            positional.append((parameter.default, role))
            last = len(positional) if role else last
        elif role is not None:
            named[parameter.name] = role
    wanted = [role if role in {None, "delivery"} else "body" for _, role in positional[:last]]
    if not named:
        short = _short_call(function, wanted)
        if short is not None:
            return short

    def call(body: object, delivery: object) -> object:
        def value(default: object, role: Role | None) -> object:
            if role is None:
                return default
            return delivery if role == "delivery" else body

        args = [value(default, role) for default, role in positional[:last]]
        kwargs = {name: value(None, role) for name, role in named.items()}
        return function(*args, **kwargs)

    return call


def _short_call(function: Callable[..., object], wanted: list[str | None]) -> Call | None:
    """Return a quick call for the handlers that nearly everybody writes."""
    if wanted == ["body"]:
        return lambda body, _: function(body)
    if wanted == ["body", "delivery"]:
        return function
    if wanted == ["delivery"]:
        return lambda _, delivery: function(delivery)
    return None if wanted else lambda _, __: function()
