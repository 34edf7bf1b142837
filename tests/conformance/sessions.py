"""Theme: sessions are found again by their token, with what their puts were answered."""

from __future__ import annotations

from embedq.lifecycle import Outcome
from embedq.storage import answered
from embedq.storage.answered import Answer
from embedq.storage.departed import RemoveSessions
from embedq.storage.ops import (
    SESSION_KEPT_MS,
    CloseSession,
    Fail,
    OpenSession,
    PutRows,
    Reissue,
    Remember,
)
from tests.conformance.atomicity import commit_and_fail
from tests.conformance.scenario import (
    ENDED,
    PUT_AT,
    RETRY_AT,
    STARTED,
    Scenario,
    Theme,
    plain,
    row,
)

TOKEN = bytes(range(16))


def again(scene: Scenario, token: bytes = TOKEN, *, now: int = STARTED) -> tuple[int, dict]:
    op = scene.do(OpenSession("again", now, token))
    return op.id, answered.decode(op.requests)


class Sessions(Theme):
    def test_a_token_is_the_same_session_for_the_next_host(self, scene: Scenario) -> None:
        first = scene.do(OpenSession("client-1", STARTED, TOKEN))
        other = scene.do(OpenSession("client-2", STARTED, bytes(16)))
        nameless = [scene.session("host"), scene.session("host")]
        assert len({first.id, other.id, *nameless}) == 4
        assert first.requests == b""
        scene.reopen()
        assert again(scene) == (first.id, {})
        assert scene.store.session_names([first.id, other.id]) == {
            first.id: "again",
            other.id: "client-2",
        }

    def test_a_put_and_its_number_are_one_commit(self, scene: Scenario) -> None:
        queue = scene.queue()
        session = scene.do(OpenSession("client", STARTED, TOKEN)).id
        put, more = plain(queue, b"a", b"b", b"c"), plain(queue, b"d")
        rows = PutRows(queue, PUT_AT, [row(dedup_key="k", dedup_until=1 << 40)] * 2)
        known: dict[int, Answer] = {3: (17, 2), 4: ([1, 2], [1])}
        fresh = [(5, put, 0, 1), (6, put, 1, 2), (7, more, 0, 1), (8, put, 3, 0)]
        scene.commit(put, more, rows, Remember(session, known, fresh, [(9, rows)]))
        scene.reopen()
        number, kept = again(scene)
        assert number == session
        assert kept == {
            3: (17, 2),
            4: ([1, 2], [1]),
            5: (put.first, 1),
            6: (put.first + 1, 2),
            7: (more.first, 1),
            8: (0, 0),
            9: (rows.seqs, [1]),
        }

    def test_a_number_is_not_kept_without_its_put(self, scene: Scenario) -> None:
        queue = scene.queue()
        session = scene.do(OpenSession("client", STARTED, TOKEN)).id
        put = plain(queue, b"a")
        scene.commit(put, Remember(session, {}, [(1, put, 0, 1)]))
        lost = plain(queue, b"b")
        commit_and_fail(scene.store, [lost, Remember(session, {}, [(2, lost, 0, 1)])], ValueError)
        assert again(scene)[1] == {1: (put.first, 1)}

    def test_what_is_remembered_replaces_what_was(self, scene: Scenario) -> None:
        session = scene.do(OpenSession("client", STARTED, TOKEN)).id
        scene.do(Remember(session, {1: (1, 1), 2: (2, 1)}))
        scene.do(Remember(session, {2: (2, 1)}))
        assert again(scene)[1] == {2: (2, 1)}

    def test_a_closed_session_is_not_found_again_and_keeps_its_name(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        session = scene.do(OpenSession("client", STARTED, TOKEN)).id
        scene.start(group, *scene.put(queue), session=session)
        scene.do(Remember(session, {1: (1, 1)}))
        scene.do(CloseSession(session))
        scene.do(Remember(session, {2: (2, 1)}))  # too late
        scene.do(CloseSession(12_345))
        number, kept = again(scene)
        assert number != session
        assert kept == {}
        assert scene.store.session_names([session]) == {session: "client"}

    def test_of_a_session_to_which_nothing_was_given_nothing_stays(self, scene: Scenario) -> None:
        host, sessions = scene.session("host"), []
        for number in range(3):
            session = scene.do(OpenSession("task", STARTED, bytes([number]))).id
            scene.do(OpenSession("task", STARTED, bytes([number])))  # it reconnects
            scene.do(CloseSession(session))
            scene.do(Remember(session, {1: (1, 1)}))  # too late
            sessions.append(session)
        assert len({host, *sessions}) == 4  # no number is given again
        assert scene.store.session_names([host, *sessions]) == {host: "host"}

    def test_ended_sessions_are_known_and_those_that_nothing_names_can_be_removed(
        self, scene: Scenario
    ) -> None:
        queue, group = scene.queue_and_group()
        first, second = scene.put(queue, 2)
        host = scene.session("host")
        scene.start(group, first, session=host)
        scene.reopen()
        names, sessions = ["acked", "open", "here", "back"], []
        for number, name in enumerate(names):
            sessions.append(scene.do(OpenSession(name, STARTED, bytes([number]))).id)
        acked, opened, here, back = sessions
        third = scene.put(queue)[0]
        scene.start(group, second, session=acked)
        scene.start(group, third, session=opened)
        scene.do(CloseSession(acked))
        scene.do(CloseSession(opened))
        assert scene.store.closed_sessions() == {host, acked, opened}
        assert scene.store.named_sessions() == {host, acked, opened}
        scene.ack(group, second)
        assert scene.store.named_sessions() == {host, opened}
        assert scene.do(RemoveSessions([acked, here, back, 12_345])).removed == 1
        scene.reopen()
        assert scene.store.closed_sessions() == {host, opened}
        assert set(scene.store.session_names([host, *sessions])) == {host, opened, here, back}

    def test_what_a_session_had_of_an_earlier_host_is_not_known(self, scene: Scenario) -> None:
        session = scene.do(OpenSession("client", STARTED, TOKEN)).id
        scene.reopen()
        assert again(scene)[0] == session
        scene.do(CloseSession(session))
        assert scene.store.session_names([session]) == {session: "again"}
        assert scene.store.find_sessions([TOKEN]) == {}

    def test_tokens_of_long_ago_are_forgotten(self, scene: Scenario) -> None:
        old = scene.do(OpenSession("old", STARTED, TOKEN)).id
        later = STARTED + SESSION_KEPT_MS
        for epoch in range(3):
            scene.do(OpenSession("new", later + 1, bytes([epoch])))
            if epoch < 2:
                scene.reopen()
        assert again(scene, now=later)[0] != old

    def test_tokens_of_the_last_host_are_kept_however_old(self, scene: Scenario) -> None:
        old = scene.do(OpenSession("old", STARTED, TOKEN)).id
        scene.reopen()
        scene.do(OpenSession("new", STARTED + 2 * SESSION_KEPT_MS, bytes(16)))
        assert again(scene)[0] == old

    def test_young_tokens_are_kept_over_many_hosts(self, scene: Scenario) -> None:
        old = scene.do(OpenSession("old", STARTED, TOKEN)).id
        for epoch in range(4):
            scene.reopen()
            scene.do(OpenSession("new", STARTED + SESSION_KEPT_MS, bytes([epoch])))
        assert again(scene)[0] == old

    def test_sessions_are_found_by_their_tokens(self, scene: Scenario) -> None:
        first = scene.do(OpenSession("a", STARTED, TOKEN)).id
        second = scene.do(OpenSession("b", STARTED, bytes(16))).id
        scene.session("host")
        scene.do(CloseSession(second))
        scene.reopen()
        assert scene.store.find_sessions([TOKEN, bytes(16), b"x"]) == {TOKEN: first}

    def test_open_deliveries_are_given_out_anew_under_new_counters(self, scene: Scenario) -> None:
        queue, group = scene.queue_and_group()
        first, second, third = scene.put(queue, 3)
        scene.start(group, first, second, third)
        scene.do(Fail(group, third, 1, ENDED, Outcome.FAILED, RETRY_AT))
        scene.reopen()
        epoch = scene.store.epoch
        scene.do(Reissue([(first, group, 1, 71), (second, group, 2, 72), (third, group, 1, 73)]))
        seqs = [first, second, third]
        assert scene.store.open_deliveries(group, seqs) == {first: 71}
        latest = scene.store.latest(group, first)
        assert latest is not None
        assert (latest.epoch, latest.attempt, latest.ended) == (epoch, 1, None)
        other = scene.store.latest(group, second)
        assert other is not None
        assert other.epoch == epoch - 1
