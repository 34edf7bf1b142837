"""Files of a watched folder become messages: each content of a path once, across everything."""

from __future__ import annotations

import hashlib
import itertools
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from embedq import Broker, InvalidOption, Queue, WatchedFile
from embedq.app import folders as module
from embedq.message import Draft
from tests.processes import line_of

PATIENCE_S = 60.0
#: Longer than it takes until a change would have become a message.
WHILE_S = 1.0


def until(true: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)  # a poll with a deadline


class Inbox:
    """A folder, and a broker that watches it now and then."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.folder = home / "inbox"
        self.folder.mkdir()
        self.heard: list[tuple[str, dict]] = []

    def write(self, name: str, text: str = "x") -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        # Moved into place: a loaded machine may pause between an open and its write for longer
        # than a short `settle`, and the empty file is a content, too.
        hidden = self.home / f".{path.name}.new"
        hidden.write_text(text)
        return hidden.replace(path)

    @contextmanager
    def watched(
        self, pattern: str = "*", settle: str = "50ms", **options
    ) -> Iterator[Queue[WatchedFile]]:
        broker = Broker(self.home / "q.db")
        files = broker.queue("files", WatchedFile)
        files.watch_folder(self.folder, pattern, settle=settle, **options)
        broker.on("*", lambda notice: self.heard.append((notice.name, dict(notice.fields))))
        started = self.told("folder_watched")
        with broker:
            until(lambda: self.told("folder_watched") > started or self.told("folder_trouble"))
            yield files

    def told(self, name: str) -> int:
        return [event for event, _ in self.heard].count(name)

    def taken(self, files: Queue[WatchedFile]) -> str:
        """Take the next message and return its file's name and first letters of its hash."""
        with files.get(PATIENCE_S) as delivery:
            body = delivery.body
        return os.path.relpath(body.path, self.folder.resolve())

    def nothing(self, files: Queue[WatchedFile]) -> None:
        assert files.get_many(1, WHILE_S) == []


@pytest.fixture
def inbox(tmp_path: Path) -> Inbox:
    return Inbox(tmp_path)


def test_a_message_says_what_the_file_is(inbox):
    path = inbox.write("a.csv", "1;2\n")
    with inbox.watched() as files, files.get(PATIENCE_S) as delivery:
        file = delivery.body
        assert file == WatchedFile(
            str(path.resolve()),
            4,
            path.stat().st_mtime_ns / 1e9,
            hashlib.sha256(b"1;2\n").hexdigest(),
        )


def test_new_changed_and_moved_files_are_found_while_it_runs(inbox):
    with inbox.watched("*.csv") as files:
        inbox.write("a.csv", "one")
        assert inbox.taken(files) == "a.csv"
        inbox.write("a.csv", "two")
        assert inbox.taken(files) == "a.csv"
        inbox.write("b.part", "whole").rename(inbox.folder / "b.csv")
        assert inbox.taken(files) == "b.csv"
        (inbox.folder / "a.csv").unlink()
        (inbox.folder / "b.csv").touch()
        inbox.nothing(files)


def test_after_a_restart_only_what_has_changed_meanwhile_comes(inbox):
    inbox.write("a", "one")
    inbox.write("b", "one")
    with inbox.watched() as files:
        assert {inbox.taken(files), inbox.taken(files)} == {"a", "b"}
    inbox.write("b", "two")
    inbox.write("c", "one")
    (inbox.folder / "a").touch()
    with inbox.watched() as files:
        assert {inbox.taken(files), inbox.taken(files)} == {"b", "c"}
        inbox.nothing(files)


def test_what_was_put_is_remembered_beyond_the_dedup_window(inbox):
    inbox.write("a", "one")
    with inbox.watched() as files:
        files.broker.queue("files", dedup_window="1s")
        inbox.taken(files)
    with sqlite3.connect(inbox.home / "q.db") as file:
        rows = file.execute("SELECT expires FROM dedup").fetchall()
    file.close()
    assert [until_ms > (time.time() + 90 * 365 * 86_400) * 1000 for (until_ms,) in rows] == [True]


def test_a_file_that_is_being_written_is_waited_for(inbox):
    with (
        inbox.watched(existing=True, settle="200ms") as files,
        (inbox.folder / "slow").open("w") as file,
    ):
        moments = [time.monotonic()]
        for _ in range(15):
            file.write("part ")
            file.flush()
            moments.append(time.monotonic())
            time.sleep(0.02)  # a writer that takes its time
        found = [each.body.size for each in files.peek(20)]
        moments.append(time.monotonic())
        pause = max(later - earlier for earlier, later in itertools.pairwise(moments))
        assert not found or pause > 0.15  # the machine stood still: the file was at rest
        file.close()
        while 75 not in found:
            with files.get(PATIENCE_S) as delivery:
                found.append(delivery.body.size)
        assert len(found) == 1 or pause > 0.15
        inbox.nothing(files)


