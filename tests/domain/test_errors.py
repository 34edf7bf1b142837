"""The error tree: stable codes, hints, and text a person can act on.

Knows: what every error must have.
Does not know: who raises them.
"""

import copy
import importlib
import pickle
import pkgutil
import re
from datetime import timedelta

import pytest

import embedq
from embedq import decisions, errors

ALL = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.EmbedqError)
]
FAMILIES = {
    errors.EmbedqError,
    errors.UsageError,
    errors.DeliveryError,
    errors.QueueError,
    errors.NetworkError,
    errors.StorageError,
}


@pytest.mark.parametrize("kind", ALL)
def test_every_error_says_when_it_happens_and_what_to_do_next(kind):
    assert re.fullmatch(r"[a-z_]+", kind.code)
    assert kind.__doc__.splitlines()[0].endswith(".")
    assert isinstance(kind.retryable, bool)
    if kind not in FAMILIES:
        assert kind.hint


def test_codes_are_unique():
    codes = [kind.code for kind in ALL]
    assert len(set(codes)) == len(codes)


def test_only_refusals_that_pass_by_themselves_are_retryable():
    names = {kind.__name__ for kind in ALL if kind.retryable}
    assert names == {"HostGone", "NoHost", "QueueFull", "QueuePaused", "StoreBusy", "StoreFull"}


def test_the_tree_in_the_docstring_names_every_error_and_no_other():
    drawn = set(re.findall(r"\b[A-Z][A-Za-z]+\b", errors.__doc__.split("Knows:")[0]))
    classes = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, Exception)
    }
    assert drawn - {"The"} == classes


class Unprintable(int):
    def __repr__(self):
        raise ValueError("no")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("short", "'short'"),
        (b"bytes", "b'bytes'"),
        (5, "5"),
        (2.5, "2.5"),
        (None, "None"),
        (True, "True"),
        (timedelta(days=1), "datetime.timedelta(days=1)"),
        ("x" * 40, "'" + "x" * 40 + "'"),
        ("x" * 10_000_000, "'" + "x" * 39 + "…"),
        pytest.param(10**10_000, "a huge int", id="10000 digits"),
        pytest.param(Unprintable(), "a huge Unprintable", id="unprintable"),
        (["anything"], "a list"),
    ],
)
def test_a_value_is_shown_shortened_whatever_it_is(value, text):
    assert errors.shown(value) == text


def test_every_error_is_exported():
    for kind in [*ALL, decisions.DeliveryOutcome, decisions.Retry, decisions.Reject]:
        assert getattr(embedq, kind.__name__) is kind
        assert kind.__name__ in embedq.__all__


def test_what_can_reach_an_application_from_any_module_is_in_the_tree():
    for module in pkgutil.walk_packages(embedq.__path__, "embedq."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    strangers, rest = set(), [errors.EmbedqError]
    while rest:
        kinds = rest.pop().__subclasses__()
        rest += kinds
        strangers |= {
            kind
            for kind in kinds
            if kind.__module__.startswith("embedq.") and kind.__module__ != errors.__name__
        }
    # What never leaves its room: a frame that cannot be read, a handler or an application that a
    # worker or a command does not find (it is told in an event, or ends the command).
    assert {kind.__name__ for kind in strangers} == {"NoApplication", "NoHandler", "ProtocolError"}


def test_the_text_is_the_message_and_then_the_hint():
    error = errors.QueueFull("the queue 'orders' holds 10 messages", queue="orders", length=10)
    assert str(error) == f"the queue 'orders' holds 10 messages\nhint: {errors.QueueFull.hint}"
    assert error.message == "the queue 'orders' holds 10 messages"
    assert error.details == {"queue": "orders", "length": 10}


def test_a_hint_of_its_own_replaces_the_one_of_the_class():
    error = errors.StaleLease("too late", hint="look here")
    assert str(error) == "too late\nhint: look here"
    assert errors.StaleLease.hint != "look here"


def test_an_error_without_a_hint_is_one_line():
    assert str(errors.StorageError("broken")) == "broken"


def test_the_owner_of_a_store_in_use_is_an_attribute_and_a_detail():
    error = errors.StoreInUse("in use", pid=17, since="noon")
    assert error.pid == 17
    assert error.details == {"pid": 17, "since": "noon"}
    assert errors.StoreInUse("in use").pid is None


@pytest.mark.parametrize("clone", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
def test_errors_survive_a_trip_between_processes(clone):
    error = clone(errors.StoreInUse("in use", pid=17, hint="stop it"))
    assert (type(error), error.pid, str(error)) == (
        errors.StoreInUse,
        17,
        "in use\nhint: stop it",
    )


def test_a_handlers_decision_is_not_an_error_of_the_tree():
    assert not issubclass(decisions.DeliveryOutcome, errors.EmbedqError)
    assert decisions.Retry().delay is None
    assert decisions.Retry("10s").delay == "10s"
    assert decisions.Reject().reason == ""
    assert decisions.Reject("no such customer").reason == "no such customer"
