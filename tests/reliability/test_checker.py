"""The judge of journals: for each promise a forged journal that breaks it, and one that does not.

The journals are as small as they can be; test_mixed_kills plants the same faults in real hosts.
"""

from typing import Any

import pytest

from tests.reliability.checker import Rules
from tests.reliability.checker_end import check
from tests.reliability.invariants_events import (
    Answer,
    Call,
    Closed,
    Opened,
    Put,
    Refusal,
    body,
    digest,
)
from tests.reliability.invariants_file import Held, Letter, Row
from tests.reliability.journal import (
    Buried,
    Ending,
    Journal,
    Settled,
    Stale,
    Start,
    forged,
    read_journal,
)

RULES = Rules(max_attempts={"q": 3}, ordered=frozenset({"line"}), drops=frozenset({"few"}))
LINE: dict[str, Any] = {"queue": "line", "slot": "a"}
OPENED = Opened(1)
AGAIN = Opened(2)


def put(call: int, *tags: int, queue: str = "q", **options) -> Call:
    return Call(call, "put", queue, puts=tuple(Put(tag, 5, **options) for tag in tags))


def start(tag: int, counter: int, attempt: int = 1, seq: int = 0, **more: Any) -> Start:
    """A delivery of message `tag`, whose seq is `tag` too unless told otherwise."""
    given: dict[str, Any] = {"queue": "q", "group": "g", "digest": digest(body(tag, 5)), **more}
    return Start(seq=seq or tag, attempt=attempt, counter=counter, tag=tag, **given)


def done(counter: int, how: str = "done") -> list[Any]:
    return [Ending(counter, how), Settled(counter)]


def file(
    waiting: tuple[int, ...] = (), dead: dict[int, tuple[str, int]] | None = None, queue: str = "q"
) -> Held:
    """What a file holds: messages that wait, and dead letters with reason and attempts."""
    held = Held(groups={name: {"g": 0} for name in {"q", "few", "line", queue}})
    held.messages = {tag: (queue, body(tag, 5)) for tag in waiting}
    for tag, (reason, attempts) in (dead or {}).items():
        numbers = list(range(1, attempts + 1))
        held.dead[tag, "g"] = Letter(queue, body(tag, 5), reason, numbers)
    return held


def broken(*records: Any, held: Held | None = None, step_ms: int = 1) -> set[str]:
    flat: list[Any] = []
    for record in records:
        flat += record if isinstance(record, list) else [record]
    found = check(forged(flat, step_ms), held or file(), RULES)
    return {one.promise for one in found}


PUT: list[Any] = [put(1, 7), Answer(1, (7,))]
GOOD: list[Any] = [OPENED, PUT[0], PUT[1], start(7, 1), *done(1), Closed()]


def test_a_message_that_is_put_delivered_and_acked_breaks_nothing():
    assert broken(GOOD) == set()


def test_a_put_without_an_answer_may_have_happened_or_not():
    assert broken(OPENED, put(1, 7), AGAIN, Closed()) == set()
    assert broken(OPENED, put(1, 7), AGAIN, start(7, 1), done(1), Closed()) == set()


# ------------------------------------------------------------------------------ P1 and P2


def test_a_confirmed_put_that_is_nowhere_is_lost():
    assert broken(OPENED, PUT, AGAIN, Closed()) == {"P1"}
    assert broken(OPENED, put(1, 7), Answer(1), AGAIN, Closed()) == {"P1"}


def test_a_message_that_failed_and_never_came_again_is_lost():
    failed = [OPENED, *PUT, start(7, 1), *done(1, "failed"), Closed()]
    assert broken(failed) == {"P2"}
    assert broken(failed[:-1], start(7, 2, 2), done(2), Closed()) == set()


def test_a_message_that_was_at_work_at_a_death_and_never_came_again_is_lost():
    assert broken(OPENED, PUT, start(7, 1), AGAIN, Closed()) == {"P2"}


def test_what_waits_in_the_end_is_stuck():
    assert broken(OPENED, PUT, AGAIN, Closed(), held=file((7,))) == {"P2"}


