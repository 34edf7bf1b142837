"""A listener without sockets: inputs go to real sessions over a real broker in memory.

Knows: how asyncio speaks to a channel, when a connection is over, what must be true afterwards.
Does not know: protocols (dialects.py), where inputs come from (mutations.py).

Each round has a broker of its own; its connections live at the same time and share its queues.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from embedq.broker.desk import Desk
from embedq.broker.host import open_engine
from embedq.clock import VirtualClock
from embedq.errors import EmbedqError
from embedq.message import Draft
from embedq.net.connection import Connection
from embedq.net.finding import find_transport
from embedq.net.network import Network
from embedq.net.options import Options
from embedq.net.puts import Puts
from embedq.net.site import Site
from embedq.net.url import Place
from tests.fuzzing.dialects import LIMITS, MARK, Dialect
from tests.fuzzing.line import Line
from tests.fuzzing.mutations import pieces
from tests.fuzzing.promises import Account, Book, Owed

#: Messages that wait for consumers when a round begins.
WAITING: Final = 12
#: Seconds after which a connection that should be over hangs. Only reached by a defect.
HANGS_S: Final = 20.0
#: Seconds that the store may take to give back what nobody waits for.
GIVEN_BACK_S: Final = 10.0
_CAUSES: Final = frozenset({"end", "protocol", "reset"})


class Problem(NamedTuple):
    """Something that must not happen, and the input that made it, if one alone is to blame."""

    what: str
    input: bytes | None = None

    def __str__(self) -> str:
        return self.what if self.input is None else f"{self.what}: {self.input!r}"


class Doors(Site):
    """A listener that binds nothing, and remembers why connections ended."""

    def __init__(self, network: Network, dialect: Dialect) -> None:
        transport = find_transport(dialect.name)
        place = Place(transport.name, "127.0.0.1", 0, None, {})
        super().__init__(network, transport, place, Options(dialect.options), LIMITS, auth=None)
        self.causes: dict[Connection, str] = {}
        self.told: dict[Connection, list[str]] = {}

    async def open(self) -> None:
        self._make = self.transport.open(self)
        self.options.check_all_known()

    def left(self, connection: Connection, cause: str) -> None:
        self.causes[connection] = cause
        super().left(connection, cause)

    def faulty(self, connection: Connection, code: str, text: str) -> None:
        self.told.setdefault(connection, []).append(str(code))
        super().faulty(connection, code, text)


class Client(NamedTuple):
    """One input on its way."""

    input: bytes
    pieces: list[bytes]
    line: Line
    connection: Connection
    #: How it ends: "eof" shuts its side, "reset" is gone.
    ends: str
    reads: bool


async def serve_all(site: Doors, queue: str) -> None:
    """Wait until consumers have had their turn: who takes a message after them has got it."""
    for _ in range(3):
        taken = asyncio.get_running_loop().create_future()
        site.broker.take(queue, 1, taken.set_result)
        got = await taken
        if isinstance(got, EmbedqError):
            return  # clients of some protocols may remove it, and its consumers with it
        for delivery in got:
            delivery.release()


class Log(logging.Handler):
    """Keeps what the network says of its own defects."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self.found.append(f"{record.getMessage()} ({error!r})")


