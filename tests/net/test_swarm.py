"""Offenders of every kind at a real host: they alone are ended, and leave nothing behind.

How quick it was meanwhile for others is measured by `python tools/swarm.py`, not here.
"""

from __future__ import annotations

import os

from tests.net.offenders import KINDS, TOO_MANY
from tests.net.swarm import (
    BULK,
    PATIENCE_S,
    URLS,
    besieged,
    eventually,
    healthy,
    resident_mib,
    sockets,
    swarm,
)

LONG = bool(os.environ.get("EMBEDQ_TEST_LONG"))
#: Offenders of each kind and protocol.
COUNT = 10 if LONG else 1
#: Deadlines of frames and of readers do not run.
NO_DEADLINES = """
from embedq.net.connection import Connection
Connection.overdue = lambda connection, now: None
"""


def test_only_offenders_are_ended_and_nothing_of_them_stays(tmp_path):
    with besieged(tmp_path) as (host, broker):
        base = sockets(host)
        with healthy(host.addresses, pause_s=0.02) as others:
            assert eventually(lambda: all(each.turns_s for each in others), PATIENCE_S)
            found = swarm(host, broker, COUNT)
            turns = [len(each.turns_s) for each in others]
            assert eventually(
                lambda: all(len(each.turns_s) > n for each, n in zip(others, turns, strict=True)),
                PATIENCE_S,
            )
        protocols = len(URLS)
        assert [each.broken for each in others] == [""] * protocols
        assert found.closed == dict.fromkeys(KINDS, protocols * COUNT)
        assert found.cut == protocols * COUNT + len(BULK)
        assert found.refused >= protocols * TOO_MANY
        # Half a frame, garbage and TLS are no protocol's; HTTP is answered by MMQP.
        assert found.faulty == (4 * protocols - 1) * COUNT
        assert (found.leased, found.lost) == (0, 0)
        assert eventually(lambda: sockets(host) == base, PATIENCE_S)
        if LONG:
            memory = []
            for _ in range(10):
                swarm(host, broker, COUNT)
                memory.append(resident_mib(host))
            assert min(memory[5:]) <= max(memory[:5]), "it grows from swarm to swarm"


def test_a_host_without_deadlines_is_noticed(tmp_path):
    with besieged(tmp_path, planted=NO_DEADLINES) as (host, broker):
        found = swarm(host, broker, 1, patience_s=1.0)
        assert found.cut == 0
        assert found.closed == {}
