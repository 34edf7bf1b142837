"""The package as a whole.

Knows: what importing it may load, and what is public.
Does not know: what the names do.
"""

import re
import subprocess
import sys

import embedq

HEAVY = ("zmq", "sqlite3", "sqlite_utils", "asyncio", "watchdog", "pydantic", "click", "traceback")


def loaded_by(code):
    show = f"import sys; {code}; print(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    done = subprocess.run(
        [sys.executable, "-c", show], capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stdout.split())


def test_importing_embedq_loads_nothing_heavy():
    assert not loaded_by("import embedq") & set(HEAVY)


def test_the_probe_would_notice_a_heavy_import():
    assert {"sqlite3", "traceback"} <= loaded_by("import embedq, sqlite3, traceback")


def test_public_names_exist_and_are_sorted_once():
    assert len(set(embedq.__all__)) == len(embedq.__all__)
    for name in embedq.__all__:
        assert hasattr(embedq, name)


def test_the_version_is_one():
    assert re.fullmatch(r"\d+\.\d+\.\d+", embedq.__version__)
