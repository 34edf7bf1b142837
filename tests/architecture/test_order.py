"""The order of the tests: what takes long comes first, and a run uses the cores it has."""

from pathlib import Path
from types import ModuleType

import pytest


class Item:
    """A test with markers."""

    def __init__(self, name: str, *markers: str) -> None:
        self.name = name
        self._markers = markers

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self._markers else None


@pytest.fixture
def conftest(request: pytest.FixtureRequest) -> ModuleType:
    path = str(Path(__file__).parents[1] / "conftest.py")
    plugins = request.config.pluginmanager.get_plugins()
    (found,) = (one for one in plugins if getattr(one, "__file__", None) == path)
    assert isinstance(found, ModuleType)
    return found


def test_sparks_tests_come_first_then_slow_ones_and_those_that_kill(conftest):
    items = [
        Item("a"),
        Item("b", "slow"),
        Item("c", "parametrize"),
        Item("d", "reliability", "slow"),
        Item("e"),
        Item("f", "spark", "reliability"),
        Item("g", "spark"),
    ]
    conftest.pytest_collection_modifyitems(items)
    assert "".join(item.name for item in items) == "fgbdace"
