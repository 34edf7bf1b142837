"""An orderly end is the only sign of success: who is turned away at the door must not see one."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import pytest

from embedq import Broker
from embedq.net import NetLimits
from embedq_transports.mmqp import MMQP
from tests.interop.mmqp_client import Mack
from tests.transports.mmqp.test_session import URL, until


@pytest.fixture
def broker():
    with Broker(":memory:") as broker:
        broker.queue("orders").stats()  # so that it is there
        yield broker


def ask_late(listener, request):
    """Send once we are refused, and read on, as a client that takes an orderly end for success.

    We have not sent anything before: nothing is unread that would reset us anyway. The reset may
    come while we still connect.
    """
    with socket.create_connection(listener.address, 30) as sock:
        until(lambda: listener.stats.refused)
        sock.sendall(request)
        return sock.recv(1)


@pytest.mark.parametrize("door", ["connections", "connections_per_peer", "address"])
def test_a_message_of_a_client_that_is_refused_does_not_look_stored(broker, door):
    if door == "address":
        listener = broker.listen(URL, transport=MMQP, allow=["10.0.0.0/8"])
    else:
        listener = broker.listen(URL, transport=MMQP, limits=NetLimits(**{door: 1}))
    request = Mack(listener.address).request("orders", "hello")
    with ExitStack() as stack:
        if door != "address":  # one may be there
            stack.enter_context(socket.create_connection(listener.address, 30))
        with pytest.raises(OSError, match=r"reset|Broken pipe"):
            ask_late(listener, request)
    assert broker.queue("orders").stats().stored == 0
