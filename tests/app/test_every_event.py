"""Every event of the catalogue is told by a broker when it happens, with all of its fields.

Knows: for each event, the shortest way to make it happen.
Does not know: when else it happens; the tests of each room do.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from embedq import Broker, Delivery, Queue
from embedq.broker.chunks import PlainBodies, encode
from embedq.broker.desk import Desk
from embedq.broker.staging import sweep
from embedq.catalogue import CATALOGUE, COUNTED
from embedq.clock import VirtualClock
from embedq.errors import StoreBusy, StoreFailed, StoreFull
from embedq.events import Notice
from embedq.net import Credentials, Identity, NetLimits
from embedq.storage.sqlite import SqliteStore
from embedq.workers import loop as loop_module
from tests.conformance.transport_suite import dial, eventually, is_cut
from tests.net.lines import LINES

SOON = 20.0


class Scene:
    """A broker on a file, and somebody who listens to everything."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.path = folder / "q.db"
        self.patch = patch
        self.heard: list[Notice] = []
        self.again()

    def again(self, *, time_passes: bool = False) -> None:
        """Go on with another broker on the same file."""
        self.clock = VirtualClock()
        clock = None if time_passes else self.clock
        self.broker = Broker(self.path, clock=clock, grace="5s")
        self.broker.on("*", self.heard.append)
        self.orders: Queue[Any] = self.broker.queue("orders")

    @property
    def desk(self) -> Desk:
        desk = self.broker.desk
        assert isinstance(desk, Desk)
        return desk

    def put_and_get(self, **options: Any) -> Delivery[Any]:
        self.orders.put("x", **options)
        return self.orders.get(0)

    def die(self) -> None:
        """Let go of the file as a killed process does."""
        desk = self.desk
        desk.upkeep.stop()
        desk.writer.close()
        desk.store.close(clean=False)
        desk.events.close()

    def consume(self, handler: Callable[..., object], until: str, **options: Any) -> None:
        """Run a consumer with one message until an event was told."""
        told = threading.Event()
        self.broker.on(until, lambda _: told.set())
        self.orders.consumer(**options)(handler)
        with self.broker:
            self.orders.put("x")
            assert told.wait(SOON)

    def sql(self, statement: str) -> None:
        assert isinstance(self.desk.store, SqliteStore)
        with self.desk.writer.lock:
            self.desk.store.connection.execute(statement)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    made = Scene(tmp_path, monkeypatch)
    yield made
    made.broker.stop()


def leave_open(scene: Scene) -> None:
    scene.put_and_get()
    scene.die()
    scene.again()
    scene.desk.upkeep.count()
    scene.orders.get(0).ack()


def end_a_lease(scene: Scene) -> None:
    scene.put_and_get()
    scene.clock.advance(60)
    scene.desk.end_leases()


def expire(scene: Scene) -> None:
    scene.orders.group(start="beginning")
    scene.orders.put("x", ttl="1s")
    scene.clock.advance(2)
    scene.desk.upkeep.round()


def damage(scene: Scene) -> None:
    scene.orders.put("x")
    scene.sql("UPDATE msg SET body=x'00'")
    assert scene.orders.get_many(1) == []


def redrive(scene: Scene) -> None:
    scene.put_and_get().reject()
    scene.orders.dead.redrive()


def let_go(scene: Scene) -> None:
    scene.orders.put("x")
    scene.desk.office.feed_register("orders", "spark", max_hold_s=1.0)
    scene.clock.advance(2.0)
    scene.desk.upkeep.round()


def drop(scene: Scene) -> None:
    small = scene.broker.queue("small", max_length=1, when_full="drop_oldest")
    small.put("x")
    small.put("y")


def stage(scene: Scene) -> None:
    scene.orders.put("x")
    chunk = encode(PlainBodies(0, [b"1"]))
    scene.desk.office.stage_put("orders", "sink", "token", 0, chunk)
    scene.clock.advance(scene.desk.limits.stage_kept_s + 1)
    sweep(scene.desk)


def strand(scene: Scene) -> None:
    scene.orders.put("x")
    scene.orders.group("late", start="end")


def change(scene: Scene) -> None:
    scene.orders.put("x")
    scene.broker.queue("orders", max_attempts=9)


def watch(scene: Scene) -> None:
    """Watch a folder with a file that nobody can read, and one that is not there."""
    told = {name: threading.Event() for name in CATALOGUE if name.startswith(("fold", "file_"))}
    scene.broker.on("*", lambda notice: told.get(notice.name, threading.Event()).set())
    (scene.path.parent / os.fsdecode(b"\xff.txt")).write_text("x")
    scene.orders.watch_folder(scene.path.parent, "*.txt")
    scene.orders.watch_folder(scene.path.parent / "nowhere")
    with scene.broker:
        assert all(event.wait(SOON) for event in told.values())


def fail(_body: object) -> None:
    raise ValueError("no")


def busy(scene: Scene) -> None:
    store = scene.desk.store
    commit, left = store.commit, [1]

    def handler(_body: object) -> None:
        scene.patch.setattr(store, "commit", refusing)

    def refusing(ops: Any) -> None:
        if left.pop() if left else 0:
            raise StoreBusy("another program holds the lock")
        commit(ops)

    scene.consume(handler, "consumer_error")


def time_out(scene: Scene, until: str) -> None:
    scene.again(time_passes=True)
    end = threading.Event()

    def handler(_body: object) -> None:
        end.wait(SOON)

    scene.broker.on(until, lambda _: end.set())
    scene.consume(handler, until, timeout=0.05)