def test_removed_messages_may_be_gone_and_must_not_come():
    cancel = [Call(2, "cancel", "q", seqs=(7,)), Answer(2, (7,))]
    assert broken(OPENED, PUT, cancel, Closed()) == set()
    assert broken(OPENED, PUT, cancel, start(7, 1), done(1), Closed()) == {"P2"}
    assert broken(OPENED, PUT, cancel[0], AGAIN, start(7, 1), done(1), Closed()) == set()
    purge = [Call(2, "purge", "q"), Answer(2)]
    assert broken(OPENED, PUT, purge, AGAIN, Closed()) == set()
    assert broken(OPENED, PUT, purge, AGAIN, start(7, 1), done(1), Closed()) == {"P2"}
    assert broken(OPENED, PUT, purge, Closed(), held=file((7,))) == {"P2"}


def test_only_a_queue_that_drops_may_lose_what_was_confirmed():
    few = [put(1, 7, queue="few"), Answer(1, (7,))]
    assert broken(OPENED, few, Closed()) == set()


# ------------------------------------------------------------------------------ P3 and P4


def test_a_delivery_after_a_confirmed_ack_is_seen():
    assert broken(GOOD[:-1], AGAIN, start(7, 1, 2), done(1), Closed()) == {"P3"}
    # Without the confirmation nobody knows, and it may come again.
    unsure = [*GOOD[:-2], AGAIN, start(7, 1, 2), *done(1), Closed()]
    assert broken(unsure) == set()


def test_the_next_run_of_a_slot_confirms_the_one_before():
    two = [put(1, 7, 8), Answer(1, (7, 8))]
    first = [start(7, 1, slot="a", run=1), Ending(1, "done")]
    second = [start(8, 2, slot="a", run=2), *done(2)]
    late = [start(7, 1, 2), *done(1)]
    assert broken(OPENED, two, first, second, AGAIN, late, Closed()) == {"P3"}
    other = [start(8, 2, slot="b", run=2), *done(2)]
    assert broken(OPENED, two, first, other, AGAIN, late, Closed()) == set()


def test_acked_and_still_there_is_seen():
    assert broken(GOOD, held=file((7,))) == {"P3"}
    assert broken(GOOD, held=file(dead={7: ("max_attempts", 3)})) == {"P3"}


def test_another_body_is_seen():
    changed = start(7, 1, digest="0" * 16)
    assert broken(OPENED, PUT, changed, done(1), Closed()) == {"P4"}
    held = file(dead={7: ("rejected", 1)})
    held.dead[7, "g"] = held.dead[7, "g"]._replace(body=b"7:other")
    assert broken(OPENED, PUT, start(7, 1), done(1, "rejected"), Closed(), held=held) == {"P4"}


def test_what_nobody_put_is_seen():
    assert broken(OPENED, start(7, 1), done(1), Closed()) == {"P4"}
    assert broken(OPENED, Closed(), held=file((7,))) == {"P4"}
    refused = [put(1, 7), Refusal(1, "queue_full")]
    assert broken(OPENED, refused, Closed()) == set()
    assert broken(OPENED, refused, start(7, 1), done(1), Closed()) == {"P4"}
    assert broken(OPENED, PUT, start(7, 1, queue="few"), done(1), Closed()) == {"P4"}


def test_a_message_that_is_dead_as_corrupt_was_damaged():
    assert broken(OPENED, PUT, Closed(), held=file(dead={7: ("corrupt", 0)})) == {"P4"}


# ------------------------------------------------------------------------------ P5 and P6


def test_an_attempt_that_ended_with_its_host_counts():
    died = [OPENED, *PUT, start(7, 1), AGAIN]
    assert broken(died, start(7, 1, 2), done(1), Closed()) == set()
    assert broken(died, start(7, 1, 1), done(1), Closed()) == {"P5"}


