"""Callers that meet share commits, also when each of them comes back at once."""

import threading
from pathlib import Path

from embedq.broker.endings import DONE
from embedq.broker.host import open_engine
from embedq.broker.leases import Lease


def test_quick_consumers_do_not_queue_up_to_commit_one_by_one(tmp_path: Path) -> None:
    with open_engine(tmp_path / "q.db", upkeep=False) as desk:
        queue = desk.queue("q")
        group = desk.group(queue)
        count, slots = 800, 4
        desk.put_many(queue, [b"body"] * count)
        before = desk.writer.groups

        def consume() -> None:
            done: list[Lease] = []
            while leases := desk.exchange(group, [(lease, DONE) for lease in done], 1).leases:
                done = list(leases)

        threads = [threading.Thread(target=consume) for _ in range(slots)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not queue.stored
        # Where a commit is fast some are alone; queued up at the lock all of them would be.
        assert desk.writer.groups - before < 0.9 * count
