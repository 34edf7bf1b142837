"""A host among clients that misbehave, while others go on: what it cost whom.

Knows: a real host with short deadlines, offenders in a process of their own, healthy clients here.
Does not know: how offenders misbehave (offenders.py); nothing here judges how quick anything was.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from embedq import Broker
from tests.interop.host import ROOT, Host, hosting
from tests.interop.mmqp_client import Mack, Poller
from tests.interop.phpmq_client import PhpmqClient
from tests.interop.sspq_client import SEND, Whole, packet
from tests.interop.tmq_client import CHANNEL, HELLO, JOIN, PREAMBLE, SERVER, Frame, TmqClient

#: What only the greedy ask for, one of each protocol: more than a kernel keeps for a client.
BULK: Final = {
    "phpmq-bulk": [b"b" * 200_000] * 70,
    "mmqp-bulk": [b"b" * 14_000_000],
    "bulk/1": [b"b" * 14_000_000],  # of TMQ
}
URLS: Final = (
    "sspq://127.0.0.1:0?queue=sspq",
    "phpmq://127.0.0.1:0",
    "mmqp://127.0.0.1:0?create=1",
    "tmq://127.0.0.1:0?create=1&acknowledge=1",
)
LIMITS: Final = {"frame_s": 0.5, "stall_s": 0.5, "connections_per_peer": 200, "linger_s": 0.5}
PATIENCE_S: Final = 30.0


class Sspq:
    """Puts, receives and confirms on one connection."""

    def __init__(self, address: Any) -> None:
        self.client = Whole(address, PATIENCE_S)

    def turn(self, body: str) -> str:
        self.client.send(body.encode())
        got = self.client.receive()
        self.client.confirm()
        return got.decode()

    def close(self) -> None:
        self.client.close()


class Phpmq:
    """Publishes, is sent the message and acks it on one connection."""

    def __init__(self, address: Any) -> None:
        self.client = PhpmqClient(address, timeout=PATIENCE_S)
        self.client.consume(b"phpmq", 1)

    def turn(self, body: str) -> str:
        self.client.publish(b"phpmq", body.encode())
        message = self.client.receive()
        self.client.ack(b"phpmq", message.id)
        return message.content.decode()

    def close(self) -> None:
        self.client.close()


class Mmqp:
    """Sends and polls, with a connection for each."""

    def __init__(self, address: Any) -> None:
        self.mack, self.poller = Mack(address), Poller(address)

    def turn(self, body: str) -> str:
        assert self.mack.send("mmqp", body, "main") == ""
        (found,) = self.poller.poll("mmqp", 9)
        return found.body

    def close(self) -> None:
        """Nothing stays open."""


class Tmq:
    """Pushes, is pushed the message and acknowledges it, which the pusher is told."""

    def __init__(self, address: Any) -> None:
        self.client = TmqClient(address, timeout=PATIENCE_S)
        self.client.accepted()
        self.client.join("tmq")

    def turn(self, body: str) -> str:
        id = self.client.push("tmq", 1, body.encode(), wants_delivery=True)
        got = self.client.message()
        self.client.ack(got)
        self.client.delivery(id)
        return got.body.decode()

    def close(self) -> None:
        self.client.close()


@dataclass
class Healthy:
    """A client that does what it should until it is told to stop, and how long each turn took."""

    client: Any
    pause_s: float
    turns_s: list[float] = field(default_factory=list)
    #: What went wrong for it: nothing may.
    broken: str = ""

    def run(self, stop: threading.Event) -> None:
        try:
            while not stop.wait(self.pause_s):
                body = f"turn-{len(self.turns_s)}"
                begin = time.monotonic()
                got = self.client.turn(body)
                self.turns_s.append(time.monotonic() - begin)
                assert got == body
        except Exception as error:  # noqa: BLE001  # told by who looks at it
            self.broken = repr(error)
        finally:
            self.client.close()


@contextmanager
def healthy(addresses: Sequence[Any], pause_s: float) -> Iterator[list[Healthy]]:
    """Let a healthy client of each protocol work meanwhile."""
    kinds: Sequence[Callable[[Any], Any]] = (Sspq, Phpmq, Mmqp, Tmq)
    every = [Healthy(kind(at), pause_s) for kind, at in zip(kinds, addresses, strict=True)]
    stop = threading.Event()
    threads = [threading.Thread(target=each.run, args=(stop,)) for each in every]
    for thread in threads:
        thread.start()
    try:
        yield every
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@dataclass
class Outcome:
    """What a swarm has done. `closed`: offenders that the host has ended, by kind."""

    closed: dict[str, int]
    #: Events of the host while it lasted.
    cut: int
    refused: int
    faulty: int
    #: Afterwards, of the bulk.
    leased: int
    lost: int
    #: MiB by which the host has grown.
    grown_mib: float
    #: Seconds of processor time of the host, and of the offenders, until the report.
    host_cpu_s: float
    offenders_cpu_s: float


def sockets(host: Host) -> int:
    """Count the sockets that a host has open."""
    found = 0
    for each in Path(f"/proc/{host.process.pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            found += str(each.readlink()).startswith("socket:")
    return found


def resident_mib(host: Host) -> float:
    """Return the memory of a host."""
    pages = int(Path(f"/proc/{host.process.pid}/statm").read_text().split()[1])
    return pages * 4_096 / (1 << 20)


def cpu_s(pid: int) -> float:
    """Return the seconds of processor time that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def eventually(what: Callable[[], object], patience_s: float) -> bool:
    """Wait until something is true, but not for ever."""
    until = time.monotonic() + patience_s
    while not what():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def places(addresses: Sequence[Any]) -> str:
    """Return what offenders have to know of the listeners."""
    mack, poller = Mack(("", 0)), Poller(("", 0))
    phpmq = object.__new__(PhpmqClient)
    phpmq.width, phpmq.separator, phpmq.speaks_ttl = 32, b"", False
    wide = phpmq.message(2, (1, b"phpmq-bulk"), (4, b"1000"))
    hello = PREAMBLE + Frame(SERVER, HELLO, body=b"CONNECT /\r\n").bytes()
    rows = [
        # A receiver that does not read one message is no offender: it holds it.
        (packet(SEND, 3, b"x" * 500)[:-1], b""),
        (phpmq.publishing(b"phpmq", b"x" * 500)[:-1], wide),
        (mack.request("mmqp", "x" * 200)[:-2], poller.head(b"P", "mmqp-bulk") + b"\xff"),
        (
            hello + Frame(CHANNEL, 1, target=b"tmq", body=b"x" * 200).bytes()[:-1],
            hello + Frame(SERVER, JOIN, target=b"bulk").bytes(),
        ),
    ]
    return json.dumps(
        [
            [at, fragment.hex(), greedy.hex()]
            for at, (fragment, greedy) in zip(addresses, rows, strict=True)
        ]
    )