def block(scene: Scene) -> None:
    scene.again(time_passes=True)
    scene.patch.setattr(loop_module, "BLOCKED_S", 0.1)
    end = threading.Event()
    scene.broker.on("loop_blocked", lambda _: end.set())

    async def handler(_body: object) -> None:
        end.wait(SOON)

    scene.consume(handler, "loop_blocked")


def fill(scene: Scene) -> None:
    full = [StoreFull("the disk has no room")]

    def look() -> None:
        if full:
            raise full.pop()

    scene.patch.setattr(scene.desk.store, "look_around", look)
    scene.desk.upkeep.round()
    scene.desk.upkeep.round()


def break_down(scene: Scene) -> None:
    scene.orders.put("x")
    scene.desk.store.stop(StoreFailed("the disk is gone"))
    scene.desk.upkeep.round()


def work(scene: Scene) -> None:
    scene.consume(lambda _body: None, "consumer_registered")


class Nobody:
    def identify(self, credentials: Credentials) -> Identity | None:
        return None


def listen(scene: Scene) -> None:
    """Serve clients that cannot log in, come too many, send too slowly, break the protocol."""
    limits = NetLimits(connections=1, frame_s=5)

    def connect() -> socket.socket:
        eventually(lambda: not listener.stats.connections)
        return dial(listener)

    with scene.broker:
        url = "lines://127.0.0.1:0"
        listener = scene.broker.listen(url, transport=LINES, limits=limits, auth=Nobody())
        with connect() as client:
            client.sendall(b"LOGIN me\n")
            assert is_cut(client)
        with connect() as client:
            client.sendall(b"PUT")
            eventually(lambda: listener.stats.bytes_in > len("LOGIN me\n"))
            with dial(listener) as another:
                assert is_cut(another)
            scene.clock.advance(6)
            listener.look()
            assert is_cut(client)
        with connect() as client:
            client.sendall(b"nonsense\n")
            assert is_cut(client)


def pause(scene: Scene) -> None:
    scene.orders.pause()
    scene.orders.resume()


SCENES: dict[str, Callable[[Scene], object]] = {
    "put": lambda scene: scene.orders.put("x"),
    "delivered": lambda scene: scene.put_and_get(),
    "acked": lambda scene: scene.put_and_get().ack(),
    "retried": lambda scene: scene.put_and_get().nack(),
    "lease_expired": end_a_lease,
    "released": lambda scene: scene.put_and_get().release(),
    "crashed_delivery": leave_open,
    "suspect": leave_open,
    "dead": lambda scene: scene.put_and_get().reject("bad"),
    "expired": expire,
    "corrupt": damage,
    "redriven": redrive,
    "dropped": drop,
    "stage_swept": stage,
    "purged": lambda scene: scene.orders.group(start="beginning").purge(),
    "let_go": let_go,
    "consumer_registered": work,
    "consumer_error": busy,
    "handler_failed": lambda scene: scene.consume(fail, "handler_failed"),
    "handler_timeout": lambda scene: time_out(scene, "handler_timeout"),
    "stuck_slot": lambda scene: time_out(scene, "stuck_slot"),
    "slot_replaced": lambda scene: time_out(scene, "slot_replaced"),
    "loop_blocked": block,
    "listening": listen,
    "listener_closed": listen,
    "connection_refused": listen,
    "connection_faulty": listen,
    "connection_cut": listen,
    "login_failed": listen,
    "queue_declared": lambda scene: scene.orders.put("x"),
    "settings_changed": change,
    "stranded": strand,
    "paused": pause,
    "resumed": pause,
    "folder_watched": watch,
    "folder_trouble": watch,
    "file_unreadable": watch,
    "started": lambda scene: scene.orders.put("x"),
    "stopped": lambda scene: scene.orders.put("x"),
    "unclean_start": leave_open,
    "drain_started": work,
    "drain_finished": work,
    "store_full": fill,
    "store_recovered": fill,
    "store_failed": break_down,
}


#: Told about other processes: the scenes of one process cannot make them (tests/ipc).
BETWEEN_PROCESSES = frozenset(
    """
    client_lost client_refused connected not_hosted not_served reachable
    worker_died worker_recycled worker_refused
    """.split()
)

#: Told of Spark jobs, which need a session (tests/spark/test_jobs.py looks at their fields).
OF_SPARK = frozenset({"job_cancelled", "job_progress", "spark_lost"})


def test_every_event_has_a_scene() -> None:
    assert set(SCENES) == set(CATALOGUE) - BETWEEN_PROCESSES - OF_SPARK


@pytest.mark.parametrize("name", SCENES)
def test_an_event_is_told_when_it_happens_with_all_its_fields(scene: Scene, name: str) -> None:
    SCENES[name](scene)
    spec = CATALOGUE[name]
    if spec.level == COUNTED:
        assert scene.orders.stats().events[name] == 1
        return
    counted = scene.desk.events.count(name) if scene.broker.running else None
    scene.broker.stop()
    told = [notice for notice in scene.heard if notice.name == name]
    assert told, [notice.name for notice in scene.heard]
    assert counted is None or counted >= len(told)
    for notice in told:
        assert set(notice.fields) == set(spec.fields)
        assert None not in notice.fields.values()
        assert "None" not in notice.text.splitlines()[0]
        assert str(next(iter(notice.fields.values()))) in notice.text


def test_a_field_that_is_forgotten_is_noticed(scene: Scene) -> None:
    scene.patch.setitem(
        CATALOGUE,
        "paused",
        CATALOGUE["paused"]._replace(fields=("queue", "who")),
    )
    with pytest.raises(AssertionError):
        test_an_event_is_told_when_it_happens_with_all_its_fields(scene, "paused")
