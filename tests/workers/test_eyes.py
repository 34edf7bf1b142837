"""What tells of changes ends without a word, and leaves nothing behind."""

from __future__ import annotations

import logging
import sys
import threading
from pathlib import Path

import pytest
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver, EventEmitter

from embedq.workers import eyes as module
from embedq.workers.eyes import Eyes

PATIENCE_S = 60.0
INOTIFY = "watchdog.observers.inotify"
INACTIVE = "InotifyEmitter.queue_events() called when the thread is inactive"

only_linux = pytest.mark.skipif(sys.platform != "linux", reason="only on Linux: inotify")


class Held:
    """An emitter that has just seen that it is to go on when it is told to end."""

    def __init__(self, emitter: EventEmitter) -> None:
        self.emitter = emitter
        self.is_there = threading.Event()
        self._is_ended = threading.Event()
        self._asked, self._ended = emitter.should_keep_running, emitter.on_thread_stop
        vars(emitter).update(
            should_keep_running=self._should_keep_running, on_thread_stop=self._on_thread_stop
        )

    def _should_keep_running(self) -> bool:
        goes_on = self._asked()
        if goes_on:
            self.is_there.set()
            assert self._is_ended.wait(PATIENCE_S)
        return goes_on

    def _on_thread_stop(self) -> None:
        self._ended()
        self._is_ended.set()


def emitter_of(observer: BaseObserver) -> EventEmitter:
    (emitter,) = observer.emitters
    return emitter


@pytest.fixture
def observers(monkeypatch) -> list[BaseObserver]:
    """The observers that eyes make."""
    made: list[BaseObserver] = []

    def make() -> BaseObserver:
        made.append(Observer())
        return made[-1]

    monkeypatch.setattr(module, "Observer", make)
    return made


def hold(observer: BaseObserver, folder: Path) -> Held:
    """Let something happen in the folder, and the emitter come to the point."""
    held = Held(emitter_of(observer))
    (folder / "a").write_text("a")
    assert held.is_there.wait(PATIENCE_S)
    return held


@only_linux
def test_eyes_that_are_closed_while_something_happens_tell_no_error(tmp_path, observers, caplog):
    eyes = Eyes([tmp_path], lambda _: None)
    assert eyes.open() is None
    held = hold(observers[0], tmp_path)
    eyes.close()
    held.emitter.join(PATIENCE_S)
    assert not held.emitter.is_alive()
    assert not caplog.records


@only_linux
def test_what_others_watch_and_other_errors_are_told_as_before(tmp_path, observers, caplog):
    """The first is how we know that the test above meets the moment it is about."""
    observer = Observer()
    observer.schedule(Eyes([], lambda _: None), str(tmp_path))
    observer.start()
    held = hold(observer, tmp_path)
    observer.stop()
    observer.join(PATIENCE_S)
    held.emitter.join(PATIENCE_S)
    assert [record.message for record in caplog.records] == [INACTIVE]
    caplog.clear()

    eyes = Eyes([tmp_path], lambda _: None)
    assert eyes.open() is None
    mine = emitter_of(observers[0])
    going_on = mine.queue_events
    log = logging.getLogger(INOTIFY)

    def tell(timeout: float) -> None:
        log.error("the disk is on fire")
        going_on(timeout)

    vars(mine).update(queue_events=tell)
    hold(observers[0], tmp_path)
    log.error(INACTIVE)  # of no thread that was told to end
    eyes.close()
    mine.join(PATIENCE_S)
    messages = [record.message for record in caplog.records]
    assert messages.count(INACTIVE) == 1
    assert "the disk is on fire" in messages


@pytest.mark.parametrize("folders", [["nowhere"], ["", "nowhere"]])
def test_eyes_that_cannot_see_leave_nothing_behind(tmp_path, folders):
    def held() -> tuple[set[threading.Thread], int]:
        fds = len(list(Path("/proc/self/fd").iterdir())) if sys.platform == "linux" else 0
        return set(threading.enumerate()), fds

    threads, fds = held()
    for _ in range(3):
        eyes = Eyes([tmp_path / name for name in folders], lambda _: None)
        assert eyes.open() is not None
        eyes.close()
        eyes.close()  # safe
    now, fds_now = held()
    assert now <= threads  # those of other tests may end meanwhile
    assert fds_now <= fds


def test_eyes_that_the_system_has_no_room_for_say_so(tmp_path, monkeypatch):
    def no_room() -> BaseObserver:
        raise OSError(24, "inotify instance limit reached")

    monkeypatch.setattr(module, "Observer", no_room)
    eyes = Eyes([tmp_path], lambda _: None)
    assert eyes.open() == "inotify instance limit reached"
    eyes.close()
