"""A row that no client of this release puts does not get past the door."""

from __future__ import annotations

import pytest

from embedq.errors import EmbedqError
from embedq.ipc.checks import check_put, check_row
from embedq.ipc.frames import Put
from embedq.limits import LIMITS
from embedq.storage.rows import Row

GOOD = Row(1, 7, 9, 5, 6, "key", 255, b"\x80", b"body", "dedup", 8)


def test_what_clients_put_is_accepted() -> None:
    check_row(GOOD, LIMITS)
    check_row(Row(0, 0, 0, None, None, None, None, None, b""), LIMITS)
    check_put(Put(1, 2, 65_535, []))


@pytest.mark.parametrize(
    "change",
    [
        {"kind": -1},
        {"kind": 1 << 16},
        {"crc": 1 << 32},
        {"priority": 10},
        {"priority": -1},
        {"due": -1},
        {"due": 1 << 60},
        {"expires": 1 << 60},
        {"max_attempts": 256},
        {"key": ""},
        {"key": "ä" * 128},
        {"dedup_key": "x" * 256},
        {"dedup_until": 1 << 60},
        {"headers": bytes(200_000)},
    ],
    ids=str,
)
def test_what_no_client_puts_is_refused(change: dict[str, object]) -> None:
    (name,) = change
    with pytest.raises(EmbedqError, match=name):
        check_row(GOOD._replace(**change), LIMITS)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [-1, 1 << 16])
def test_a_kind_that_is_none_is_refused(kind: int) -> None:
    with pytest.raises(EmbedqError, match="kind"):
        check_put(Put(1, 2, kind, []))
