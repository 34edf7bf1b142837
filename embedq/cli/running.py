"""`embedq run` and `embedq worker`: the consumers of an application, until a signal.

Knows: what is printed when they run and when they have ended.
Does not know: how an application is found, how consumers run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from embedq.cli import access, output
from embedq.cli.application import NoApplication, load
from embedq.cli.asked import Asked, asks, pass_asked, seconds
from embedq.cli.logs import leave_to_application
from embedq.cli.stopping import signal_is_for_consumers
from embedq.errors import QueueNotFound
from embedq.printable import plain
from embedq.workers.spec import PROCESSES_MAX

if TYPE_CHECKING:
    from embedq.app.broker import Broker
    from embedq.workers.drain import Report
    from embedq.workers.spec import ConsumerSpec


@click.command()
@click.argument("application", metavar="MODULE:BROKER")
@click.option("--grace", metavar="DURATION", help="How long handlers may take to finish.")
@asks
@pass_asked
def run(asked: Asked, application: str, grace: str | None) -> None:
    """Run the consumers of an application until a signal.

    MODULE is imported, with the current folder first on the import path; BROKER is the name of
    its broker, which may be left out if there is only one. The process becomes the host of the
    file, or is connected to the process that is. Ctrl-C and SIGTERM end it: handlers finish, for
    at most the grace of the broker or --grace; a second signal ends the grace.
    """
    _run(asked, _loaded(application), grace)


@click.command()
@click.argument("application", metavar="MODULE:BROKER")
@click.option("--queues", metavar="NAMES", help="Only the consumers of these: orders,mail.")
@click.option(
    "--processes",
    metavar="N",
    type=click.IntRange(1, PROCESSES_MAX),
    help="Run each consumer in so many worker processes instead of as it says.",
)
@click.option("--grace", metavar="DURATION", help="How long handlers may take to finish.")
@asks
@pass_asked
def worker(
    asked: Asked,
    application: str,
    queues: str | None,
    processes: int | None,
    grace: str | None,
) -> None:
    """Run consumers beside the processes that are there already.

    As `embedq run`, for more consumers of a file that an application has open: this process is
    connected to it, whatever role the application declares for itself. It becomes the host only
    where there is none, or when the host is gone.
    """
    broker = _loaded(application)
    if broker.settings.role == "host":
        broker.override(role="auto")
    if queues is not None:
        _keep(broker, [name.strip() for name in queues.split(",") if name.strip()])
    if processes is not None:
        broker.consumers.move_to_processes(processes)
    _run(asked, broker, grace)


def _loaded(application: str) -> Broker:
    try:
        return load(application)
    except NoApplication as error:
        if error.traceback:
            click.echo(plain(error.traceback, keep="\n"), err=True, nl=False)
        raise


def _keep(broker: Broker, wanted: list[str]) -> None:
    known = {spec.queue for spec in broker.consumers}
    for name in wanted:
        if name not in known:
            there = ", ".join(sorted(known)) or "none"
            raise QueueNotFound(
                f"the application has no consumer of the queue {name!r}",
                hint=f"it has consumers of: {there}",
                queue=name,
            )
    broker.consumers.keep(wanted)


def _run(asked: Asked, broker: Broker, grace: str | None) -> None:
    wait_s = None if grace is None else seconds(grace, "--grace")
    if asked.db is not None:
        with access.of_the_shell(asked.db):
            broker.override(path=asked.db)
    leave_to_application()
    broker.accompany(Beginning(broker, as_json=asked.json))
    signal_is_for_consumers()
    report = broker.run(wait_s)
    if asked.json:
        output.line({"event": "ended", **numbers(report)})
    else:
        output.say(ended(report))


def ended(report: Report) -> str:
    """Say how a drain ended."""
    ends = {"finished": report.finished, "given back": report.released, "stuck": report.stuck}
    told = ", ".join(f"{number} {what}" for what, number in ends.items() if number)
    return f"ended     {told or 'nothing was running'}"


def numbers(report: Report) -> dict[str, int]:
    """Return the same for programs."""
    return {"finished": report.finished, "released": report.released, "stuck": report.stuck}


class Beginning:
    """Prints what runs, once it runs."""

    def __init__(
        self, broker: Broker, *, as_json: bool, then: Callable[[], object] = lambda: None
    ) -> None:
        self._broker = broker
        self._as_json = as_json
        self._then = then

    def start(self) -> None:
        """Print it."""
        from embedq.broker.desk import Desk  # noqa: PLC0415  # loaded by now, if at all

        broker = self._broker
        role = "host" if isinstance(broker.desk, Desk) else "client"
        consumers = list(broker.consumers)
        if self._as_json:
            told = {"event": "running", "path": broker.settings.path, "role": role}
            output.line(told | {"consumers": [_as_json(spec) for spec in consumers]})
        else:
            output.say(f"file      {plain(broker.settings.path)} ({role})")
            for line in consumer_lines(consumers):
                output.say(line)
            output.say("running   Ctrl-C ends it; a second one ends it at once")
        output.flush()
        self._then()

    def stop(self) -> None:
        """Say nothing: the end of the drain is told."""


def consumer_lines(consumers: list[ConsumerSpec]) -> list[str]:
    """Return a line for each consumer."""
    if not consumers:
        return ["consumers none: the application declares none"]
    wide = max(len(_place(spec)) for spec in consumers)
    return [
        f"consumer  {_place(spec):{wide}}  {plain(spec.name)}  {spec.concurrency} {_slots(spec)}"
        for spec in consumers
    ]


def _place(spec: ConsumerSpec) -> str:
    group = "" if spec.group == "default" else f"/{spec.group}"
    return plain(f"{spec.queue}{group}")


def _slots(spec: ConsumerSpec) -> str:
    kind = "process" if spec.in_process else "task" if spec.signature.is_async else "thread"
    many = "processes" if kind == "process" else f"{kind}s"
    return kind if spec.concurrency == 1 else many


def _as_json(spec: ConsumerSpec) -> dict[str, object]:
    kind = "process" if spec.in_process else "async" if spec.signature.is_async else "thread"
    return {
        "queue": spec.queue,
        "group": spec.group,
        "name": spec.name,
        "concurrency": spec.concurrency,
        "kind": kind,
    }
