"""What `import embedq` gives is small, documented and quick to load."""

import importlib.metadata
import inspect
import subprocess
import sys

import pytest

import embedq

PUBLIC = sorted(getattr(embedq, "__all__", ()))


def test_the_version_is_the_one_that_was_installed() -> None:
    assert importlib.metadata.version("embedq") == embedq.__version__


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_exists_and_says_what_it_does(name: str) -> None:
    thing = getattr(embedq, name)
    if inspect.isclass(thing) or inspect.isroutine(thing):
        assert (thing.__doc__ or "").strip(), f"{name} has no docstring"


def test_importing_embedq_loads_nothing_heavy() -> None:
    heavy = {"asyncio", "click", "pyspark", "sqlite_utils", "watchdog", "zmq"}
    code = f"import sys, embedq; print(sorted({heavy!r} & set(sys.modules)))"
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True, timeout=60)
    assert loaded.strip() == "[]"
