"""A machine that does the same random things to an engine and to a naive model of it.

Knows: what can be asked of an engine, and what must then be equal on both sides.
Does not know: how either side finds its answers.
"""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from embedq.broker.desk import Desk
from embedq.broker.host import open_engine
from embedq.broker.leases import Lease
from embedq.clock import VirtualClock
from embedq.errors import StaleLease
from embedq.limits import LIMITS
from embedq.message import draft
from embedq.policy import QueuePolicy
from tests.reliability.claiming import ClaimCheck
from tests.reliability.model import Group, Message, Queue
from tests.reliability.tail_rules import TailRules

T = TypeVar("T")

ENDLESS = 0
IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # many small files, soon gone
LEASE_S = 30.0
TICK_S = 0.25  # exact in binary: both sides agree on every millisecond

queues = st.sampled_from(("plain", "plain", "history"))
groups = st.sampled_from(("default", "audit", "late"))
picks = st.lists(st.integers(0, 30), min_size=1, max_size=5)
ticks = st.sampled_from((0, 0, 1, 2, 5, 40, 200))
most = st.sampled_from((1, 1, 2, 3, 10))
drafts = st.fixed_dictionaries(
    {},
    optional={
        "priority": st.sampled_from((0, 9)),
        "delay": st.integers(1, 12),
        "ttl": st.integers(1, 60),
        "key": st.sampled_from(("k1", "k1", "k2")),
        "dedup": st.sampled_from(("d1", "d2")),
        "max_attempts": st.sampled_from((1, 2, ENDLESS)),
    },
)

FIELDS = ("priority", "delay", "ttl", "key", "dedup", "max_attempts")

SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {"max_attempts": 3, "max_crashes": 2},
    "history": {"max_attempts": 4, "max_crashes": 1, "retain_ms": 5000},
}


