"""Let an exception from outside strike a call at each point where the interpreter lets one in.

Knows: how to count those points, and how to make an exception arrive at the n-th of them.
Does not know: what is called, nor what must be true afterwards.

CPython looks for exceptions from outside (Ctrl-C, a timeout of another library) when a function
is entered, after a call into C, and on the way back in a loop; a `with` block cannot be struck
between its last statement and its end. Raising in a trace function at any instruction instead
would report damage that cannot happen. So the exception is only made pending by the trace
function, and the interpreter itself raises it at its next look.
"""

from __future__ import annotations

import dis
import signal
import sys
from _thread import interrupt_main
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any


@lru_cache(None)
def _looks(code: CodeType) -> frozenset[int]:
    """Return the offsets of the instructions that look for exceptions from outside."""
    return frozenset(
        instruction.offset
        for instruction in dis.get_instructions(code)
        if instruction.opname.startswith("CALL") or "JUMP_BACKWARD" in instruction.opname
    )


class Strike:
    """One call, in the main thread, that is struck at its `number`-th point.

    `where` stays None if it has fewer. `kind`: what a signal handler of the application raises.
    """

    def __init__(self, number: int, kind: type[BaseException] = KeyboardInterrupt) -> None:
        self.number = number
        self._kind = kind
        self._raised: BaseException | None = None
        self.points = 0
        self.where: str | None = None
        # Looking up a missing key presses Ctrl-C without an instruction that looks by itself:
        # a call would let the exception strike the trace function.
        self._press: defaultdict[str, None] = defaultdict(interrupt_main)

    def _raise(self, *_: object) -> None:
        assert self.where is not None, "somebody else has pressed Ctrl-C"
        self._raised = self._kind("struck")
        raise self._raised

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        if event == "call" or (event == "opcode" and frame.f_lasti in _looks(frame.f_code)):
            self.points += 1
            if self.points == self.number:
                code = frame.f_code
                self.where = f"{code.co_qualname}:{frame.f_lineno}+{frame.f_lasti}"
                self._press["Ctrl-C"]
        return self._trace

    def during(self, call: Callable[[], object]) -> bool:
        """Make the call; return whether it was struck. Other exceptions pass.

        An exception that strikes a generator which is just being thrown away is lost: the
        interpreter only prints it, and the call goes on.
        """
        before = sys.gettrace()
        handler = signal.signal(signal.SIGINT, self._raise)
        sys.settrace(self._trace)
        try:
            call()
        except BaseException as error:
            if self._raised is None or self._raised not in (error, error.__cause__):
                raise
        finally:
            sys.settrace(before)
            signal.signal(signal.SIGINT, handler)
        return self.where is not None


def strikes(
    first: int = 1, step: int = 1, kind: type[BaseException] = KeyboardInterrupt
) -> Iterator[Strike]:
    """Go through the points, every `step`-th. The caller stops when one was not struck."""
    number = first
    while True:
        yield Strike(number, kind)
        number += step
