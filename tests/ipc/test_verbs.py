"""Calls of an office over bytes: every one of them, with its defaults, and what is wrong."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from embedq.broker.desk import Desk
from embedq.broker.host import open_engine
from embedq.broker.office import Office
from embedq.errors import InvalidPayload, QueueNotFound
from embedq.ipc.calls import is_done_in_turn
from embedq.ipc.verbs import encoded, forms, remote, served


@pytest.fixture
def desk() -> Iterator[Desk]:
    with open_engine(":memory:") as opened:
        yield opened


@pytest.fixture
def office(desk: Desk) -> Office:
    verbs = served(desk.office)

    def ask(verb: str, args: bytes, _repeat: object, progress) -> bytes:
        return verbs[verb](args, progress or (lambda _done, _total: None))

    return remote(ask)


def test_results_are_what_the_office_itself_returns(desk: Desk, office: Office) -> None:
    told = office.declare("orders", {"max_attempts": 3})
    assert told == desk.office.info("orders") == office.info("orders")
    group = office.group("orders", "audit", "beginning")
    assert group == desk.office.group("orders", "audit")
    desk.put_many(desk.existing_queue("orders"), [b"a", b"b"])
    assert office.peek("orders", 5, 0) == desk.office.peek("orders", 5, 0)
    assert office.queues() == ["orders"]
    assert office.queue_stats("orders").length == 2
    assert office.cancel("orders", [1]) == [1]


def test_only_the_parts_of_feeds_are_read_in_turn(desk: Desk) -> None:
    verbs = served(desk.office)
    assert [name for name, verb in verbs.items() if is_done_in_turn(verb)] == ["feed_part"]


def test_progress_is_passed_on(desk: Desk, office: Office) -> None:
    office.declare("orders", {})
    desk.put_many(desk.existing_queue("orders"), [b"x"] * 10)
    told: list[tuple[int, int]] = []
    assert office.purge("orders", progress=lambda done, total: told.append((done, total))) == 10
    assert told[-1][0] == 10


def test_errors_pass_through(office: Office) -> None:
    with pytest.raises(QueueNotFound):
        office.info("nothing")


@pytest.mark.parametrize("args", [b"", b"\xc1", b"\x90", msgspec.msgpack.encode([1, 2, 3])])
def test_arguments_that_are_none_are_refused(desk: Desk, args: bytes) -> None:
    with pytest.raises(InvalidPayload, match="arguments of info"):
        served(desk.office)["info"](args, lambda _done, _total: None)


def test_what_is_no_call_is_no_attribute(office: Office) -> None:
    with pytest.raises(AttributeError):
        office.nothing  # type: ignore[attr-defined]  # noqa: B018


def test_what_moves_or_removes_what_others_may_have_put_since_is_not_repeated() -> None:
    once = {name for name, form in forms().items() if not form.repeat}
    assert once == {"cancel", "settle_by_id", "redrive", "purge_dead"}
    assert encoded("group", "orders", "audit") == encoded("group", "orders", "audit", "auto")


def test_an_argument_with_its_default_is_not_sent_and_one_that_is_missing_has_it(
    desk: Desk, office: Office
) -> None:
    told = ("orders", "default", 1, "reject", "why")
    assert msgspec.msgpack.decode(encoded("settle_by_id", *told)) == list(told)
    assert msgspec.msgpack.decode(encoded("settle_by_id", *told, "ann")) == [*told, "ann"]
    office.declare("orders", {})
    group = office.group("orders", "default")
    desk.put_many(desk.existing_queue("orders"), [b"a", b"b"])
    office.settle_by_id(*told)
    office.settle_by_id("orders", "default", 2, "reject", "why", "ann")
    letters = [office.dead_letter(seq, group.id) for seq in (1, 2)]
    assert [each and each.moved_by for each in letters] == ["settle_by_id", "ann"]


def test_arguments_that_are_too_few_are_refused(desk: Desk) -> None:
    with pytest.raises(InvalidPayload, match="arguments of settle_by_id"):
        served(desk.office)["settle_by_id"](
            msgspec.msgpack.encode(["orders", "default", 1]), lambda _done, _total: None
        )
