"""A path where no database can be is refused with an error of ours, by whoever opens it."""

from pathlib import Path

import pytest

from embedq import Broker, EmbedqError, InvalidOption


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("file/q.db", "file is not a folder"),
        ("file/inner/q.db", "is not a folder"),
        ("folder", "it is a folder"),
        ("n" * 300 + ".db", "database path"),
        ("n" * 300 + "/q.db", "cannot make its folder"),
    ],
)
def test_a_path_that_cannot_be_is_named(tmp_path: Path, path: str, said: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    broker = Broker(tmp_path / path)
    with pytest.raises(EmbedqError, match=said) as caught:
        broker.queue("orders").put("x")
    assert caught.value.hint
    assert "q.db" in str(caught.value) or isinstance(caught.value, InvalidOption)
    broker.stop()
