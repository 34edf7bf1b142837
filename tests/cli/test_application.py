"""Applications by name: found, or explained."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from embedq.cli.application import NoApplication, load

APP = """
from embedq import Broker
broker = Broker("q.db")
orders = broker.queue("orders", str)
class state:
    inner = broker
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)

    def write(name: str, text: str) -> None:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    yield write
    for name in set(sys.modules) - before:
        if name.startswith("loaded_"):
            del sys.modules[name]


def refused(reference: str) -> NoApplication:
    with pytest.raises(NoApplication) as caught:
        load(reference)
    return caught.value


def test_a_broker_is_found_by_its_name_or_because_it_is_the_only_one(write):
    write("loaded_one/queues.py", APP)
    named = load("loaded_one.queues:broker")
    assert load("loaded_one.queues") is named
    assert load("loaded_one.queues:state.inner") is named


def test_a_module_that_is_not_there_is_named(write):
    write("loaded_two/queues.py", APP)
    assert "no module 'loaded_none'" in refused("loaded_none:broker").message
    assert "no module 'loaded_two.none'" in refused("loaded_two.none:broker").message


def test_a_module_that_misses_another_one_fails_with_its_own_line(write):
    write("loaded_three.py", "x = 1\nimport loaded_missing\n")
    error = refused("loaded_three:broker")
    assert "ModuleNotFoundError" in error.message
    assert "line 2" in error.traceback
    assert "application.py" not in error.traceback
    assert "importlib" not in error.traceback


def test_a_syntax_error_is_shown_where_it_is(write):
    write("loaded_four.py", "def f(:\n")
    error = refused("loaded_four:broker")
    assert "SyntaxError" in error.message
    assert "def f(:" in error.traceback


def test_a_module_that_ends_the_program_is_no_end(write):
    write("loaded_exit.py", "raise SystemExit(3)\n")
    assert "SystemExit" in refused("loaded_exit:broker").message


def test_other_things_than_a_broker_are_told_apart(write):
    write("loaded_five.py", APP)
    error = refused("loaded_five:orders")
    assert "is a Queue, not a Broker" in error.message
    assert error.hint == "it has loaded_five:broker"
    assert "has no 'brokr'" in refused("loaded_five:brokr").message


def test_among_several_brokers_one_must_be_named(write):
    write("loaded_six.py", APP + 'other = Broker("r.db")\nsame = other\n')
    error = refused("loaded_six")
    assert "several" in error.message
    assert "loaded_six:other" in str(error.hint)
    write("loaded_seven.py", "x = 1\n")
    assert "no broker" in refused("loaded_seven").message


def test_a_file_is_explained(write):
    assert refused("./shop/queues.py").hint == "name the module: shop.queues:broker"
    assert "names no module" in refused(":broker").message
