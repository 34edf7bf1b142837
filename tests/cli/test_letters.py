"""`embedq dead`: list, show, redrive, purge."""

import pytest

from embedq.broker.host import open_engine
from embedq.cli import output


@pytest.fixture
def buried(embedq):
    embedq.bury("q", b"one", b"two\x1b\xff", b"three")
    return embedq


def ids(embedq, *args):
    return [letter["id"] for letter in embedq.json("dead", "list", *args)["letters"]]


def test_letters_are_listed_in_the_order_of_dying(buried):
    letters = buried.json("dead", "list", "q")["letters"]
    assert [letter["preview"] for letter in letters] == ["one", "two\\x1b\\xff", "three"]
    assert {letter["reason"] for letter in letters} == {"rejected"}
    assert letters[0]["last_error"] == "ValueError: it broke"
    text = buried.ok("dead", "list")
    assert "ValueError: it broke" in text
    assert letters[2]["id"] in text


def test_letters_are_listed_in_pages_and_by_filters(buried):
    buried.bury("other", b"four", text="something else")
    assert len(ids(buried)) == 4
    first = buried.json("dead", "list", "q", "--limit", "2")["letters"]
    rest = buried.json("dead", "list", "q", "--after", str(first[-1]["number"]))["letters"]
    assert len(rest) == 1
    assert len(ids(buried, "--error", "something")) == 1
    assert ids(buried, "--reason", "expired") == []
    assert len(ids(buried, "--since", "1h")) == 4
    assert ids(buried, "q", "--group", "nobody") == []
    assert buried("dead", "list", "--reason", "tired").exit_code == 2


def test_a_letter_is_shown_whole_and_harmless(buried):
    one = ids(buried)[1]
    told = buried.json("dead", "show", "q", one)
    assert told["encoding"] == "base64"
    assert told["attempts"][0]["outcome"] == "failed"
    assert told["attempts"][0]["error"]["traceback"] == "  File x\n"
    text = buried.ok("dead", "show", "q", one)
    assert "\x1b" not in text
    assert "two\\x1b\\xff" in text
    assert "ValueError: it broke" in text
    assert buried("dead", "show", "q", one, "--raw").stdout_bytes == b"two\x1b\xff"


def test_a_letter_is_shown_by_its_number_in_the_list(buried):
    buried.bury("other", b"four")
    for queue in ("q", "other"):
        for letter in buried.json("dead", "list", queue)["letters"]:
            number = str(letter["number"])
            for group in ([], ["--group", letter["group"]]):
                told = buried.json("dead", "show", queue, number, *group)
                assert (told["id"], told["number"]) == (letter["id"], letter["number"])
    (foreign,) = buried.json("dead", "list", "other")["letters"]
    wrong = [str(foreign["number"]), "0", "77", "9" * 18, "9" * 32, "x"]
    for word in wrong:
        code, error = buried.error("dead", "show", "q", word)
        assert (code, error["code"]) == (1, "unknown_message"), word
    first = str(buried.json("dead", "list", "q")["letters"][0]["number"])
    assert buried.error("dead", "show", "q", first, "--group", "nobody")[0] == 1


def test_an_unknown_letter_is_exit_code_one(buried):
    assert buried.error("dead", "show", "q", "0" * 32)[0] == 1
    alive = buried.json("put", "q", "alive")["id"]
    assert buried.error("dead", "show", "q", alive)[1]["code"] == "unknown_message"


def test_letters_are_redriven_by_id_filter_or_all(buried):
    first = ids(buried)[0]
    told = buried.json("dead", "redrive", "q", first)
    assert told["redriven"] == 1
    (message,) = buried.lines("get", "q")
    assert message["id"] == told["messages"][0]["id"]
    assert message["headers"]["redriven-from"] == first
    assert "2 dead letters put again" in buried.ok("dead", "redrive", "q", "--all")
    assert ids(buried) == []


def test_a_redrive_by_filter_leaves_the_others(buried):
    buried.bury("q", b"four", text="something else")
    assert buried.json("dead", "redrive", "q", "--error", "something")["redriven"] == 1
    assert len(ids(buried)) == 3
    assert buried.json("dead", "redrive", "q", "--all", "--limit", "2")["redriven"] == 2


def test_letters_are_purged_only_when_that_is_said(buried):
    assert buried("dead", "purge", "q", "--all").exit_code == 2
    assert len(ids(buried)) == 3
    assert buried.json("dead", "purge", "q", ids(buried)[0], "--yes")["removed"] == 1
    assert buried.json("dead", "purge", "q", "--all", "--yes")["removed"] == 2


@pytest.mark.parametrize("verb", ["redrive", "purge"])
@pytest.mark.parametrize("which", [[], ["--all", "--reason", "rejected"], ["--all", "0" * 32]])
def test_which_letters_must_be_said_once(buried, verb, which):
    assert buried.error("dead", verb, "q", *which)[0] == 2
    assert len(ids(buried)) == 3


def test_letters_are_looked_at_beside_a_host(buried):
    with open_engine(buried.db):
        assert len(ids(buried, "q")) == 3
        assert buried.ok("dead", "show", "q", ids(buried)[0])
        assert buried.error("dead", "redrive", "q", "--all")[0] == 3


def test_secrets_are_hidden_by_the_patterns_of_the_project(embedq, monkeypatch, tmp_path):
    embedq.bury("q", b"x", text="password=s3cret")
    (letter,) = ids(embedq)
    shows = [
        ("dead", "list"),
        ("dead", "show", "q", letter),
        ("dead", "show", "q", letter, "--json"),
    ]
    assert all("s3cret" in embedq.ok(*show) for show in shows)
    project = tmp_path / "pyproject.toml"
    project.write_text("[tool.embedq]\nredact = ['password=\\S+']\n")
    for show in shows:
        assert "s3cret" not in embedq.ok(*show)
        assert "[hidden]" in embedq.ok(*show)
    assert embedq.json("config")["settings"]["redact"] == {
        "value": ["password=\\S+"],
        "source": str(project),
    }
    assert "password=" in embedq.ok("config")
    monkeypatch.setenv("EMBEDQ_REDACT", "broke")
    assert "s3cret" in embedq.ok("dead", "show", "q", letter)


def test_a_pattern_that_is_none_is_named_with_its_source(embedq, monkeypatch, tmp_path):
    embedq.bury("q", b"x")
    (tmp_path / "pyproject.toml").write_text('[tool.embedq]\nredact = ["("]\n')
    code, error = embedq.error("dead", "list")
    assert (code, error["code"]) == (2, "invalid_option")
    assert "redact in [tool.embedq]='('" in error["message"]


@pytest.mark.parametrize(
    ("args", "seen"),
    [
        (["redrive", "q", "--all"], [(100, 250), (200, 250), (250, 250)]),
        (["redrive", "q", "--all", "--limit", "150"], [(100, 150), (150, 150)]),
        (["redrive", "q", "--reason", "rejected"], [(100, 0), (200, 0), (250, 0)]),
        (["purge", "q", "--all", "--yes"], [(100, 250), (200, 250), (250, 250)]),
    ],
)
def test_a_long_move_shows_how_far_it_is(embedq, monkeypatch, args, seen):
    embedq.bury("q", *[b"%d" % number for number in range(250)])
    told = []

    class Bar(output.Progress):
        def __call__(self, done, total):
            told.append((done, total))

    monkeypatch.setattr(output, "Progress", Bar)
    embedq.ok("dead", *args)
    assert told == seen
