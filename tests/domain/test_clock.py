"""Clocks and durations.

Knows: what a duration may look like, how the virtual clock moves.
Does not know: what times are used for.
"""

import math
import threading
import time
from datetime import timedelta

import pytest
from hypothesis import given, strategies as st

from embedq.clock import Clock, SystemClock, VirtualClock, parse_duration, to_ms
from embedq.errors import InvalidOption


def test_the_system_clock_is_the_one_of_the_operating_system():
    clock: Clock = SystemClock()
    assert abs(clock.time() - time.time()) < 60
    first = clock.monotonic()
    assert first <= clock.monotonic() <= time.monotonic()
    assert repr(clock) == "SystemClock()"


def test_a_virtual_clock_stands_still_until_it_is_moved():
    clock: Clock = VirtualClock(start=50.0)
    assert (clock.time(), clock.monotonic()) == (clock.time(), clock.monotonic())
    assert clock.time() == 50.0


def test_advance_moves_both_clocks_and_jump_only_the_wall_clock():
    clock = VirtualClock(start=50.0)
    before = clock.monotonic()
    clock.advance(2.5)
    assert (clock.time(), clock.monotonic()) == (52.5, before + 2.5)
    clock.jump(-86_400)
    assert (clock.time(), clock.monotonic()) == (52.5 - 86_400, before + 2.5)
    assert repr(clock) == f"VirtualClock(time={52.5 - 86_400}, monotonic={before + 2.5})"


def test_the_two_virtual_clocks_cannot_be_mistaken_for_each_other():
    clock = VirtualClock()
    assert abs(clock.time() - clock.monotonic()) > 1_000_000


@pytest.mark.parametrize("seconds", [-1, math.nan, math.inf])
def test_time_passes_only_forwards(seconds):
    with pytest.raises(InvalidOption, match="only forwards"):
        VirtualClock().advance(seconds)


def test_no_step_is_lost_between_threads():
    clock = VirtualClock(start=0.0)

    def work():
        for _ in range(500):
            clock.advance(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clock.time() == 2000.0


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("200ms", 0.2),
        ("30s", 30.0),
        ("5m", 300.0),
        ("2h", 7200.0),
        ("1d", 86_400.0),
        ("7d", 604_800.0),
        ("1h30m", 5400.0),
        ("1d2h3m4s5ms", 93_784.005),
        ("1.5s", 1.5),
        ("5m500ms", 300.5),
        ("0s", 0.0),
        (0, 0.0),
        (7, 7.0),
        (0.25, 0.25),
        (timedelta(minutes=2), 120.0),
    ],
)
def test_durations_become_seconds(value, seconds):
    assert parse_duration(value, "delay") == pytest.approx(seconds)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "30",
        "s",
        "-5s",
        "5 s",
        " 5s",
        "5s ",
        "5s\n",
        "5S",
        "30m1h",
        "1h1h",
        "1e3s",
        ".5s",
        "5.s",
        "٣s",
        "1w",
        "9" * 30 + "d",
        "x" * 1000,
        -1,
        -0.001,
        math.nan,
        math.inf,
        pytest.param(10**400, id="400 digits"),
        pytest.param(10**10_000, id="10000 digits"),
        True,
        False,
        None,
        [],
        b"5s",
        timedelta(seconds=-1),
    ],
)
def test_anything_else_is_refused_by_the_name_of_the_argument(value):
    with pytest.raises(InvalidOption, match=r"^delay=") as caught:
        parse_duration(value, "delay")
    assert caught.value.details == {"argument": "delay"}
    assert len(str(caught.value)) < 250


@given(st.integers(0, 10**9), st.sampled_from([("ms", 1), ("s", 1000), ("m", 60_000)]))
def test_whole_units_are_exact_to_the_millisecond(number, unit):
    name, factor = unit
    assert to_ms(parse_duration(f"{number}{name}", "x")) == number * factor


@given(st.text(max_size=12) | st.text("0123456789.dhms", max_size=12))
def test_no_text_does_anything_but_parse_or_be_refused(text):
    try:
        seconds = parse_duration(text, "x")
    except InvalidOption:
        return
    assert 0 <= seconds < math.inf


def test_milliseconds_are_rounded_to_the_nearest():
    assert to_ms(1.001) == 1001
    assert to_ms(0.0006) == 1
    assert to_ms(1_700_000_000.123) == 1_700_000_000_123
