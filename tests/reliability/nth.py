"""Let the N-th system call of a kind fail, or kill the process, with strace.

Knows: how strace counts, the words of its injection, the paths that count.
Does not know: what the program does at that moment, what must follow.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence

import pytest

needs_strace = pytest.mark.skipif(
    shutil.which("strace") is None,
    reason="strace is missing" if os.uname().sysname == "Linux" else "only on Linux",
)


def at_call(call: str, effect: str, number: int, paths: Sequence[str] = ()) -> list[str]:
    """Return the command that runs another one with `effect` at call `number` of each thread.

    `effect` is "signal=KILL" or "error=EIO"; only calls that concern one of `paths` count, if
    any are given.
    """
    only = [word for path in paths for word in ("-P", path)]
    what = ["-e", f"trace={call}", "-e", f"inject={call}:{effect}:when={number}"]
    # Not --seccomp-bpf, which would be faster: with it strace 6.1 forgets to send the signal.
    return ["strace", "-f", "-qq", "-o", os.devnull, *only, *what]
