"""An error of the host is the same error at its client."""

from __future__ import annotations

from pathlib import Path

import pytest

from embedq.errors import EmbedqError, HostGone, LimitExceeded, NoHost, StoreInUse
from embedq.ipc import frames
from embedq.ipc.failures import failed, raised


def kinds(of: type[EmbedqError] = EmbedqError) -> list[type[EmbedqError]]:
    own = [of] if "code" in vars(of) and of.__module__.startswith("embedq") else []
    return own + [each for kind in of.__subclasses__() for each in kinds(kind)]


def carried(error: BaseException) -> EmbedqError:
    (answer,) = frames.decode_answers(frames.encode([failed(1, error)]))
    assert isinstance(answer, frames.Failed)
    return raised(answer)


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.__name__)
def test_every_error_arrives_as_what_it_was(kind: type[EmbedqError]) -> None:
    error = kind("what happened", hint="what to do")
    there = carried(error)
    assert type(there) is kind
    assert (there.message, there.hint) == ("what happened", "what to do")
    assert there.retryable == error.retryable


def test_the_hint_of_a_kind_and_details_arrive() -> None:
    there = carried(StoreInUse("in use", pid=7, started_ms=5))
    assert isinstance(there, StoreInUse)
    assert (there.pid, there.details["started_ms"], there.hint) == (7, 5, StoreInUse.hint)
    assert carried(LimitExceeded("too much", limit="body_bytes")).details["limit"] == "body_bytes"


def test_details_that_cannot_travel_become_text() -> None:
    error = EmbedqError("no", place=Path("/a"), what=object)
    told = carried(error).details
    assert (told["place"], "object" in str(told["what"])) == ("/a", True)


def test_a_code_that_is_not_known_here_is_an_error_of_the_family() -> None:
    there = raised(frames.Failed(1, "of_a_later_release", "something new", "do this", {"a": 1}))
    assert type(there) is EmbedqError
    assert (there.message, there.hint, there.details) == ("something new", "do this", {"a": 1})


def test_a_defect_of_the_host_is_told_with_its_kind() -> None:
    there = carried(ZeroDivisionError("by zero"))
    assert "ZeroDivisionError: by zero" in there.message
    assert "log" in str(there.hint)


def test_what_the_client_s_end_raises_may_be_tried_again() -> None:
    assert HostGone.retryable
    assert NoHost.retryable