def test_only_deaths_hide_attempts():
    failed = [OPENED, *PUT, start(7, 1), *done(1, "failed")]
    assert broken(failed, start(7, 2, 3), done(2), Closed()) == {"P5"}
    assert broken(failed, AGAIN, start(7, 2, 3), done(2), Closed()) == set()


def test_a_release_costs_no_attempt():
    given_back = [OPENED, *PUT, start(7, 1), *done(1, "released")]
    assert broken(given_back, start(7, 2, 1), done(2), Closed()) == set()
    assert broken(given_back, start(7, 2, 3), done(2), Closed()) == {"P5"}


def test_more_attempts_than_there_may_be_are_seen():
    many = [record for n in (1, 2, 3) for record in (start(7, n, n), *done(n, "failed"))]
    assert broken(OPENED, PUT, many, start(7, 4, 4), done(4), Closed()) == {"P5"}
    dead = file(dead={7: ("max_attempts", 3)})
    assert broken(OPENED, PUT, many, Closed(), held=dead) == set()
    early = file(dead={7: ("max_attempts", 2)})
    assert broken(OPENED, PUT, many[:6], Closed(), held=early) == {"P5"}


def test_a_message_that_ended_three_hosts_must_not_end_a_fourth():
    endless = [put(1, 7, max_attempts=0), Answer(1, (7,))]
    deaths = [record for n in (1, 2, 3) for record in (start(7, 1, n), Opened(n + 1))]
    assert broken(OPENED, endless, deaths, start(7, 1, 4), done(1), Closed()) == {"P5"}
    dead = file(dead={7: ("crashed", 3)})
    assert broken(OPENED, endless, deaths, Closed(), held=dead) == set()


def test_a_letter_that_forgot_attempts_is_seen():
    rejected = [
        OPENED,
        *PUT,
        start(7, 1),
        *done(1, "failed"),
        start(7, 2, 2),
        *done(2, "rejected"),
    ]
    assert broken(rejected, Closed(), held=file(dead={7: ("rejected", 2)})) == set()
    assert broken(rejected, Closed(), held=file(dead={7: ("rejected", 1)})) == {"P5"}


def test_a_settlement_by_an_old_token_is_seen():
    pulled = start(7, 1, until=4)
    again = [start(7, 2, 2, until=90), *done(2, "failed"), start(7, 3, 3), *done(3)]
    assert broken(OPENED, PUT, pulled, again, Ending(1, "failed"), Stale(1), Closed()) == set()
    assert broken(OPENED, PUT, pulled, again, done(1, "failed"), Closed()) == {"P6"}


def test_a_second_settlement_is_seen():
    assert broken(GOOD[:-1], Settled(1), Closed()) == {"P6"}


def test_a_token_that_counts_is_not_stale():
    refused = [start(7, 1), Ending(1, "done"), Stale(1)]
    assert "P6" in broken(OPENED, PUT, refused, Closed())
    over = [start(7, 1, until=5), Ending(1, "done"), Stale(1)]
    assert broken(OPENED, PUT, over, start(7, 2, 2), done(2), Closed()) == set()


# -------------------------------------------------------------------------------------- P7


def test_half_of_a_put_is_seen():
    three = put(1, 7, 8, 9)
    seen = [start(7, 1), *done(1), start(8, 2), *done(2)]
    assert broken(OPENED, three, AGAIN, seen, Closed()) == {"P7"}
    assert broken(OPENED, three, AGAIN, seen, start(9, 3), done(3), Closed()) == set()


def test_half_of_a_settlement_is_seen():
    two = [put(1, 7, 8), Answer(1, (7, 8))]
    run: dict[str, Any] = {"slot": "a", "run": 1}
    batch = [start(7, 1, **run), start(8, 2, **run), Ending(1, "done"), Ending(2, "done")]
    late = [start(8, 1, 2), *done(1)]
    assert broken(OPENED, two, batch, AGAIN, late, Closed()) == {"P7"}
    both = [start(7, 2, 2), *done(2)]
    assert broken(OPENED, two, batch, AGAIN, late, both, Closed()) == set()
    assert broken(OPENED, two, batch, AGAIN, Closed()) == set()


