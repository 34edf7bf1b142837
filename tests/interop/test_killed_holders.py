"""The host is killed while clients of listeners hold messages: an attempt each, and no crash."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from embedq import Broker
from embedq.lifecycle import Outcome
from tests.interop.host import hosting
from tests.interop.phpmq_client import PhpmqClient
from tests.interop.sspq_client import Whole
from tests.ipc.abroad import free_port, make_keys

URLS = ("sspq://127.0.0.1:0?queue=counted", "phpmq://127.0.0.1:0")
#: Deliveries that a message may have: more than crashes (3).
MOST = 5
BODIES = [b"first", b"second"]


def hold_and_kill(path: Path | str, meanwhile: Callable[[], object] = lambda: None) -> None:
    """Let a client of each protocol hold two messages, and kill the process that listens."""
    with hosting(path, *URLS) as host:
        sspq, phpmq = host.addresses
        receivers = [Whole(sspq), Whole(sspq)]
        assert [each.receive() for each in receivers] == BODIES
        window = PhpmqClient(phpmq)
        window.consume(b"endless", 2)
        assert [window.receive().content for _ in BODIES] == BODIES
        meanwhile()
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


@pytest.mark.parametrize("takes_over", [True, False])
def test_a_process_that_listens_is_killed_behind_its_host_and_suspects_nothing(
    tmp_path: Path, *, takes_over: bool
) -> None:
    path = tmp_path / "q.db"
    with hosting(path) as first:
        with Broker(path, role="client") as broker:
            for body in BODIES:
                broker.queue("counted").put(body, max_attempts=MOST)
                broker.queue("endless", max_attempts=None).put(body)

        def end_the_host() -> None:
            first.kill()
            if takes_over:
                with Broker(path, role="client") as broker:  # served by the process that listens
                    assert broker.queue("endless").stats().length == len(BODIES)

        hold_and_kill(path, end_the_host)
    told: list[str] = []
    with Broker(path) as broker:
        broker.on("*", lambda event: told.append(event.name))
        for name in ("counted", "endless"):
            got = [broker.queue(name).get(60) for _ in BODIES]
            assert sorted(each.body for each in got) == sorted(BODIES)
            assert {each.attempt for each in got} == {2}
    assert not {"suspect", "crashed_delivery"} & set(told)


def test_a_process_that_listens_for_a_host_on_another_machine_is_killed_and_suspects_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, endpoint = make_keys(tmp_path / "keys", "ada"), f"tcp://127.0.0.1:{free_port()}"
    monkeypatch.setenv("EMBEDQ_KEYS", str(folder))
    told: list[str] = []
    with Broker(tmp_path / "q.db", endpoint=endpoint) as broker:
        broker.backing.wait_until_served()
        broker.on("*", lambda event: told.append(event.name))
        for body in BODIES:
            broker.queue("counted").put(body, max_attempts=MOST)
            broker.queue("endless", max_attempts=None).put(body)
        hold_and_kill(endpoint)
        for name in ("counted", "endless"):
            got = [broker.queue(name).get(60) for _ in BODIES]
            assert sorted(each.body for each in got) == sorted(BODIES)
            assert {each.attempt for each in got} == {2}
    assert "client_lost" in told
    assert not {"suspect", "crashed_delivery"} & set(told)
