"""A naive broker: lists, full scans and sorting, to compare the engine with.

Knows: the rules of delivery (order, times, keys, attempts, crashes, groups), put plainly.
Does not know: the engine, stores, indexes, locks. Nothing here is fast, on purpose.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Message:
    """What was put. Times are milliseconds; `due` only if it lay ahead when it was put."""

    seq: int
    body: bytes
    priority: int = 0
    due: int | None = None
    expires: int | None = None
    key: str | None = None
    max_attempts: int | None = None


@dataclass
class Standing:
    """Where a message stands in one group. `token` tells its delivery from every other.

    `suspect`: it waits because its host died under it; `suspect_out`: it is tried again, the only
    one of its kind; `alone`: and nothing else beside it, as one more crash would be its end;
    `cut_off`: no attempt since then counts, so another host will find it like that, too.
    """

    attempt: int = 0
    crashes: int = 0
    retry: int | None = None
    place: int | None = None
    token: object = None
    deadline: float = 0.0
    settled_at: int | None = None
    suspect: bool = False
    suspect_out: bool = False
    alone: bool = False
    cut_off: bool = False


@dataclass(eq=False)
class Group:
    """A consumer group: messages up to `floor` are not for it."""

    name: str
    floor: int
    standings: dict[int, Standing] = field(default_factory=dict)
    #: Messages vanished while they waited: the engine notices when it reaches their places.
    holes: bool = False

    def of(self, seq: int) -> Standing:
        return self.standings.setdefault(seq, Standing())

    def has_settled(self, seq: int) -> bool:
        return seq <= self.floor or self.of(seq).settled_at is not None


@dataclass
class Taken:
    """One message of a claim's answer."""

    seq: int
    attempt: int


