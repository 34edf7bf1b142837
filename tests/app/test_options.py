"""Options become what is stored, or an error that names the option and the fix."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from embedq.app.options import Encoder, make_draft, policy_changes, wait_s
from embedq.errors import EmbedqError, InvalidOption, InvalidPayload
from embedq.policy import RetryPolicy

NOW = 1_700_000_000_000
DAY = 86_400_000


@dataclass
class Order:
    number: int


def drafted(**options: Any):
    said: Any = options
    return make_draft(0, b"x", NOW, 600_000, said)


def test_times_of_all_kinds() -> None:
    assert drafted(delay="5m").available_at_ms == NOW + 300_000
    assert drafted(delay=timedelta(seconds=2)).available_at_ms == NOW + 2000
    moment = datetime.fromtimestamp(NOW / 1000 + 60, UTC)
    assert drafted(at=moment).available_at_ms == NOW + 60_000
    assert drafted(at=NOW / 1000 + 1.5).available_at_ms == NOW + 1500
    assert drafted(at=0).available_at_ms == 0
    both = drafted(ttl="1d", delay="1h")
    assert (both.expires_at_ms, both.available_at_ms) == (NOW + DAY, NOW + DAY // 24)


def test_other_options_of_a_put() -> None:
    draft = drafted(
        priority=5, dedup_key="d", ordering_key="o", max_attempts=9, headers={"a": "b"}
    )
    assert (draft.priority, draft.dedup_key, draft.ordering_key) == (5, "d", "o")
    assert (draft.max_attempts, draft.headers, draft.dedup_window_ms) == (9, {"a": "b"}, 600_000)
    assert drafted(max_attempts=None).max_attempts == 0
    assert drafted().max_attempts is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"delay": "soon"}, "delay='soon'"),
        ({"delay": -1}, "delay=-1"),
        ({"delay": "400d"}, "delay='400d' is farther away"),
        ({"delay": 1, "at": 1}, "both given"),
        ({"at": datetime(2026, 1, 1)}, "no time zone"),  # noqa: DTZ001
        ({"at": "tomorrow"}, "at='tomorrow'"),
        ({"ttl": "1s", "delay": "2s"}, "expire before"),
        ({"priority": 10}, "priority=10"),
        ({"priority": True}, "priority=True"),
        ({"max_attempts": 0}, "max_attempts=0 is not a whole number from 1 to 255"),
        ({"max_attempts": 256}, "max_attempts=256 is not a whole number from 1 to 255"),
        ({"headers": {"a": 1}}, "header 'a'"),
        ({"dedup_key": ""}, "dedup_key"),
        ({"prioritty": 1}, "no option 'prioritty'\nhint: did you mean priority="),
    ],
    ids=str,
)
def test_a_wrong_option_of_a_put_is_named(options: dict[str, Any], said: str) -> None:
    with pytest.raises(EmbedqError, match=said):
        drafted(**options)


def test_settings_of_a_queue() -> None:
    said = policy_changes(
        RetryPolicy(max_attempts=None), {"lease": "1m", "retain": "7d", "max_length": 5}
    )
    assert said == {
        "max_attempts": 0,
        "lease_ms": 60_000,
        "retain_ms": 7 * DAY,
        "max_length": 5,
    }
    assert policy_changes(None, {}) == {}
    assert policy_changes(None, {"retain": None, "max_attempts": None}) == {
        "retain_ms": None,
        "max_attempts": 0,
    }


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_lenght": 5}, "did you mean max_length="),
        ({"colour": "red"}, "options are max_attempts"),
        ({"max_length": 0}, "max_length=0"),
        ({"when_full": "panic"}, "when_full='panic'"),
        ({"max_attempts": 256}, "max_attempts=256 is not a whole number from 1 to 255"),
        ({"lease": "1ms"}, "lease='1ms': a lease has 0.1 to 43200 seconds"),
        ({"retain": "long"}, "retain='long'"),
    ],
    ids=str,
)
def test_a_wrong_setting_of_a_queue_is_named(options: Any, said: str) -> None:
    with pytest.raises(InvalidOption, match=said):
        policy_changes(None, options)


def test_a_retry_that_is_no_policy_is_named() -> None:
    with pytest.raises(InvalidOption, match="retry=3"):
        policy_changes(3, {})  # type: ignore[arg-type]


def test_bodies_of_the_queue_s_type_only() -> None:
    assert Encoder("q", Order)(Order(1)) == (2, b'{"number":1}')
    with pytest.raises(InvalidPayload, match=r"takes .*Order.*, not int"):
        Encoder("q", Order)(3)
    assert Encoder("q", float)(3) == (2, b"3")
    assert Encoder("q", bytes)(bytearray(b"x")) == (0, b"x")
    assert Encoder("q", list[int])([1]) == (2, b"[1]")
    assert Encoder("q", None)("text") == (1, b"text")
    with pytest.raises(InvalidPayload):
        Encoder("q", None)(object())


def test_waiting_times() -> None:
    assert (wait_s(None), wait_s("2m"), wait_s(0)) == (None, 120, 0)
    with pytest.raises(InvalidOption, match="timeout"):
        wait_s(-1)