def test_a_dead_letter_that_is_gone_or_comes_again_is_seen():
    rejected = [OPENED, *PUT, start(7, 1), *done(1, "rejected")]
    told = Buried("q", "g", 7, "rejected")
    letter = file(dead={7: ("rejected", 1)})
    assert broken(rejected, told, Closed(), held=letter) == set()
    assert broken(rejected, told, Closed()) == {"P7"}
    again = [start(7, 2, 2), *done(2)]
    assert {"P3", "P7"} <= broken(rejected, told, again, Closed(), held=letter)


def test_a_letter_is_there_or_its_copy_is():
    rejected = [OPENED, *PUT, start(7, 1), *done(1, "rejected")]
    redrive = [Call(2, "redrive", "q"), Answer(2, (8,))]
    copy = [start(7, 2, seq=8, origin=7), *done(2)]
    letter = file(dead={7: ("rejected", 1)})
    assert broken(rejected, redrive, copy, Closed()) == set()
    assert broken(rejected, redrive[0], AGAIN, copy, Closed()) == set()
    assert broken(rejected, redrive[0], AGAIN, Closed(), held=letter) == set()
    assert broken(rejected, redrive, copy, Closed(), held=letter) == {"P7"}
    assert broken(rejected, copy, Closed()) == {"P4"}
    assert "P1" in broken(rejected, redrive, Closed())


def test_a_copy_may_be_removed_before_it_is_delivered():
    rejected = [OPENED, *PUT, start(7, 1), *done(1, "rejected")]
    redrive = [Call(2, "redrive", "q"), Answer(2, (8,))]
    cancel = [Call(3, "cancel", "q", seqs=(8,)), Answer(3, (8,))]
    assert broken(rejected, redrive, cancel, Closed()) == set()
    assert broken(rejected, redrive[0], cancel, AGAIN, Closed()) == set()
    assert broken(rejected, cancel, AGAIN, Closed()) == {"P7"}


def test_a_copy_of_a_copy_that_nobody_saw_is_explained():
    rejected = [OPENED, *PUT, start(7, 1), *done(1, "rejected")]
    redrive = [Call(2, "redrive", "q"), Answer(2, (8,))]
    more = [Call(3, "redrive", "q"), Answer(3, (9,)), start(7, 2, seq=9, origin=8), *done(2)]
    assert broken(rejected, redrive, AGAIN, more, Closed()) == set()


def test_a_message_in_two_places_is_seen():
    held = file(waiting=(7,), dead={7: ("rejected", 1)})
    rejected = [start(7, 1), *done(1, "rejected")]
    assert broken(OPENED, PUT, rejected, Closed(), held=held) == {"P7"}


# ----------------------------------------------------------------------- P8, P9 and P10


def test_a_delivery_that_took_too_long_to_come_again_is_seen():
    died = [OPENED, *PUT, start(7, 1), AGAIN]
    late = [start(7, 1, 2), *done(1), Closed()]
    assert broken(died, late, step_ms=9_000) == set()
    others = [put(2, 8), Answer(2, (8,)), start(8, 2), *done(2)]
    assert broken(died, others, late, step_ms=9_000) == {"P8"}
    # What matters is how long somebody could have delivered it.
    assert broken(died[:-1], AGAIN, late, step_ms=90_000) == {"P8"}


def test_a_second_delivery_while_the_first_goes_on_is_seen():
    two = [start(7, 1), start(7, 2, 2), *done(2), *done(1)]
    assert {"P9"} <= broken(OPENED, PUT, two, Closed())
    over = [start(7, 1, until=5), start(7, 2, 2), *done(2), Ending(1, "done"), Stale(1)]
    assert broken(OPENED, PUT, over, Closed()) == set()