@contextmanager
def besieged(folder: Path, planted: str = "") -> Iterator[tuple[Host, Broker]]:
    """Start a host with the bulk in it, and look at it from another process, this one."""
    path = folder / "q.db"
    with (
        hosting(path, *URLS, planted=planted, limits=LIMITS) as host,
        Broker(path, role="client") as broker,
    ):
        for queue, bodies in BULK.items():
            broker.queue(queue, bytes).put_many(bodies)
        yield host, broker


def swarm(
    host: Host,
    broker: Broker,
    count: int,
    patience_s: float = PATIENCE_S,
    *,
    before_it: Sequence[str] = (),
) -> Outcome:
    """Let `count` offenders of each kind and protocol loose, wait for the host to end them.

    `before_it`: what their command begins with, as `nice -n 19`.
    """
    memory, before, taken_s = resident_mib(host), events(broker), cpu_s(host.process.pid)
    command = [sys.executable, "-m", "tests.net.offenders", places(host.addresses)]
    process = subprocess.Popen(
        [*before_it, *command, str(count), str(LIMITS["connections_per_peer"])],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    reader = Line(process.stdout.readline)
    try:
        # Slow ones of each protocol, and the greedy, who do not read: cut by a deadline each.
        awaited = before["connection_cut"] + len(URLS) * count + len(BULK)

        def are_ended() -> bool:
            return bool(reader.line) and events(broker)["connection_cut"] >= awaited

        eventually(are_ended, patience_s)
        eventually(lambda: not leased(broker), patience_s)
        after = events(broker)
        return Outcome(
            closed=json.loads(reader.line or b"{}"),
            cut=after["connection_cut"] - before["connection_cut"],
            refused=after["connection_refused"] - before["connection_refused"],
            faulty=after["connection_faulty"] - before["connection_faulty"],
            leased=leased(broker),
            lost=sum(
                len(each) - broker.queue(queue).stats().stored for queue, each in BULK.items()
            ),
            grown_mib=resident_mib(host) - memory,
            host_cpu_s=cpu_s(host.process.pid) - taken_s,
            offenders_cpu_s=cpu_s(process.pid),
        )
    finally:
        process.kill()
        process.wait(30)
        reader.thread.join()
        process.stdin.close()
        process.stdout.close()


class Line:
    """A line that somebody writes at some time."""

    def __init__(self, read: Callable[[], bytes]) -> None:
        self.line = b""
        self.thread = threading.Thread(target=self._wait, args=(read,))
        self.thread.start()

    def _wait(self, read: Callable[[], bytes]) -> None:
        self.line = read()


def events(broker: Broker) -> dict[str, int]:
    """Return how often the host has told of what swarms make it tell."""
    counts = broker.stats().events
    kinds = ("connection_cut", "connection_refused", "connection_faulty")
    return {kind: counts.get(kind, 0) for kind in kinds}


def leased(broker: Broker) -> int:
    """Return how many messages of the bulk somebody holds."""
    stats = [broker.queue(queue).stats() for queue in BULK]
    return sum(group.leased for each in stats for group in each.groups)
