"""What Spark must be told to find a queue: the options of `spark.read` and of `df.write`.

Knows: where the broker's host is, which options those are, how values are written in them.
Does not know: Spark, whether an option makes sense (embedq.spark checks that, where it is used).

No step of a reader or a writer runs in the process of the broker: everything travels as text.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from embedq.app.settings import MEMORY
from embedq.errors import InvalidOption, shown
from embedq.ipc.address import is_address

if TYPE_CHECKING:
    from embedq.app.broker import Broker

#: What a keyword can be that becomes the name of an option.
_NAME: Final = re.compile("[A-Za-z][A-Za-z0-9.]*")


class _Queue(Protocol):
    broker: Broker
    name: str


class Feeding:
    """The part of a queue that tells Spark where it is."""

    def spark_options(self: _Queue, **more: object) -> dict[str, str]:
        """Return the options with which Spark reads from this queue, and writes to it.

        For `spark.read.format("embedq").options(**…)`, `readStream`, `write` and `writeStream`.
        `more` are further options, or others: `group="archive"`, `maxHold="7d"`,
        `startingOffsets={"seq": 1234}`. Numbers, True and False, mappings and paths become text;
        None leaves one out. The queue is declared, and its host can be reached when this returns.

        A broker on this machine gives `endpoint` and `path`: for executors on others say
        `endpoint="tcp://host:port", keys="…", path=None`. Raises InvalidOption, and why the
        broker cannot be opened.
        """
        given = {name: _text(name, value) for name, value in more.items()}
        place, settings = self.broker.settings.path, self.broker.settings
        if place == MEMORY:
            raise InvalidOption(
                f"queue {self.name!r} is in memory, where no other process can read",
                hint="open the Broker on a path",
                argument="path",
            )
        self.broker.state_of(self.name)
        self.broker.backing.wait_until_served()
        options: dict[str, str | None] = {"endpoint": place, "queue": self.name}
        if is_address(place):
            options["keys"] = None if settings.keys is None else os.path.abspath(settings.keys)  # noqa: PTH100
        else:
            options["endpoint"] = options["path"] = os.path.abspath(place)  # noqa: PTH100
        if "," in self.name or self.name != self.name.strip():
            options["subscribePattern"] = re.escape(self.name)  # a comma would part two names
        else:
            options["subscribe"] = self.name
        options |= given
        return {name: value for name, value in options.items() if value is not None}


def _text(name: str, value: object) -> str | None:
    """Return an option as Spark takes it: text."""
    if _NAME.fullmatch(name) is None:
        raise InvalidOption(f"{name!r} is no name of an option", argument=name)
    kind: Any = type(value)
    if value is None or kind is str:
        return value  # type: ignore[return-value]
    if kind is bool:
        return str(value).lower()
    if kind is int or kind is float:
        return str(value)
    if isinstance(value, os.PathLike):
        return os.path.abspath(os.fsdecode(value))  # noqa: PTH100
    if isinstance(value, Mapping):
        try:
            return json.dumps(dict(value))
        except (TypeError, ValueError) as error:
            raise _refused(name, value) from error
    raise _refused(name, value)


def _refused(name: str, value: object) -> InvalidOption:
    return InvalidOption(
        f"spark_options({name}={shown(value)}): it cannot be written as an option",
        hint="give text, a number, True or False, a path, or a mapping",
        argument=name,
    )