class Round:
    """Some inputs at once. `run` returns what went wrong."""

    def __init__(self, dialect: Dialect, inputs: Sequence[bytes], seed: int) -> None:
        self._dialect = dialect
        self._inputs = inputs
        self._rng = random.Random(seed)
        self._clock = VirtualClock()
        self._problems: list[Problem] = []
        #: What each client is owed, and what its input was.
        self._owed: dict[object, tuple[Owed, bytes]] = {}
        #: Ids of messages that wait when a round begins, and of those that clients have read: all,
        #: and those of clients that stayed, which are delivered for good.
        self._waiting: list[str] = []
        self._read: list[str] = []
        self._kept: list[str] = []
        #: Connections by why they ended, faults by code.
        self.outcomes: dict[str, int] = {}

    def run(self) -> list[Problem]:
        """Feed all inputs, end all connections, then look at what is left."""
        logger = logging.getLogger("embedq.net")
        log = Log()
        propagates, logger.propagate = logger.propagate, False
        logger.addHandler(log)
        try:
            with open_engine(":memory:", clock=self._clock, upkeep=False) as desk:
                network = Network(desk)
                try:
                    network.run(self._serve(desk, network))
                finally:
                    network.stop()
                self._look(desk)
                if self._dialect.counts:
                    self._audit(desk, network.puts)
        finally:
            logger.removeHandler(log)
            logger.propagate = propagates
        return [*self._problems, *map(Problem, dict.fromkeys(log.found))]

    async def _serve(self, desk: Desk, network: Network) -> None:
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: self._problems.append(Problem(f"in the loop: {context}"))
        )
        queue = desk.queue(self._dialect.queue)
        drafts = [Draft(b"waits-%d" % number) for number in range(WAITING)]
        self._waiting = [each.id for each in await desk.aput_drafts(queue, drafts)]
        ids = [each.encode() for each in self._waiting]
        network.puts = Book(desk, asyncio.get_running_loop())
        site = Doors(network, self._dialect)
        await site.open()
        clients = [self._connect(site, number, ids) for number in range(len(self._inputs))]
        await self._feed(clients)
        await serve_all(site, self._dialect.queue)
        await self._end(clients)
        await self._until_over(network, clients)
        for client in clients:
            self._judge(site, client)

    def _connect(self, site: Doors, number: int, ids: list[bytes]) -> Client:
        rng = self._rng
        data = self._inputs[number].replace(MARK, rng.choice(ids))
        reads = rng.random() < 0.9
        connection = Connection(site)
        line = Line(connection.channel, 1 + number, reads=reads)
        connection.channel.connection_made(line)
        ends = "eof" if reads and rng.random() < 0.8 else "reset"
        return Client(data, pieces(rng, data), line, connection, ends, reads)

    async def _feed(self, clients: Sequence[Client]) -> None:
        """Give each client's pieces to its channel, one in a turn, as far as it reads."""
        going = list(clients)
        until = time.monotonic() + HANGS_S
        while going and time.monotonic() < until:
            rest = []
            for client in going:
                if client.pieces and not client.line.is_paused and not client.line.is_closing():
                    client.line.give(client.pieces.pop(0))
                if client.pieces and client.reads and not client.line.is_closing():
                    rest.append(client)
            going = rest
            await asyncio.sleep(0.001 if all(each.line.is_paused for each in going) else 0)
        self._problems += [Problem("is never read again", client.input) for client in going]

    async def _end(self, clients: Sequence[Client]) -> None:
        """Let each client end in its way, once it is read."""
        for client in clients:
            line = client.line
            if line.is_closing():
                continue
            if client.ends == "reset":
                line.reset()
                continue
            try:
                await asyncio.wait_for(line.reads_on.wait(), HANGS_S)
            except TimeoutError:
                self._problems.append(Problem("is never read again", client.input))
                line.reset()
                continue
            line.give_end()

    async def _until_over(self, network: Network, clients: Sequence[Client]) -> None:
        until = time.monotonic() + HANGS_S
        turns = 0
        while going := [each for each in clients if not each.line.is_over]:
            if time.monotonic() > until:
                self._problems += [Problem("hangs", client.input) for client in going]
                for client in going:
                    client.line.reset()
                await asyncio.sleep(0.01)
                return
            turns += 1
            if turns > 10:
                self._clock.advance(0.1)
                network.timers.look()
            await asyncio.sleep(0 if turns < 10 else 0.001)

    def _judge(self, site: Doors, client: Client) -> None:
        """Look at how one connection ended and what was sent on it."""
        dialect, data = self._dialect, client.input
        cause = site.causes.get(client.connection, "never")
        codes = site.told.get(client.connection, [])
        for word in (cause, *codes):
            self.outcomes[word] = self.outcomes.get(word, 0) + 1
        if cause not in _CAUSES | dialect.causes:
            self._problems.append(Problem(f"ends as {cause!r}", data))
        if unknown := [code for code in codes if code not in dialect.faults]:
            self._problems.append(Problem(f"has faults {unknown}", data))
        wire, line = dialect.wire(), client.line
        events = wire.feed(bytes(line.taken))
        is_within = wire.pending
        if line.ended_by_client:
            events = [*events, *wire.end()]
        answer = bytes(line.sent)
        has_stayed = client.reads and client.ends == "eof"
        ends = has_stayed or not dialect.answers_in_parts
        wrong = dialect.misread(answer, wire, ends=ends) if client.reads else None
        if wrong is not None:
            self._problems.append(Problem(f"is answered with {wrong}", data))
        account = Account(events, answer, cause, has_stayed, line.ended_by_server, is_within)
        owed = dialect.owes(account)
        if owed is not None:
            self._owed[client.connection.broker] = owed, data
        ids = dialect.delivered(answer) if dialect.tells_ids else []
        self._read += ids
        self._kept += ids if has_stayed else []

    def _look(self, desk: Desk) -> None:
        """Nothing is held, nothing is lost, nothing is there twice."""
        until = time.monotonic() + GIVEN_BACK_S
        queues = desk.office.stats().queues
        # What a cancelled claim got is given back in time, and nobody waits for that.
        while any(each.leased for queue in queues for each in queue.groups):
            if time.monotonic() > until:
                break
            time.sleep(0.005)
            queues = desk.office.stats().queues
        for queue in queues:
            groups = queue.groups
            if any(group.leased for group in groups):
                self._problems.append(Problem(f"queue {queue.name!r}: something is still held"))
            acked = sum(group.acked for group in groups)
            if self._dialect.counts and queue.put != queue.stored + queue.dead + acked:
                text = f"{queue.put} put, {queue.stored} stored, {queue.dead} dead, {acked} acked"
                self._problems.append(Problem(f"queue {queue.name!r}: {text}"))

    def _audit(self, desk: Desk, book: Puts) -> None:
        """Compare what is there with what was promised: client by client, message by message."""
        assert isinstance(book, Book)
        for owner, (owed, data) in self._owed.items():
            if wrong := owed.wrong or owed.refuted_by(book.of(owner)):
                self._problems.append(Problem(wrong, data))
        if book.unanswered:
            self._problems.append(Problem(f"{book.unanswered} puts are not answered once"))
        put = {queue.name: queue.put for queue in desk.office.stats().queues}
        ids = {name: set[str]() for name in put}
        ids[self._dialect.queue].update(self._waiting)
        for _, message, id in book.stored():
            ids[message.queue].add(id)
        there = {name: len(each) for name, each in ids.items()}
        if put != there:
            self._problems.append(Problem(f"{there} were answered for, {put} are stored"))
        if self._dialect.tells_ids:
            self._audit_ids(desk, set[str]().union(*ids.values()), list(put))

    def _audit_ids(self, desk: Desk, ids: set[str], queues: Sequence[str]) -> None:
        """Whatever was put is there or was read; what was read for good is there no more."""
        left = {
            desk.ids.encode(stored.seq)
            for queue in queues
            for stored in desk.office.peek(queue, 1_000_000, 0)
        }
        if lost := ids - left - set(self._read):
            self._problems.append(Problem(f"{len(lost)} messages are neither there nor read"))
        if twice := left.intersection(self._kept):
            self._problems.append(Problem(f"{len(twice)} messages were read, and are still there"))
        if len(set(self._kept)) != len(self._kept):
            self._problems.append(Problem("a message was read twice"))
