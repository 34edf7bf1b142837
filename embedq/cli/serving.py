"""`embedq serve`: a host with listeners and nothing else, until a signal.

Knows: what is printed when it listens and when it has ended.
Does not know: what a configuration file may say (served.py), how anything is served.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from embedq.cli import access, output
from embedq.cli.asked import Asked, asks, pass_asked, seconds
from embedq.cli.logs import leave_to_application
from embedq.cli.reloading import Reloading
from embedq.cli.running import numbers
from embedq.cli.stopping import signal_is_for_consumers
from embedq.errors import InsecureListener, InvalidOption
from embedq.printable import plain

if TYPE_CHECKING:
    from embedq.app.broker import Broker
    from embedq.app.listeners import BrokerListener

_SECURE: Final = (
    "listen at 127.0.0.1, name users, tokens or ca in the file of --config, or say --insecure"
)


@click.command()
@click.argument("path", required=False)
@click.option("--listen", "urls", metavar="URL", multiple=True, help="Listen here; repeatable.")
@click.option("--config", metavar="FILE", help="Queues, listeners, users and limits, in TOML.")
@click.option("--insecure", is_flag=True, help="Let other machines in without asking who it is.")
@click.option("--grace", metavar="DURATION", help="How long clients may take to finish.")
@asks
@pass_asked
def serve(
    asked: Asked,
    path: str | None,
    urls: tuple[str, ...],
    config: str | None,
    *,
    insecure: bool,
    grace: str | None,
) -> None:
    """Serve the queues of a database to clients of other protocols, until a signal.

    PATH is the database; without it --db, the file of --config and the settings count, in this
    order. URL is for example sspq://127.0.0.1:8888?queue=orders, or sspq+unix:///path. Ctrl-C and
    SIGTERM end it: what clients have sent is stored and answered, what they hold is given back.
    SIGHUP lets it read certificates again.
    """
    from embedq.app.broker import Broker  # noqa: PLC0415  # only the command that runs loads it
    from embedq.cli.served import Served, named, read_config  # noqa: PLC0415

    wait_s = None if grace is None else seconds(grace, "--grace")
    served = Served() if config is None else read_config(Path(config))
    if not served.listeners and not urls:
        raise InvalidOption(
            "nothing is to be listened at",
            hint="give --listen sspq://127.0.0.1:8888?queue=orders, or --config FILE",
            argument="listen",
        )
    given, name = _path(path, asked.db, served.path)
    access.settings_of(Asked(given), name)  # refuses what is wrong, in words of the shell
    broker = Broker(given, durability=served.durability)
    for name, options in served.queues.items():
        with named(f"{config}: queues.{name}"):
            broker.queue(name, **options)
    listeners = []
    for number, (url, options) in enumerate(served.listeners, 1):
        with named(f"{config}: listen {number}"), _of_the_shell():
            listeners.append(broker.listen(url, **{"insecure": insecure, **options}))
    with _of_the_shell():
        listeners += [broker.listen(url, insecure=insecure) for url in urls]
    leave_to_application()
    broker.accompany(Beginning(broker, listeners, as_json=asked.json))
    signal_is_for_consumers()
    with Reloading(listeners, as_json=asked.json):
        report = broker.run(wait_s)
    cut = sum(each.cut for each in listeners)
    if asked.json:
        output.line({"event": "ended", **numbers(report), "cut": cut})
    else:
        output.say(f"ended     {_left(cut)}")


def _path(path: str | None, db: str | None, config: str | None) -> tuple[str | None, str]:
    """Return the path that counts, and the word that gave it. An empty one is refused, too."""
    if path is not None:
        return path, "PATH"
    return (db, "--db") if db is not None or config is None else (config, "path")


@contextmanager
def _of_the_shell() -> Iterator[None]:
    """Say in words of the command line how others may be let in."""
    try:
        yield
    except InsecureListener as error:
        error.hint = _SECURE
        raise


def _left(cut: int) -> str:
    """Say how clients have left."""
    if not cut:
        return "no client was left"
    clients = "1 client was" if cut == 1 else f"{cut} clients were"
    return f"{clients} cut, not having finished in time (--grace gives more)"


class Beginning:
    """Prints what is served, once it is. The last companion: the listeners have begun."""

    def __init__(self, broker: Broker, listeners: list[BrokerListener], *, as_json: bool) -> None:
        self._broker = broker
        self._listeners = listeners
        self._as_json = as_json

    def start(self) -> None:
        """Print it."""
        from embedq.broker.desk import Desk  # noqa: PLC0415  # loaded by now

        path = self._broker.settings.path
        role = "host" if isinstance(self._broker.desk, Desk) else "client"
        if self._as_json:
            told = [{"protocol": each.protocol, "url": each.url} for each in self._listeners]
            output.line({"event": "running", "path": path, "role": role, "listeners": told})
        else:
            output.say(f"file      {plain(path)} ({role})")
            for each in self._listeners:
                output.say(f"listening {plain(each.url)}")
            output.say("running   Ctrl-C ends it; a second one ends it at once")
        output.flush()

    def stop(self) -> None:
        """Say nothing: the end is told."""
