"""Events are counted always, passed on when somebody wants them, and hurt nobody.

Knows: the catalogue and the hub.
Does not know: when a broker emits what.
"""

import ast
import logging
import string
import threading
from pathlib import Path

import pytest

from embedq import InvalidOption
from embedq.catalogue import CATALOGUE, COUNTED, FIELDS
from embedq.clock import VirtualClock
from embedq.events import BACKLOG, Events, Notice

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def events():
    hub = Events(VirtualClock())
    yield hub
    hub.close()


def emitted(source: str) -> list[tuple[str, set[str]]]:
    """Find the calls of emit("name", field=…) in a program."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(
                func=ast.Attribute(attr="emit"),
                args=[ast.Constant(value=str(name))],
                keywords=given,
            ):
                found.append((name, {word.arg or "**" for word in given} - {"times"}))
            case _:
                continue
    return found


def test_every_emit_in_the_product_names_an_event_and_fields_of_the_catalogue():
    calls = [
        call
        for path in (ROOT / "embedq").rglob("*.py")
        for call in emitted(path.read_text(encoding="utf-8"))
    ]
    for name, fields in calls:
        assert fields <= {*CATALOGUE[name].fields, "**"}, name


def test_the_search_for_emits_would_notice_a_wrong_field():
    assert emitted("a.events.emit('dead', times=3, body=1)") == [("dead", {"body"})]


def test_texts_use_only_their_fields_and_no_event_carries_a_body():
    for name, spec in CATALOGUE.items():
        used = {field for _, field, _, _ in string.Formatter().parse(spec.text) if field}
        assert used <= set(spec.fields), name
        assert "body" not in spec.fields
        assert spec.note
        assert spec.level_name


def test_a_listener_gets_the_events_of_its_name_until_it_leaves(events):
    got: list[Notice] = []
    off = events.on("paused", got.append)
    events.emit("paused", queue="orders")
    events.emit("resumed", queue="orders")
    assert events.flush()
    off()
    off()
    events.emit("paused", queue="orders")
    assert events.flush()
    assert [(notice.name, notice.queue, notice.text) for notice in got] == [
        ("paused", "orders", "queue 'orders' was paused")
    ]


def test_no_terminal_obeys_what_an_event_repeats(events, caplog):
    got: list[Notice] = []
    events.on("dead", got.append)
    detail = "bell \a, red \x1b[31m, turned \u202e, half \ud800\nnext"
    events.emit("dead", queue="q", group="g", id="1", seq=1, reason="rejected", detail=detail)
    assert events.flush()
    (notice,) = got
    shown = r"(bell \x07, red \x1b[31m, turned \u202e, half \ud800" "\nnext)"
    assert notice.text.endswith(shown)
    assert notice.fields["detail"] == detail
    assert caplog.messages[-1] == notice.text


def test_a_listener_may_ask_for_one_queue_or_for_everything(events):
    one: list[Notice] = []
    everything: list[Notice] = []
    events.on("paused", one.append, queue="orders")
    events.on("*", everything.append)
    events.emit("paused", queue="other")
    events.emit("paused", queue="orders")
    events.emit("put", queue="orders")
    events.emit("stopped", path="x.db")
    assert events.flush()
    assert [notice.queue for notice in one] == ["orders"]
    assert [notice.name for notice in everything] == ["paused", "paused", "stopped"]


def test_listeners_run_in_order_on_one_other_thread(events):
    seen: list[tuple[object, int]] = []
    events.on("released", lambda n: seen.append((n.fields["count"], threading.get_ident())))
    for number in range(100):
        events.emit("released", queue="q", group="g", count=number)
    assert events.flush()
    assert [number for number, _ in seen] == list(range(100))
    assert {thread for _, thread in seen}.isdisjoint({threading.get_ident()})


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt()])
def test_a_listener_that_raises_is_logged_and_the_next_one_is_called(events, caplog, error):
    def broken(notice: Notice) -> None:
        raise error

    got: list[Notice] = []
    events.on("paused", broken)
    events.on("paused", got.append)
    with caplog.at_level(logging.ERROR, "embedq"):
        events.emit("paused", queue="a")
        events.emit("paused", queue="b")
        assert events.flush()
    assert [notice.queue for notice in got] == ["a", "b"]
    assert len([r for r in caplog.records if "listener" in r.getMessage()]) == 2


def test_the_log_has_the_fields_of_the_event(events, caplog):
    with caplog.at_level(logging.INFO, "embedq"):
        events.emit("redriven", queue="orders", count=3, by="ann")
        events.emit("released", queue="orders", group="g", count=1)  # debug: not wanted
        assert events.flush()
    (record,) = [r for r in caplog.records if r.name == "embedq"]
    assert record.__dict__["event"] == "redriven"
    assert record.__dict__["embedq"] == {"queue": "orders", "count": 3, "by": "ann"}
    assert record.getMessage() == "queue 'orders': 3 dead letters were put again by ann"


def test_what_nobody_wants_is_counted_and_starts_no_thread(events):
    events.emit("released", queue="a", group="g", count=5, times=5)
    events.emit("released", queue="b", group="g", count=1)
    events.emit("put", queue="a", times=7)
    events.add_source(lambda: {("put", "a"): 1})
    assert events._thread is None
    assert events.count("released") == 6
    assert events.count("released", "b") == 1
    assert events.count("put", "a") == 8


def test_a_slow_listener_makes_events_drop_and_never_waits(events):
    gate = threading.Event()
    events.on("released", lambda _: gate.wait(30))
    for _ in range(BACKLOG + 50):
        events.emit("released", queue="q", group="g", count=1)
    assert events.dropped >= 40
    assert events.count("released") == BACKLOG + 50
    gate.set()
    assert events.flush()


def test_wrong_listeners_are_refused_at_the_call(events):
    with pytest.raises(InvalidOption, match="no event 'deed'"):
        events.on("deed", print)
    with pytest.raises(InvalidOption, match="only counted"):
        events.on("put", print)

    async def listener(notice):
        """Nothing."""

    with pytest.raises(InvalidOption, match="plain function"):
        events.on("dead", listener)
    with pytest.raises(InvalidOption, match="plain function"):
        events.on("dead", 3)


def test_after_the_end_events_are_only_counted(events):
    got: list[Notice] = []
    events.on("paused", got.append)
    events.emit("paused", queue="a")
    events.close()
    events.emit("paused", queue="a")
    assert len(got) == 1
    assert events.count("paused") == 2
    assert CATALOGUE["put"].level == COUNTED


def test_every_field_is_explained_and_no_other():
    assert set(FIELDS) == {field for spec in CATALOGUE.values() for field in spec.fields}