class EngineMachine(TailRules):
    """Subclasses say how much of the backlog the engine may hold in memory."""

    load_chunk = 3
    head_max = 8

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="embedq-model-", dir=IN_MEMORY))
        self.openings = 0
        self.clock = VirtualClock()
        self.limits = dataclasses.replace(
            LIMITS,
            load_chunk=self.load_chunk,
            head_max=self.head_max,
            disk_watermark_bytes=0,
            ballast_bytes=0,
        )
        self.model = {
            name: Queue(
                max_attempts=setting["max_attempts"],
                max_crashes=setting["max_crashes"],
                retain=setting.get("retain_ms"),
            )
            for name, setting in SETTINGS.items()
        }
        #: Every lease ever given in this epoch, with what the model knows it by.
        self.leases: list[tuple[Lease, str, Group, object]] = []
        self.put_count = 0

    @initialize(fields=st.sets(st.sampled_from(FIELDS)), backlog=st.sampled_from((0, 0, 4, 12)))
    def begin(self, fields: set[str], backlog: int) -> None:
        """Choose what the messages of this run use: less at once is found out sooner."""
        self.fields = fields
        self.open()
        if backlog:
            self.put_plain("plain", backlog)

    def open(self) -> None:
        self.engine: Desk = open_engine(
            self.path(), durability="normal", clock=self.clock, limits=self.limits, upkeep=False
        )
        for name, setting in SETTINGS.items():
            self.engine.queue(name, QueuePolicy(**setting))

    def teardown(self) -> None:
        if hasattr(self, "engine"):
            self.engine.store.close(clean=False)
        shutil.rmtree(self.folder)

    # ------------------------------------------------------------------------- small things

    def path(self) -> Path:
        return self.folder / f"q{self.openings}.db"

    @property
    def now(self) -> int:
        return int(self.clock.time() * 1000)

    def group(self, queue: str, group: str) -> Any:
        return self.engine.group(self.engine.queue(queue), group)

    def body(self) -> bytes:
        self.put_count += 1
        return b"body %d" % self.put_count

    def chosen(self, numbers: list[int], *, held: bool) -> list[tuple[Lease, str, Group, object]]:
        known = [entry for entry in self.leases if not held or self.counts(*entry)]
        return [known[number % len(known)] for number in numbers] if known else []

    def counts(self, lease: Lease, queue: str, group: Group, token: object) -> bool:
        return lease.seq in self.model[queue].messages and group.of(lease.seq).token is token

    # ------------------------------------------------------------------------------ putting

    @rule(queue=queues, count=st.sampled_from((1, 2, 7)))
    def put_plain(self, queue: str, count: int) -> None:
        bodies = [self.body() for _ in range(count)]
        state = self.engine.queue(queue)
        if count == 1:
            seqs = [self.engine.put(state, bodies[0])]
        else:
            seqs = list(self.engine.put_many(state, bodies))
        for seq, body in zip(seqs, bodies, strict=True):
            self.model[queue].messages[seq] = Message(seq, body)
        self.serve(queue)

    @rule(queue=queues, wanted=drafts)
    def put_draft(self, queue: str, wanted: dict[str, Any]) -> None:
        self.put_drafts(queue, [wanted])

    @rule(queue=queues, wanted=st.lists(drafts, min_size=1, max_size=4))
    def put_drafts(self, queue: str, wanted: list[dict[str, Any]]) -> None:
        now, model = self.now, self.model[queue]
        bodies = [self.body() for _ in wanted]
        wanted = [{name: wish[name] for name in wish if name in self.fields} for wish in wanted]
        made = []
        for wish, body in zip(wanted, bodies, strict=True):
            delay, ttl = wish.get("delay"), wish.get("ttl")
            due = None if delay is None else now + int(delay * 1000 * TICK_S)
            expires = None if ttl is None else (due or now) + int(ttl * 1000 * TICK_S)
            made.append(
                draft(
                    body,
                    priority=wish.get("priority", 0),
                    available_at_ms=due,
                    expires_at_ms=expires,
                    ordering_key=wish.get("key"),
                    dedup_key=wish.get("dedup"),
                    dedup_window_ms=3000,
                    max_attempts=wish.get("max_attempts"),
                )
            )
        receipts = self.engine.put_drafts(self.engine.queue(queue), made)
        for one, receipt in zip(made, receipts, strict=True):
            known = None if one.dedup_key is None else model.known(one.dedup_key, now)
            assert receipt.duplicate == (known is not None)
            if known is not None:
                assert receipt.seq == known
                continue
            if one.dedup_key is not None:
                model.dedup[one.dedup_key] = (receipt.seq, now + 3000)
            model.messages[receipt.seq] = Message(
                receipt.seq,
                one.body,
                one.priority,
                one.available_at_ms,
                one.expires_at_ms,
                one.ordering_key,
                one.max_attempts,
            )
        self.serve(queue)

    # ----------------------------------------------------------------------------- claiming

    @rule(queue=queues, group=groups, start=st.sampled_from(("auto", "beginning", "end")))
    def add_group(self, queue: str, group: str, start: str) -> None:
        model = self.model[queue]
        state = self.engine.queue(queue)
        if not model.groups and start == "end":
            start = "auto"
        self.engine.group(state, group, start)
        if group not in model.groups:
            at_end = start == "end" or (start == "auto" and bool(model.groups))
            model.add_group(group, self.engine.store.last_seq if at_end else 0)

    @rule(queue=queues, most=most)
    def claim_default(self, queue: str, most: int) -> None:
        self.claim(queue, "default", most, LEASE_S)

    @rule(queue=queues, group=groups, most=most, lease_s=st.sampled_from((LEASE_S, 1.0, 0.25)))
    def claim(self, queue: str, group: str, most: int, lease_s: float) -> None:
        model = self.model[queue]
        if group not in model.groups:
            self.add_group(queue, group, "auto")
        leases = self.engine.claim(self.group(queue, group), most, lease_s)
        self.check_claim(queue, group, leases, most, lease_s)

    def check_claim(
        self, queue: str, group: str, leases: list[Lease], most: int, lease_s: float
    ) -> None:
        model, state, store = self.model[queue], self.group(queue, group), self.engine.store
        side = model.groups[group]
        deadline = self.clock.monotonic() + lease_s
        check = ClaimCheck(
            model,
            side,
            [lease.seq for lease in leases],
            most,
            is_buried=lambda seq: store.dead_letter(seq, state.id) is not None,
            special_max=self.head_max,
        )
        check.run(self.now, deadline)
        for lease in leases:
            assert lease.message.body == model.messages[lease.seq].body
            assert lease.attempt == side.of(lease.seq).attempt
            self.leases.append((lease, queue, side, side.of(lease.seq).token))

    # ----------------------------------------------------------------------------- settling

    def settle(self, numbers: list[int], *, held: bool) -> tuple[list[Lease], list[Any], bool]:
        entries = self.chosen(numbers, held=held)
        good = [entry for entry in dict.fromkeys(entries) if self.counts(*entry)]
        return [entry[0] for entry in entries], good, len(good) == len(set(entries))

    @precondition(lambda self: self.leases)
    @rule(numbers=picks, held=st.booleans(), verb=st.sampled_from(("ack", "ack", "release")))
    def ack_or_release(self, numbers: list[int], *, held: bool, verb: str) -> None:
        leases, good, fresh = self.settle(numbers, held=held)
        try:
            self.engine.ack(*leases) if verb == "ack" else self.engine.release(leases)
            assert fresh
        except StaleLease:
            assert not fresh
        for lease, queue, side, _ in good:
            if verb == "ack":
                self.model[queue].settle(side, lease.seq, self.now)
            else:
                self.model[queue].release(side, lease.seq)

    @precondition(lambda self: self.leases)
    @rule(number=picks, held=st.booleans(), delay=st.sampled_from((0, 0, 1, 6, 30)))
    def fail(self, number: list[int], *, held: bool, delay: int) -> None:
        leases, good, fresh = self.settle(number[:1], held=held)
        if not leases:
            return
        try:
            self.engine.fail(leases[0], None, delay * TICK_S)
            assert fresh
        except StaleLease:
            assert not fresh
        for lease, queue, side, _ in good:
            self.model[queue].fail(side, lease.seq, self.now, int(delay * TICK_S * 1000))

    @precondition(lambda self: self.leases)
    @rule(number=picks, held=st.booleans())
    def reject(self, number: list[int], *, held: bool) -> None:
        leases, good, fresh = self.settle(number[:1], held=held)
        if not leases:
            return
        try:
            self.engine.reject(leases[0], "no")
            assert fresh
        except StaleLease:
            assert not fresh
        for lease, queue, side, _ in good:
            self.model[queue].bury(side, lease.seq, "rejected", self.now)

    @precondition(lambda self: self.leases)
    @rule(number=picks, held=st.booleans(), seconds=st.sampled_from((1.0, 60.0)))
    def extend(self, number: list[int], *, held: bool, seconds: float) -> None:
        leases, good, fresh = self.settle(number[:1], held=held)
        if not leases:
            return
        try:
            self.engine.extend(leases[0], seconds)
            assert fresh
        except StaleLease:
            assert not fresh
        for lease, _, side, _ in good:
            side.of(lease.seq).deadline = self.clock.monotonic() + seconds

    @rule(queue=queues, numbers=picks)
    def cancel(self, queue: str, numbers: list[int]) -> None:
        model = self.model[queue]
        known = sorted(model.messages)
        seqs = [known[number % len(known)] for number in numbers] if known else [numbers[0]]
        removed = self.engine.cancel(self.engine.queue(queue), *seqs)
        assert sorted(removed) == sorted(model.cancel(seqs))

    @rule(queue=queues, paused=st.booleans())
    def pause(self, queue: str, *, paused: bool) -> None:
        self.engine.pause(self.engine.queue(queue), paused=paused)
        self.model[queue].paused = paused

    # -------------------------------------------------------------------------- time, ends

    @rule(ticks=ticks)
    def wait(self, ticks: int) -> None:
        self.clock.advance(ticks * TICK_S)

    @rule()
    def end_leases(self) -> None:
        ended = self.engine.end_leases()
        monotonic = self.clock.monotonic()
        assert ended == sum(q.end_leases(self.now, monotonic) for q in self.model.values())

    @rule(ticks=ticks)
    def upkeep(self, ticks: int) -> None:
        self.clock.advance(ticks * TICK_S)
        self.engine.upkeep.round()
        assert self.engine.upkeep.trouble is None
        for model in self.model.values():
            model.end_leases(self.now, self.clock.monotonic())
            model.expire(self.now)
            model.retire(self.now)

    def stored(self, queue: str) -> set[int]:
        return {message.seq for message in self.engine.peek(self.engine.queue(queue), 10_000)}

    @rule(how=st.sampled_from(("clean", "crash", "copy")))
    def reopen(self, how: str) -> None:
        if how == "clean":
            self.reopen_clean()
        else:
            self.reopen_after_crash(copied=how == "copy")

    def reopen_clean(self) -> None:
        self.engine.close()
        for model in self.model.values():
            model.closed_clean()
        self.leases.clear()
        self.open()
        assert self.engine.counts_exact

    def reopen_after_crash(self, *, copied: bool) -> None:
        """The host dies: its files stay as they are at this moment, or SQLite tidies them up."""
        if copied:
            old = self.path()
            self.openings += 1
            for suffix in ("", "-wal"):
                shutil.copyfile(f"{old}{suffix}", f"{self.path()}{suffix}")
        self.engine.store.close(clean=False)
        for model in self.model.values():
            model.crashed()
        self.leases.clear()
        self.open()
        self.engine.upkeep.count()

    # -------------------------------------------------------------------------- comparisons

    def serve(self, filled: str | None = None) -> None:
        """Nobody waits here: see waiting_machine.py. `filled`: a queue that was just put to."""

    @invariant()
    def both_agree(self) -> None:
        self.serve()
        for name, model in self.model.items():
            queue = self.engine.queue(name)
            assert (queue.stored, queue.dead) == (len(model.messages), len(model.dead))
            for group in queue.groups:
                side = model.groups[group.name]
                settled = sum(side.has_settled(seq) for seq in model.messages)
                leased = {seq for seq in side.standings if side.of(seq).token is not None}
                assert set(group.leases) == leased
                assert group.settled == settled
                assert group.waiting == len(model.messages) - settled - len(leased)

    @invariant()
    def the_store_agrees(self) -> None:
        for name, model in self.model.items():
            queue = self.engine.queue(name)
            assert self.stored(name) == set(model.messages)
            names = {group.id: group.name for group in queue.groups}
            dead = {}
            for row in self.engine.store.dead(queue.id, 0, 10_000):
                attempts = msgspec.msgpack.decode(row.attempts or b"\x90")
                dead[row.seq, names[row.group]] = (row.reason, len(attempts))
            assert dead == model.dead