def test_two_of_a_key_at_a_time_are_seen():
    keyed = [put(1, 7, 8, key="k"), Answer(1, (7, 8))]
    one, two = [start(7, 1), *done(1)], [start(8, 2), *done(2)]
    assert broken(OPENED, keyed, one, two, Closed()) == set()
    assert broken(OPENED, keyed, one[:1], two, one[1:], Closed()) == {"P9"}
    assert broken(OPENED, keyed, two, one, Closed()) == {"P9"}


@pytest.mark.parametrize(("priority", "result"), [(0, {"P9"}), (9, set())])
def test_first_deliveries_out_of_order_are_seen(priority, result):
    before = [put(3, 6, queue="line"), Answer(3, (6,))]
    puts = [put(1, 7, queue="line"), Answer(1, (7,))]
    puts += [put(2, 8, queue="line", priority=priority), Answer(2, (8,))]
    busy = [start(6, 1, run=1, **LINE), *puts, *done(1)]
    wrong = [start(8, 2, run=2, **LINE), *done(2), start(7, 3, run=3, **LINE), *done(3)]
    assert broken(OPENED, before, busy, wrong, Closed()) == result


def test_what_was_confirmed_too_late_to_be_claimed_is_in_order():
    before = [put(3, 6, queue="line"), Answer(3, (6,))]
    puts = [put(1, 7, queue="line"), put(2, 8, queue="line"), Answer(2, (8,))]
    busy = [start(6, 1, run=1, **LINE), *puts, *done(1), Answer(1, (7,))]
    starts = [start(8, 2, run=2, **LINE), *done(2), start(7, 3, run=3, **LINE), *done(3)]
    assert broken(OPENED, before, busy, starts, Closed()) == set()


def test_a_message_with_two_seqs_is_seen():
    twice = [start(7, 1), *done(1), start(7, 2, seq=9), *done(2)]
    assert broken(OPENED, put(1, 7), AGAIN, twice, Closed()) == {"P10"}


def test_two_messages_with_one_dedup_key_are_seen():
    first = [put(1, 7, dedup="d"), Answer(1, (7,))]
    copy = [put(2, 8, dedup="d"), Answer(2, (7,), (0,))]
    one = [start(7, 1), *done(1)]
    assert broken(OPENED, first, copy, one, Closed()) == set()
    assert broken(OPENED, first, put(2, 8, dedup="d"), AGAIN, one, Closed()) == set()
    assert broken(OPENED, first, copy[0], AGAIN, one, start(8, 2), done(2), Closed()) == {"P10"}


def test_a_put_that_is_repeated_under_its_key_is_one_message():
    repeated = [put(1, 7, dedup="d"), AGAIN, put(2, 7, dedup="d"), Answer(2, (7,), (0,))]
    assert broken(OPENED, repeated, start(7, 1), done(1), Closed()) == set()
    assert broken(OPENED, repeated, Closed()) == {"P1"}


# ------------------------------------------------------------------------------ the journal


def test_a_journal_comes_back_as_it_was_written(tmp_path):
    journal = Journal(tmp_path / "j")
    for record in GOOD:
        journal.note(record)
    assert [line.record for line in read_journal(tmp_path / "j")] == GOOD


def test_the_last_line_of_a_writer_may_be_torn(tmp_path):
    path = tmp_path / "j"
    Journal(path).note(OPENED)
    with path.open("ab") as torn:
        torn.write(b'[5,["opened",')
    assert [line.record for line in read_journal(path)] == [OPENED]
    Journal(path).note(AGAIN)
    assert [line.record for line in read_journal(path)] == [OPENED, AGAIN]


def test_damage_in_the_middle_of_a_journal_is_no_kill(tmp_path):
    path = tmp_path / "j"
    journal = Journal(path)
    with path.open("ab") as torn:
        torn.write(b'[5,["opened",\n')
    journal.note(AGAIN)
    with pytest.raises(ValueError, match="is damaged"):
        read_journal(path)


def test_history_that_is_kept_is_settled():
    held = file((7,))
    held.retained = {"q"}
    held.deliveries[7, "g"] = [Row(1, 1, 1, 0, 5, 10)]
    assert broken(GOOD, held=held) == set()
