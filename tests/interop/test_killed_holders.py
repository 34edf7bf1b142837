"""The host is killed while clients of listeners hold messages: an attempt each, and no crash."""

from __future__ import annotations

from pathlib import Path

from embedq import Broker
from embedq.lifecycle import Outcome
from tests.interop.host import hosting
from tests.interop.phpmq_client import PhpmqClient
from tests.interop.sspq_client import Whole

URLS = ("sspq://127.0.0.1:0?queue=counted", "phpmq://127.0.0.1:0")
#: Deliveries that a message may have: more than crashes (3).
MOST = 5
BODIES = [b"first", b"second"]


def hold_and_kill(path: Path) -> None:
    """Let a client of each protocol hold two messages, and kill the host."""
    with hosting(path, *URLS) as host:
        sspq, phpmq = host.addresses
        receivers = [Whole(sspq), Whole(sspq)]
        assert [each.receive() for each in receivers] == BODIES
        window = PhpmqClient(phpmq)
        window.consume(b"endless", 2)
        assert [window.receive().content for _ in BODIES] == BODIES
        host.kill()
        for receiver in receivers:
            receiver.close()
        window.close()


def test_what_clients_held_when_the_host_was_killed_has_used_an_attempt_and_is_no_suspect(
    tmp_path: Path,
) -> None:
    path = tmp_path / "q.db"
    with Broker(path) as broker:
        for body in BODIES:
            broker.queue("counted").put(body, max_attempts=MOST)
            broker.queue("endless", max_attempts=None).put(body)
    for _ in range(MOST):
        hold_and_kill(path)
    told: list[str] = []
    with Broker(path) as broker:
        broker.on("*", lambda event: told.append(event.name))
        held = broker.queue("endless").get_many(2)
        assert [each.attempt for each in held] == [MOST + 1] * 2
        queue = broker.queue("counted")
        assert queue.get_many(2) == []
        shown = [queue.dead.show(letter.id) for letter in queue.dead.list()]
    assert [(each.body, each.reason) for each in shown] == [
        (body, "max_attempts") for body in BODIES
    ]
    ends = {(each.outcome, each.error and each.error.type) for each in shown[0].attempts}
    assert len(shown[0].attempts) == MOST
    assert ends == {(Outcome.TIMED_OUT, "HostDied")}
    assert not {"suspect", "crashed_delivery"} & set(told)
