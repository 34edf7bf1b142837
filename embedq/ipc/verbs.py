"""The calls of an office, carried between processes: one table, read from its methods.

Knows: how arguments and results become bytes, by the annotations of the methods.
Does not know: what a call does, how the bytes travel.

Arguments are only ever added at the end, with a default. One that has its default is not sent, so
that hosts which do not know it understand the call; one that is missing has its default.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple, cast, get_type_hints

import msgspec

from embedq.broker.office import Office
from embedq.errors import InvalidPayload

#: Tells how far a call is: (done, in all).
OnProgress = Callable[[int, int], object]
#: Does a call: arguments and result are MessagePack.
Verb = Callable[[bytes, OnProgress], bytes]
#: Asks a host: (verb, arguments, may be repeated, progress) -> result.
Ask = Callable[[str, bytes, bool, OnProgress | None], bytes]

_encode = msgspec.msgpack.Encoder(enc_hook=str).encode
_split = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
#: Parameters that are no arguments of a call.
_NOT_SENT = frozenset({"self", "progress"})


class Form(NamedTuple):
    """What a call is made of."""

    signature: inspect.Signature
    arguments: Callable[[bytes], tuple[Any, ...]]
    result: Callable[[bytes], Any]
    has_progress: bool
    repeat: bool

    def positions(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Return the arguments but the progress, in order, without defaults at the end."""
        bound = self.signature.bind(None, *args, **kwargs)
        bound.apply_defaults()
        parameters = _sent(self.signature)
        values = [bound.arguments[each.name] for each in parameters]
        while values and values[-1] == parameters[len(values) - 1].default:
            values.pop()
        return tuple(values)


def _sent(signature: inspect.Signature) -> list[inspect.Parameter]:
    """Return the parameters of a call that travel."""
    return [each for name, each in signature.parameters.items() if name not in _NOT_SENT]


@cache
def forms() -> Mapping[str, Form]:
    """Return the form of every call, by name: the methods of the office and of its parts."""
    return {
        name: _form(method)
        for name, method in inspect.getmembers(Office, inspect.isfunction)
        if not name.startswith("_")
    }


def _form(method: Callable[..., Any]) -> Form:
    hints = get_type_hints(method)
    result = hints.pop("return")
    has_progress = hints.pop("progress", None) is not None
    signature = inspect.signature(method)
    needed = [each.default is each.empty for each in _sent(signature)]
    least = max((at + 1 for at, is_needed in enumerate(needed) if is_needed), default=0)
    return Form(
        signature,
        _arguments(tuple(hints.values()), least),
        msgspec.msgpack.Decoder(result).decode,
        has_progress,
        not getattr(method, "once", False),
    )


def _arguments(kinds: tuple[Any, ...], least: int) -> Callable[[bytes], tuple[Any, ...]]:
    """Return what reads arguments of these kinds, of which at least so many must be there."""
    readers: dict[int, Callable[[bytes], tuple[Any, ...]]] = {}
    for count in range(least, len(kinds) + 1):
        wanted = tuple[kinds[:count]] if count else tuple[()]  # type: ignore[misc]
        readers[count] = msgspec.msgpack.Decoder(cast("type[tuple[Any, ...]]", wanted)).decode

    def read(data: bytes) -> tuple[Any, ...]:
        # With a number of them that cannot be, the reader of all says what is wrong.
        return readers.get(len(_split(data)), readers[len(kinds)])(data)

    return read


def served(office: Office) -> Mapping[str, Verb]:
    """Return the calls of an office as a server answers them."""
    return {name: _verb(getattr(office, name), form) for name, form in forms().items()}


def _verb(method: Callable[..., Any], form: Form) -> Verb:
    names = [name for name in form.signature.parameters if name not in _NOT_SENT]

    def call(data: bytes, progress: OnProgress) -> bytes:
        try:
            values = form.arguments(data)
        except (msgspec.ValidationError, msgspec.DecodeError) as error:
            raise InvalidPayload(f"arguments of {method.__name__}: {error}") from error
        given = dict(zip(names, values, strict=False))
        if form.has_progress:
            given["progress"] = progress
        return _encode(method(**given))

    call.__dict__["repeat"] = form.repeat
    call.__dict__["in_turn"] = getattr(method, "in_turn", False)
    return call


def encoded(name: str, *args: Any) -> bytes:  # noqa: ANN401 - as the office says
    """Return the arguments of a call as they travel."""
    return _encode(forms()[name].positions(args, {}))


class _Remote:
    """An office far away: its calls are asked of a host."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def __getattr__(self, name: str) -> Callable[..., Any]:
        form = forms().get(name)
        if form is None:
            raise AttributeError(name)

        def call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the office says
            progress = kwargs.pop("progress", None)
            data = _encode(form.positions(args, kwargs))
            return form.result(self._ask(name, data, form.repeat, progress))

        return call


def remote(ask: Ask) -> Office:
    """Return an office whose calls are asked of a host."""
    return cast("Office", _Remote(ask))
