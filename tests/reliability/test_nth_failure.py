"""The n-th failing write or sync of every call: all or nothing, a named error, usable after."""

import os

import pytest

from tests.reliability.killing import memory_folder
from tests.reliability.nth import needs_strace
from tests.reliability.nth_cases import CALLS, FAULTS, cases

#: The first four calls, then each eighth one; all of them with EMBEDQ_TEST_LONG=1.
STRIDE = 1 if os.environ.get("EMBEDQ_TEST_LONG") else 8

pytestmark = [pytest.mark.reliability, needs_strace]


@pytest.fixture
def folder(tmp_path):
    with memory_folder(tmp_path) as folder:
        yield folder


@pytest.mark.parametrize(("call", "error"), FAULTS)
@pytest.mark.parametrize("half", [0, 1])
def test_a_failing_call_changes_all_or_nothing(folder, call, error, half):
    with cases(folder, call, error) as every:
        every.stride = STRIDE
        for kind in CALLS[half::2]:
            outcome = every.every(kind)
            assert outcome.problems == []
            # A backup syncs with fsync, all others with fdatasync.
            assert outcome.faults or "sync" in call, kind


@pytest.mark.parametrize(("call", "error"), FAULTS[:3])
def test_a_failing_call_changes_all_or_nothing_when_others_wait(folder, call, error):
    with cases(folder, call, error) as every:
        every.stride = STRIDE
        for kind in ("put", "put_many", "put_drafts", "claim", "ack", "fail", "pair_reject"):
            outcome = every.every(kind, crowd=True)
            assert outcome.problems == []
            assert outcome.faults, kind


def test_a_failing_call_changes_all_or_nothing_without_syncs(folder):
    with cases(folder, "pwrite64", "EIO") as every:
        every.stride = STRIDE
        for kind in ("put", "ack", "checkpoint"):
            outcome = every.every(kind, durability="normal")
            assert outcome.problems == []
            assert outcome.faults, kind


def test_a_store_that_goes_on_after_a_failed_sync_is_noticed(folder):
    with cases(folder, "fdatasync", "EIO") as every:
        outcome = every.every("put", planted="go-on")
    assert any("the store went on" in problem for problem in outcome.problems)


def test_an_ack_that_fails_on_a_full_disk_is_noticed(folder):
    with cases(folder, "pwrite64", "ENOSPC") as every:
        outcome = every.every("ack", planted="no-ballast")
    assert any("was told store_full" in problem for problem in outcome.problems)
