"""What handlers note is about their own leases, also while those get new names."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from embedq.broker.endings import DONE, RELEASED, Ending
from embedq.ipc import frames
from embedq.ipc.marks import Marks, Progress, progress_of, read_marks
from embedq.ipc.remote import RemoteDesk
from tests.ipc.told import queue, wire_lease

OLD, NEW = 2, 17


class Client(RemoteDesk):
    """A client that holds one lease of host 1, without a connection."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "q.db", find=lambda: None)
        self._marks = self.marks = Marks.create(folder, self.token, 4)
        self.marks.renew(1)
        self._epoch = 1
        (self.lease,) = self.holdings.add(queue().groups[0], [wire_lease(OLD)], 0.0)
        self.started(self.lease)

    def meets_the_next_host(self) -> None:
        """Hear what the next host calls the lease."""
        self.holdings.held()
        self._welcomed(frames.Welcome(1, 2, 1, 1, bytes(16), 0, [(0, NEW)], 4))


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    made = Client(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("moment", ["reissued", "marked"])
def test_what_ends_while_its_lease_gets_a_new_name_is_noted_under_that(
    client: Client, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = getattr(client.holdings, moment)
    handler = threading.Thread(target=client.ended, args=([(client.lease, DONE)],))

    def while_it_ends(*arguments: object) -> object:
        found = named(*arguments)
        handler.start()
        handler.join(0.05)
        return found

    monkeypatch.setattr(client.holdings, moment, while_it_ends)
    client.meets_the_next_host()
    handler.join()
    assert progress_of(read_marks(client.marks.path)) == {NEW: Progress.DONE}


@pytest.mark.parametrize("ending", [DONE, RELEASED])
def test_a_handler_that_lost_its_lease_notes_nothing_in_the_place_of_another(
    client: Client, ending: Ending
) -> None:
    told = msgspec.structs.replace(wire_lease(NEW, 2), mark=client.lease.mark)
    (other,) = client.holdings.add(queue().groups[0], [told], 0.0)
    client.started(other)
    client.ended([(client.lease, ending)])
    assert progress_of(read_marks(client.marks.path)) == {NEW: Progress.STARTED}
    client.ended([(other, DONE)])
    assert progress_of(read_marks(client.marks.path)) == {NEW: Progress.DONE}
