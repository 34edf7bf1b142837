"""What every test gets: how hypothesis runs, the order, and that nothing is skipped unseen."""

import faulthandler
import os
import signal
import sys

import hypothesis
import pytest

# Has the asserts of the shared suites rewritten: before any test module imports one of them.
import tests.conformance.assertions  # noqa: F401

IN_CI = bool(os.environ.get("CI"))

# Where nothing that was compiled may be kept, as in many images of containers, each of some
# thousand processes compiles all that it imports: 0.36 s of CPU for an engine instead of 0.17.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
    sys.dont_write_bytecode = False

# What a script starts in its background ignores SIGINT, and so would every program that a test
# starts in order to interrupt it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Timing on a shared machine says nothing about a test. In CI the examples are the same each time,
# so that a failure there is one that anybody can repeat.
hypothesis.settings.register_profile(
    "here", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.register_profile(
    "ci", hypothesis.settings.get_profile("here"), derandomize=True, print_blob=True
)
hypothesis.settings.load_profile("ci" if IN_CI else "here")

# What programs catch, and a test that runs one inside its own process might leave caught.
CAUGHT = {
    number: signal.getsignal(number)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
}

# A skip with one of these first words depends on the machine, not on something left uninstalled.
ALLOWED_SKIPS = ("only on ",)

# What takes long runs first: else a run ends with one core at work and the others idle.
LONG = ("slow", "reliability")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests that take long before the others, Spark's first; all keep their order."""
    items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    """Return where a test runs: 0 comes first."""
    if item.get_closest_marker("spark"):
        return 0
    return 1 if any(item.get_closest_marker(name) for name in LONG) else 2


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let a test that asks for more time have it: faulthandler would end the whole run."""
    mark = item.get_closest_marker("timeout")
    if mark is not None and mark.args and mark.args[0] > float(item.config.getini("timeout")):
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item):
    """Let no test leave a signal handler to those after it."""
    result = yield
    for number, before in CAUGHT.items():
        if (left := signal.getsignal(number)) is not before:
            signal.signal(number, before)
            pytest.fail(f"{item.nodeid} left a handler of {number.name}: {left!r}")
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    """Turn a skip into a failure in CI: there, everything a test needs has been installed."""
    report = yield
    if not (IN_CI and report.skipped) or hasattr(report, "wasxfail"):
        return report
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    reason = reason.removeprefix("Skipped: ")
    if not reason.startswith(ALLOWED_SKIPS):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped in CI ({call.when}): {reason}"
    return report
