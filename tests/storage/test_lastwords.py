"""The file that Python writes to while it crashes: who gets it, what is read from it, who cannot.

Knows: real processes, as the test's own has its faulthandler in use.
Does not know: what is told of a message.
"""

import os
import signal
from pathlib import Path

import pytest

from embedq.limits import LIMITS
from embedq.storage import lastwords
from embedq.storage.lastwords import KEPT, LastWords, Words, learn, parse, read
from embedq.storage.ownership import UNKNOWN, Previous
from embedq.storage.placement import Placement, prepare
from embedq.storage.rows import Death
from tests.storage.rivals import program, run, say
from tests.vanishing import vanishing

HEAD = b"embedq last words, epoch 7, process 42\n"
CRASH = b"""\
Fatal Python error: Segmentation fault

Thread 0x00007f126e5b36c0 (most recent call first):
  File "/a/other.py", line 3 in wait

Current thread 0x00007f126dab76c0 (most recent call first):
  File "/a/b.py", line 14 in handle
  File "/a/b.py", line 20 in run
  ...

Thread 0x00007f12703e4b80 (most recent call first):
  File "/a/main.py", line 22 in <module>

Extension modules: msgspec._core (total: 1)
"""
FRAMES = '  ...\n  File "/a/b.py", line 20 in run\n  File "/a/b.py", line 14 in handle\n'

PROGRAM = """
import ctypes, faulthandler, json, os, sys, threading
from embedq.storage import lastwords
from embedq.storage.lastwords import LastWords
from embedq.storage.placement import prepare

def line(**facts):
    print(json.dumps(facts), flush=True)

placed = prepare(sys.argv[1])
words = LastWords(placed, 7)

def content():
    return placed.words_path.read_text()
"""


@pytest.fixture
def placed(tmp_path: Path) -> Placement:
    return prepare(tmp_path / "q.db")


# ---------------------------------------------------------------------------------- reading


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (HEAD + CRASH, Words(7, 42, "Segmentation fault", FRAMES)),
        (HEAD, Words(7, 42, "", "")),
        (HEAD + CRASH[:20], Words(7, 42, "", "")),
        (HEAD + CRASH.partition(b"\n")[0] + b"\n", Words(7, 42, "Segmentation fault", "")),
        # Names of threads and a stack of C frames, as later versions of Python write them.
        (
            HEAD + b"Fatal Python error: Aborted\n\nCurrent thread 0x01 [embedq-a] (most recent "
            b'call first):\n  File "c.py", line 1 in f\n\nCurrent thread\'s C stack trace (most '
            b'recent call first):\n  Binary file "x", at _Py_Dump+0x22 [0x1]\n',
            Words(7, 42, "Aborted", '  File "c.py", line 1 in f\n'),
        ),
        (HEAD + b"\xff\xfe\0" + CRASH, Words(7, 42, "", "")),
        (b"", None),
        (HEAD[:-1], None),
        (CRASH, None),
        (b"somebody's notes\n" + HEAD, None),
        (b"embedq last words, epoch 9999999999999999999999, process 1\n", None),
    ],
)
def test_what_is_understood(data: bytes, words: Words | None) -> None:
    assert parse(data) == words


def test_the_frames_are_bounded_and_the_newest_are_kept() -> None:
    many = b"".join(b'  File "/a/b.py", line %d in f\n' % n for n in range(5_000))
    found = parse(
        HEAD + b"Fatal Python error: Aborted\n\nCurrent thread 0x1 (most recent call "
        b"first):\n" + many
    )
    assert found is not None
    assert len(found.frames) <= LIMITS.error_bytes
    assert found.frames.endswith("line 1 in f\n" + '  File "/a/b.py", line 0 in f\n')


def test_what_is_not_a_plain_file_of_ours_is_not_read(placed: Placement, tmp_path: Path) -> None:
    path = placed.words_path
    assert read(path) is None
    (tmp_path / "elsewhere").write_bytes(HEAD)
    path.symlink_to(tmp_path / "elsewhere")
    assert read(path) is None
    path.unlink()
    path.mkdir()
    assert read(path) is None
    path.rmdir()
    os.mkfifo(path)
    assert read(path) is None  # and nobody waits for a writer
    path.unlink()
    path.write_bytes(HEAD + CRASH)
    assert read(path) == Words(7, 42, "Segmentation fault", FRAMES)


@pytest.mark.parametrize(
    ("previous", "epoch", "fatal"),
    [
        (Previous(False, True, 7, 42, KEPT), 7, "Segmentation fault"),
        (Previous(False, False, 7, 42, KEPT), 7, "Segmentation fault"),
        (UNKNOWN, 7, "Segmentation fault"),
        (Previous(False, True, 8, 42, KEPT), 8, ""),
        (Previous(False, True, 7, 43, KEPT), 7, ""),
    ],
)
def test_the_words_of_another_epoch_or_process_are_not_the_last_hosts(
    placed: Placement, previous: Previous, epoch: int, fatal: str
) -> None:
    placed.words_path.write_bytes(HEAD + CRASH)
    death = learn(placed, previous, epoch)
    assert (death.pid, death.same_boot) == (previous.pid, previous.same_boot)
    assert (death.fatal, bool(death.frames)) == (fatal, bool(fatal))


def test_a_host_that_stopped_alive_is_told_apart(placed: Placement) -> None:
    left = Previous(False, True, 3, 42, f"{lastwords.STOPPED}store_failed")
    assert learn(placed, left, 3) == Death(42, True, stopped="store_failed")