def test_folders_below_hidden_files_and_links_out(inbox):
    secret = inbox.home / "secret.txt"
    secret.write_text("x")
    inbox.write("deep/er/a.txt")
    inbox.write(".hidden.txt")
    inbox.write(".git/b.txt")
    (inbox.folder / "out.txt").symlink_to(secret)
    (inbox.folder / "loop").symlink_to(inbox.folder)
    (inbox.folder / "in.txt").symlink_to(inbox.folder / "deep/er/a.txt")
    (inbox.folder / "gone.txt").symlink_to(inbox.folder / "nowhere")
    os.mkfifo(inbox.folder / "pipe.txt")
    with inbox.watched("*.txt", recursive=True) as files:
        assert {inbox.taken(files), inbox.taken(files)} == {"deep/er/a.txt", "in.txt"}
        inbox.write("new/c.txt")
        assert inbox.taken(files) == "new/c.txt"
        inbox.nothing(files)


def test_what_is_there_at_the_start_can_be_left_alone(inbox):
    inbox.write("old")
    with inbox.watched(existing=False) as files:
        inbox.nothing(files)
        inbox.write("old", "changed")
        assert inbox.taken(files) == "old"


def test_the_database_in_the_folder_is_no_file_of_it(inbox):
    inbox.home = inbox.folder
    with inbox.watched() as files:
        inbox.write("a")
        assert inbox.taken(files) == "a"
        inbox.nothing(files)


def test_a_folder_that_comes_later_or_is_replaced_is_watched(inbox):
    inbox.folder.rmdir()
    with inbox.watched() as files:
        assert inbox.told("folder_trouble") == 1
        inbox.write("a")
        assert inbox.taken(files) == "a"
        inbox.folder.rename(inbox.home / "former")
        until(lambda: inbox.told("folder_trouble") == 2)
        inbox.write("b")
        assert inbox.taken(files) == "b"


@pytest.mark.skipif(os.getuid() == 0, reason="only on accounts that permissions bind")
def test_a_file_without_permission_is_told_and_found_once_it_can_be_read(inbox):
    path = inbox.write("a")
    path.chmod(0)
    with inbox.watched() as files:
        until(lambda: inbox.told("file_unreadable"))
        path.chmod(0o600)
        assert inbox.taken(files) == "a"


def test_a_full_queue_is_waited_for(inbox):
    for number in range(3):
        inbox.write(str(number))
    broker = Broker(inbox.home / "q.db")
    broker.queue("files", WatchedFile, max_length=1, when_full="reject").put(
        WatchedFile("first", 0, 0.0, "")
    )
    broker.stop()
    with inbox.watched() as files:
        until(lambda: inbox.told("folder_trouble"))
        files.purge()
        files.broker.queue("files", max_length=10)
        assert {inbox.taken(files) for _ in range(3)} == {"0", "1", "2"}


OTHER = """
import sys
from embedq import Broker, WatchedFile
broker = Broker(sys.argv[1])
files = broker.queue("files", WatchedFile)
files.watch_folder(sys.argv[2], settle="20ms")
broker.on("folder_watched", lambda _: print("ready", flush=True))
with broker:
    sys.stdin.read()
"""


def test_two_processes_give_each_file_once(inbox):
    with inbox.watched() as files:
        command = [sys.executable, "-c", OTHER, str(inbox.home / "q.db"), str(inbox.folder)]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as other:
            try:
                assert line_of(other) == "ready\n"
                for number in range(30):
                    inbox.write(str(number), "same")
                names = [inbox.taken(files) for _ in range(30)]
                assert sorted(map(int, names)) == list(range(30))
                inbox.nothing(files)
            finally:
                other.kill()


def test_a_watch_that_forgot_the_key_would_be_caught(inbox, monkeypatch):
    """The planted bug: what was put is remembered in memory only."""
    draft = module.FolderWatch._draft
    monkeypatch.setattr(
        module.FolderWatch,
        "_draft",
        lambda self, file: Draft(draft(self, file).body, draft(self, file).kind),
    )
    inbox.write("a", "one")
    for _ in range(2):
        with inbox.watched() as files:
            assert inbox.taken(files) == "a"


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"path": ""}, "path"),
        ({"path": 3}, "path"),
        ({"pattern": "a/*.csv"}, "pattern"),
        ({"settle": "2h"}, "settle"),
        ({"recursive": 1}, "recursive"),
        ({"existing": None}, "existing"),
    ],
)
def test_wrong_options_are_named(tmp_path, options, argument):
    queue = Broker(tmp_path / "q.db").queue("files")
    with pytest.raises(InvalidOption) as caught:
        queue.watch_folder(**{"path": tmp_path, **options})
    assert caught.value.details["argument"] == argument


def test_a_queue_of_another_type_is_refused(tmp_path):
    with pytest.raises(InvalidOption, match="WatchedFile"):
        Broker(tmp_path / "q.db").queue("numbers", int).watch_folder(tmp_path)