class Queue:
    """A queue with its groups. The caller passes the time in."""

    def __init__(
        self, *, max_attempts: int = 3, max_crashes: int = 2, retain: int | None = None
    ) -> None:
        self.max_attempts = max_attempts
        self.max_crashes = max_crashes
        self.retain = retain
        self.messages: dict[int, Message] = {}
        self.groups: dict[str, Group] = {}
        self.dedup: dict[str, tuple[int, int]] = {}
        #: (seq, group name) -> (reason, attempts started)
        self.dead: dict[tuple[int, str], tuple[str, int]] = {}
        self.paused = False

    # ---------------------------------------------------------------------------- putting

    def known(self, dedup_key: str, now: int) -> int | None:
        """Return the earlier message of a dedup key whose window is open."""
        seq, until = self.dedup.get(dedup_key, (0, 0))
        return seq if until > now else None

    def add_group(self, name: str, floor: int) -> None:
        self.groups[name] = Group(name, floor)

    # --------------------------------------------------------------------------- claiming

    def exhausted(self, message: Message, standing: Standing) -> bool:
        most = self.max_attempts if message.max_attempts is None else message.max_attempts
        crashed = self.max_crashes and standing.crashes >= self.max_crashes
        return bool(crashed or (most and standing.attempt >= most))

    def ready(self, group: Group, now: int) -> list[Message]:
        """Return what may be delivered now, first things first, suspects left out."""
        found = [
            message
            for message in self.messages.values()
            if self._may_move(group, message, now) and not group.of(message.seq).suspect
        ]
        return sorted(
            found,
            key=lambda m: (-m.priority, m.seq if (at := group.of(m.seq).place) is None else at),
        )

    def suspects(self, group: Group, now: int) -> list[int]:
        """Return the messages that were being delivered when their host died, if one may go."""
        if any(standing.suspect_out for standing in group.standings.values()):
            return []
        return sorted(
            message.seq
            for message in self.messages.values()
            if self._may_move(group, message, now) and group.of(message.seq).suspect
        )

    def has_last_chance(self, group: Group, seq: int) -> bool:
        """Return whether one more crash would be the end of a message that may still run."""
        message, standing = self.messages[seq], group.of(seq)
        most = self.max_attempts if message.max_attempts is None else message.max_attempts
        left = [2]
        if self.max_crashes:
            left.append(self.max_crashes - standing.crashes)
        if most:
            left.append(most - standing.attempt)
        return min(left) == 1

    def special(self, group: Group) -> int:
        """Count the waiting messages that an index must hold more of than their numbers."""
        return sum(
            message.due is not None
            or message.key is not None
            or standing.attempt > 0
            or standing.retry is not None
            or standing.place is not None
            for message in self.messages.values()
            if not group.has_settled(message.seq)
            and (standing := group.of(message.seq)).token is None
        )

    def _may_move(self, group: Group, message: Message, now: int) -> bool:
        if group.has_settled(message.seq):
            return False
        standing = group.of(message.seq)
        due = message.due if standing.retry is None else standing.retry
        if standing.token is not None or (due is not None and due > now):
            return False
        return message.key is None or message.seq == min(
            other.seq
            for other in self.messages.values()
            if other.key == message.key and not group.has_settled(other.seq)
        )

    def start(self, group: Group, seq: int, now: int, deadline: float) -> bool:
        """Deliver a message, or bury it instead; return whether it was delivered."""
        message, standing = self.messages[seq], group.of(seq)
        if self.exhausted(message, standing):
            reason = "crashed" if standing.crashes else "max_attempts"
            self.bury(group, seq, reason, now)
            return False
        standing.alone = standing.suspect and self.has_last_chance(group, seq)
        standing.attempt += 1
        standing.retry = 0  # its own time has come once and for all
        standing.place = None
        standing.token = object()
        standing.deadline = deadline
        standing.suspect_out, standing.suspect = standing.suspect, False
        standing.cut_off = False
        if message.expires is not None and message.expires <= now:
            self.bury(group, seq, "expired", now)
            return False
        return True

    # --------------------------------------------------------------------------- settling

    def settle(self, group: Group, seq: int, now: int) -> None:
        standing = group.of(seq)
        standing.token, standing.settled_at = None, now
        standing.suspect_out = standing.suspect = False
        if self.retain is None:
            self.drop_if_settled(seq)

    def drop_if_settled(self, seq: int) -> None:
        if self.groups and all(group.has_settled(seq) for group in self.groups.values()):
            self.remove(seq)

    def remove(self, seq: int) -> None:
        del self.messages[seq]
        for group in self.groups.values():
            group.standings.pop(seq, None)

    def bury(self, group: Group, seq: int, reason: str, now: int) -> None:
        self.dead[seq, group.name] = (reason, group.of(seq).attempt)
        self.settle(group, seq, now)

    def fail(self, group: Group, seq: int, now: int, delay: int) -> None:
        standing = group.of(seq)
        message = self.messages[seq]
        most = self.max_attempts if message.max_attempts is None else message.max_attempts
        if most and standing.attempt >= most:
            self.bury(group, seq, "max_attempts", now)
            return
        standing.token = None
        standing.suspect_out = False
        standing.retry = now + delay

    def release(self, group: Group, seq: int) -> None:
        standing = group.of(seq)
        standing.token = None
        standing.attempt -= 1
        standing.suspect, standing.suspect_out = standing.suspect_out, False
        standing.cut_off = standing.suspect  # the last attempt that counts is the one cut off

    def to_tail(self, group: Group, seq: int, now: int, place: int, *, counts: bool) -> bool:
        """Give a message back behind all others; return whether it got that place."""
        standing = group.of(seq)
        moves = self.messages[seq].key is None and (counts or not standing.suspect_out)
        if counts:
            self.fail(group, seq, now, 0)
            moves = moves and not group.has_settled(seq)
        else:
            self.release(group, seq)
        if moves and seq in self.messages:
            standing.place = place
            return True
        return False

    def vanish(self, seq: int) -> None:
        for group in self.groups.values():
            group.holes = True
        self.remove(seq)

    def cancel(self, seqs: list[int]) -> list[int]:
        removed = []
        for seq in dict.fromkeys(seqs):
            leased = any(group.of(seq).token is not None for group in self.groups.values())
            settled = [group.has_settled(seq) for group in self.groups.values()]
            is_history = self.retain is not None and bool(settled) and all(settled)
            if seq in self.messages and not leased and not is_history:
                self.vanish(seq)
                removed.append(seq)
        return removed

    # ------------------------------------------------------------------------- as time goes

    def end_leases(self, now: int, monotonic: float) -> int:
        ended = 0
        for group in self.groups.values():
            for seq, standing in list(group.standings.items()):
                if standing.token is not None and standing.deadline <= monotonic:
                    self.fail(group, seq, now, 0)
                    ended += 1
        return ended

    def expire(self, now: int) -> None:
        for seq, message in list(self.messages.items()):
            if message.expires is None or message.expires > now:
                continue
            if not self.groups:
                self.vanish(seq)
                continue
            for group in self.groups.values():
                if seq not in self.messages:
                    break  # the last group that had not settled it has done so
                if not group.has_settled(seq) and group.of(seq).token is None:
                    group.holes = True
                    self.bury(group, seq, "expired", now)

    def retire(self, now: int) -> None:
        """Remove what every group has settled, the last of them longer ago than `retain`."""
        if self.retain is None or not self.groups:
            return
        for seq in list(self.messages):
            groups = self.groups.values()
            if all(group.has_settled(seq) for group in groups):
                times = [group.of(seq).settled_at or 0 for group in groups]
                if max(times) and max(times) < now - self.retain:
                    self.remove(seq)

    # --------------------------------------------------------------------------- the ends

    def closed_clean(self) -> None:
        """Every delivery is given back, free of charge."""
        for group in self.groups.values():
            for seq, standing in group.standings.items():
                if standing.token is not None:
                    self.release(group, seq)
        self._reopened()

    def crashed(self) -> None:
        """Every delivery that ran was an attempt, and perhaps what killed the host."""
        for group in self.groups.values():
            for standing in group.standings.values():
                if standing.token is not None:
                    standing.token, standing.retry = None, 0
                    standing.crashes += 1
                    standing.cut_off, standing.suspect_out = True, False
        self._reopened()

    def _reopened(self) -> None:
        for group in self.groups.values():
            group.holes = False
            for standing in group.standings.values():
                standing.suspect = standing.cut_off
