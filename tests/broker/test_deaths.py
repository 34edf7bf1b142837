"""What is said of a death: every fact there can be, and no more than it proves."""

import pytest

from embedq.broker.deaths import describe, summary
from embedq.limits import LIMITS
from embedq.storage.lastwords import ANOTHER, ELSEWHERE, KEPT, UNABLE
from embedq.storage.rows import Death

HERE = Death(pid=7, same_boot=True, record=KEPT)
FRAMES = '  File "a.py", line 1 in <module>\n  File "a.py", line 5 in crash\n'


@pytest.mark.parametrize(
    ("death", "kind", "words"),
    [
        (HERE._replace(fatal="Segmentation fault"), "SIGSEGV", "crashed: Segmentation fault"),
        (HERE._replace(fatal="Bus error"), "SIGBUS", "crashed: Bus error"),
        (HERE._replace(fatal="Illegal instruction"), "SIGILL", "crashed: Illegal instruction"),
        (HERE._replace(fatal="Floating point exception"), "SIGFPE", "crashed: Floating point"),
        (HERE._replace(fatal="Floating-point exception"), "SIGFPE", "crashed: Floating-point"),
        (HERE._replace(fatal="Aborted"), "SIGABRT", "crashed: Aborted"),
        (HERE._replace(fatal="something new"), "FatalError", "crashed: something new"),
        # Whoever crashed before the machine restarted crashed all the same.
        (HERE._replace(fatal="Aborted", same_boot=False), "SIGABRT", "crashed: Aborted"),
        (HERE, "HostDied", "ended without a word: SIGKILL (for example by the out-of-memory"),
        (HERE._replace(same_boot=None), "HostDied", "Or the machine restarted"),
        (HERE._replace(same_boot=False), "MachineRestarted", "the machine restarted while the"),
        (HERE._replace(record=ELSEWHERE), "HostDied", "the application had faulthandler in use"),
        (HERE._replace(record=ANOTHER), "HostDied", "beside another database"),
        (HERE._replace(record=UNABLE), "HostDied", "the .fatal file beside the database could"),
        (HERE._replace(record=""), "HostDied", "it ran no consumers"),
        (HERE._replace(record="of a later version"), "HostDied", "left no record"),
        (HERE._replace(stopped="store_failed"), "Stopped", "stopped serving (store_failed)"),
        (Death(), "HostDied", "how the host ended is not known"),
    ],
)
def test_the_end_of_a_host(death: Death, kind: str, words: str) -> None:
    error = describe(death)
    assert error.type == kind
    assert words in error.message
    assert ("(process 7)" in error.message) is (death.pid == 7)


@pytest.mark.parametrize(
    ("death", "kind", "words"),
    [
        (Death(pid=8, code=-9), "SIGKILL", "ended by SIGKILL (for example by the out-of-memory"),
        (Death(pid=8, code=-15), "SIGTERM", "the worker (process 8) was ended by SIGTERM"),
        (Death(pid=8, code=-11, fatal="Segmentation fault"), "SIGSEGV", "crashed: Segmentation"),
        (Death(pid=8, code=-11), "SIGSEGV", "was ended by SIGSEGV"),
        (Death(pid=8, code=-77), "signal 77", "was ended by signal 77"),
        (Death(pid=8, code=3), "Exited", "the worker (process 8) ended with exit code 3"),
        (Death(pid=8, code=0), "Exited", "ended with exit code 0"),
        (Death(pid=8, record=KEPT, same_boot=True), "WorkerDied", "the worker (process 8) ended"),
    ],
)
def test_the_end_of_a_worker_whose_exit_code_is_known(death: Death, kind: str, words: str) -> None:
    error = describe(death, "worker")
    assert error.type == kind
    assert words in error.message


def test_the_frames_are_told_and_fit_what_is_stored() -> None:
    death = HERE._replace(fatal="Segmentation fault", frames=FRAMES)
    assert describe(death).traceback == FRAMES
    huge = describe(death._replace(frames=FRAMES * 1_000))
    assert len(huge.encode()) <= LIMITS.error_bytes
    assert huge.traceback.endswith("in crash\n")  # the newest are kept


@pytest.mark.parametrize(
    ("death", "text"),
    [
        (
            HERE._replace(fatal="Segmentation fault"),
            "SIGSEGV: the host (process 7) crashed: Segmentation fault",
        ),
        (
            HERE,
            (
                "HostDied: the host (process 7) ended without a word: SIGKILL (for example by "
                "the out-of-memory killer) or os._exit"
            ),
        ),
    ],
)
def test_a_summary_is_one_short_line(death: Death, text: str) -> None:
    assert summary(describe(death)) == text
