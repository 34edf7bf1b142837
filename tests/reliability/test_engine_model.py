"""The engine against a naive model: whatever is done, both deliver the same in the same order.

Knows: the machines, and the mistakes they must find.
Does not know: how machine, engine or model work.
"""

from __future__ import annotations

import logging

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.reliability.engine_machine import EngineMachine, Roomy

pytestmark = pytest.mark.reliability

RUNS = settings(max_examples=120, stateful_step_count=50)


@pytest.fixture(autouse=True)
def silence():
    """Thousands of dead letters would be logged, and kept by pytest."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def test_with_everything_in_memory_engine_and_model_agree():
    run_state_machine_as_test(Roomy, settings=RUNS)


def test_with_almost_nothing_in_memory_engine_and_model_agree():
    run_state_machine_as_test(EngineMachine, settings=RUNS)
