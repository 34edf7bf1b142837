"""How a thread that waits is woken."""

import select
import threading

from embedq.ipc.nudge import Nudge


def waits(nudge: Nudge) -> bool:
    return not select.select([nudge.end], [], [], 0)[0]


def test_many_nudges_are_one_and_after_it_they_count_again() -> None:
    nudge = Nudge()
    assert waits(nudge)
    for _ in range(3):
        nudge.give()
    assert not waits(nudge)
    nudge.clear()
    assert waits(nudge)
    nudge.give()
    assert not waits(nudge)
    nudge.close()
    assert nudge.closed


def test_a_nudge_ends_the_waiting() -> None:
    nudge = Nudge()
    waiter = threading.Thread(target=nudge.wait, args=(60.0,))
    waiter.start()
    nudge.give()
    waiter.join(20)
    assert not waiter.is_alive()
    nudge.close()
    nudge.give()  # nobody is there any more: nothing happens
