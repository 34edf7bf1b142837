"""End a child that a handler made by fork, once it comes back from the handler.

Knows: what Python does with an exception that nobody catches, and how a process ends at once.
Does not know: messages, and anything else of the parent's, which goes on.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn


def end_child(error: BaseException | None) -> NoReturn:
    """Leave the process as a program would that ends here, or with `error`.

    It is a copy of a worker's thread: nothing may be cleaned up that belongs to the parent.
    """
    code = 1
    try:
        told = _exit_code(error)
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:  # a daemon may have none
                stream.flush()
        code = told
    finally:
        os._exit(code)


def _exit_code(error: BaseException | None) -> int:
    if error is None:
        return 0
    if not isinstance(error, SystemExit):
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 0xFF
    sys.stderr.write(f"{error.code}\n")
    return 1
