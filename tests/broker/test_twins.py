"""A twin does what its method does, on another thread, and says so."""

import asyncio
import threading

import pytest

from embedq.broker.twins import twin


class Clerk:
    def __init__(self) -> None:
        self.gate = threading.Event()
        self.done = threading.Event()

    def work(self, number: int, *, more: int = 0) -> tuple[int, int]:
        """Work."""
        return number + more, threading.get_ident()

    def slow(self) -> None:
        """Wait."""
        self.gate.wait(20)
        self.done.set()

    def fails(self) -> None:
        """Raise."""
        raise ValueError("no")

    awork = twin(work)
    aslow = twin(slow)
    afails = twin(fails)


def test_a_twin_returns_and_raises_what_its_method_does_elsewhere() -> None:
    async def main() -> None:
        clerk = Clerk()
        number, thread = await clerk.awork(3, more=4)
        assert number == 7
        assert thread != threading.get_ident()
        with pytest.raises(ValueError, match="no"):
            await clerk.afails()

    asyncio.run(main())
    assert Clerk.awork.__name__ == "awork"
    assert Clerk.awork.__qualname__ == "Clerk.awork"
    assert "`work`" in str(Clerk.awork.__doc__)


def test_work_goes_on_to_its_end_when_the_caller_is_cancelled() -> None:
    async def main() -> None:
        clerk = Clerk()
        task = asyncio.create_task(clerk.aslow())
        await asyncio.wait([task], timeout=0.01)
        task.cancel()
        await asyncio.wait([task])
        assert not clerk.done.is_set()
        clerk.gate.set()
        assert await asyncio.to_thread(clerk.done.wait, 20)

    asyncio.run(main())
