"""What a worker process loads before it takes its first message: its start is mostly that."""

from __future__ import annotations

import subprocess
import sys

#: What only a host needs, and what only coroutines need.
UNUSED = {"asyncio", "embedq.broker.engine", "embedq.broker.desk", "embedq.ipc.server"}


def loaded(code: str) -> set[str]:
    """Return which of those a new interpreter has loaded."""
    show = f"import sys; {code}; print(*({UNUSED!r} & set(sys.modules)))"
    found = subprocess.run(
        [sys.executable, "-c", show], capture_output=True, text=True, check=True
    )
    return set(found.stdout.split())


def test_a_worker_loads_neither_a_host_nor_asyncio() -> None:
    program = "from embedq import Broker, Delivery; Broker('q.db').queue('orders')"
    assert loaded(f"import embedq.workers.child, embedq.ipc.line; {program}") == set()


def test_what_a_host_loads_would_be_seen() -> None:
    assert loaded("import embedq.ipc.server, embedq.broker.host") == UNUSED