def test_only_words_are_removed(placed: Placement) -> None:
    path = placed.words_path
    path.write_bytes(b"my own notes\n")
    lastwords.forget(placed)
    assert path.read_bytes() == b"my own notes\n"
    path.write_bytes(HEAD)
    lastwords.forget(placed)
    assert not path.exists()
    lastwords.forget(placed)


# -------------------------------------------------------------------------------- listening


@pytest.mark.reliability
def test_a_crash_is_written_to_a_private_file(placed: Placement) -> None:
    body = """
os.umask(0)
line(who=words.listen(), again=words.listen(), mode=placed.words_path.stat().st_mode & 0o777)
def crash():
    ctypes.string_at(0)
crash()
"""
    with program(PROGRAM + body, placed.path) as crashing:
        assert say(crashing) == {"who": "kept", "again": "kept", "mode": 0o600}
        assert crashing.wait(60) == -signal.SIGSEGV
    found = read(placed.words_path)
    assert found is not None
    assert found[:3] == (7, crashing.pid, "Segmentation fault")
    assert found.frames.splitlines()[-2].endswith("in crash")


@pytest.mark.reliability
def test_who_ends_in_order_leaves_no_file_and_no_faulthandler(placed: Placement) -> None:
    said, errors = run(
        PROGRAM + "words.listen(); words.end(remove=True); words.end(remove=True)\n"
        "line(enabled=faulthandler.is_enabled(), there=placed.words_path.exists())",
        placed.path,
    )
    assert said == {"enabled": False, "there": False}
    assert errors == ""


@pytest.mark.reliability
def test_who_only_exits_leaves_the_file_and_no_complaint(placed: Placement) -> None:
    said, errors = run(PROGRAM + "line(who=words.listen())", placed.path)
    assert said == {"who": "kept"}
    assert errors == ""
    assert placed.words_path.exists()


@pytest.mark.reliability
def test_a_faulthandler_in_use_is_left_alone(placed: Placement) -> None:
    said, _ = run(
        PROGRAM + "faulthandler.enable()\nwho = words.listen(); words.end(remove=True)\n"
        "line(who=who, on=faulthandler.is_enabled(), there=placed.words_path.exists())",
        placed.path,
    )
    assert said == {"who": "elsewhere", "on": True, "there": False}


@pytest.mark.reliability
@pytest.mark.parametrize(("change", "on"), [("enable", True), ("disable", False)])
def test_who_takes_faulthandler_over_keeps_it(placed: Placement, change: str, *, on: bool) -> None:
    said, _ = run(
        PROGRAM
        + f"""
words.listen()
before = words.is_lost
faulthandler.{change}()
lost = (words.listens, words.is_lost, words.listen())
words.end(remove=True)
line(before=before, lost=lost, on=faulthandler.is_enabled(), there=placed.words_path.exists())
""",
        placed.path,
    )
    lost = [False, True, "elsewhere"]
    assert said == {"before": False, "lost": lost, "on": on, "there": False}


@pytest.mark.reliability
def test_of_two_databases_the_first_has_the_record_until_it_ends(tmp_path: Path) -> None:
    said, _ = run(
        PROGRAM
        + """
other = LastWords(prepare(sys.argv[1] + "2"), 3)
asked = [words.listen(), other.listen()]
words.end(remove=True)
asked.append(other.listen())
line(asked=asked)
""",
        tmp_path / "q.db",
    )
    assert said == {"asked": ["kept", "another", "kept"]}


@pytest.mark.reliability
def test_a_file_that_is_in_the_way_stays_as_it_is(placed: Placement, tmp_path: Path) -> None:
    body = PROGRAM + "line(who=words.listen(), on=faulthandler.is_enabled())"
    placed.words_path.write_text("notes")
    assert run(body, placed.path)[0] == {"who": "unable", "on": False}
    assert placed.words_path.read_text() == "notes"


@pytest.mark.reliability
def test_the_crash_of_a_forked_child_is_not_written(placed: Placement) -> None:
    body = """
words.listen()
def fork(dropped=False):
    pid = os.fork()
    if pid == 0:
        on = faulthandler.is_enabled()
        ctypes.string_at(0) if not on else os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
codes = [fork(), fork()]
line(codes=codes, on=faulthandler.is_enabled(), lines=content().count("\\n"))
words = None  # dropped without an end: faulthandler still writes to its file
line(codes=[fork()], on=faulthandler.is_enabled(), lines=content().count("\\n"))
ctypes.string_at(0)
"""
    with program(PROGRAM + body, placed.path) as parent:
        segfault = -signal.SIGSEGV
        assert say(parent) == {"codes": [segfault, segfault], "on": True, "lines": 1}
        assert say(parent) == {"codes": [segfault], "on": True, "lines": 1}
        assert parent.wait(60) == segfault
    found = read(placed.words_path)
    assert found is not None
    assert (found.pid, found.fatal) == (parent.pid, "Segmentation fault")


@pytest.mark.parametrize("looks", range(2))
def test_it_may_end_while_somebody_asks_whether_it_listens(placed: Placement, looks: int) -> None:
    words = vanishing(LastWords, "_ear", looks)(placed, 7)
    words._ear = lambda: "an ear"  # type: ignore[assignment]
    assert words.listens == (looks > 0)
