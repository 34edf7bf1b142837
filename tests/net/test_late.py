"""What a client sent is stored, also if it has gone and the listener stops before that is done."""

from __future__ import annotations

import threading

from embedq import Broker
from embedq.net.names import Names
from tests.conformance.transport_suite import eventually, reset
from tests.net.client import Client
from tests.net.lines import LINES


def test_a_put_whose_queue_is_still_being_made_outlives_its_client(tmp_path, monkeypatch):
    asked, go_on = threading.Event(), threading.Event()
    find = Names._find

    def slowly(names, key):
        asked.set()
        assert go_on.wait(60)
        return find(names, key)

    monkeypatch.setattr(Names, "_find", slowly)
    with Broker(tmp_path / "q.db") as broker:
        listener = broker.listen("lines://127.0.0.1:0", transport=LINES)
        client = Client(listener)
        client.socket.sendall(b"PUT new x\n")
        assert asked.wait(60)
        reset(client)
        eventually(lambda: not listener.stats.connections, 60)
        # The stop begins, and waits; should it not have begun yet, nothing is wrong either.
        timer = threading.Timer(0.5, go_on.set)
        timer.start()
    timer.join()
    with Broker(tmp_path / "q.db") as broker:
        assert broker.queue("new").stats().stored == 1
