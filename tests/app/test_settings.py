"""Where a setting comes from, which source wins, and what is said about a wrong one."""

from pathlib import Path

import pytest

from embedq.app.settings import check, resolve
from embedq.errors import InvalidOption

PROJECT = """
[project]
name = "shop"

[tool.embedq]
path = "var/shop.db"
durability = "normal"
grace = "5s"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    inner = tmp_path / "src" / "shop"
    inner.mkdir(parents=True)
    return inner


def test_an_argument_wins_over_the_environment_over_the_project_over_the_default(
    folder: Path, tmp_path: Path
) -> None:
    environment = {"EMBEDQ_DURABILITY": "full", "EMBEDQ_GRACE": "7"}
    found = resolve({"grace": "2m"}, environment, folder)
    assert (found.grace, found.sources["grace"]) == (120, "argument")
    assert (found.durability, found.sources["durability"]) == ("full", "EMBEDQ_DURABILITY")
    assert found.path == str(tmp_path / "var" / "shop.db")
    assert found.sources["path"] == str(tmp_path / "pyproject.toml")
    assert (found.role, found.sources["role"]) == ("auto", "default")
    assert resolve({}, {"EMBEDQ_GRACE": "7"}, folder).grace == 7


def test_without_any_source_there_are_defaults_but_no_path(tmp_path: Path) -> None:
    found = resolve({"path": "x.db"}, {}, tmp_path)
    assert (found.path, found.durability, found.grace) == ("x.db", "full", 30)
    with pytest.raises(InvalidOption, match="no path") as caught:
        resolve({}, {}, tmp_path)
    assert "EMBEDQ_PATH" in str(caught.value)


def test_a_sidecar_is_asked_for_everywhere(folder: Path, tmp_path: Path) -> None:
    assert resolve({}, {}, folder).sidecar is False
    (tmp_path / "pyproject.toml").write_text(PROJECT + "sidecar = true\n")
    assert resolve({}, {}, folder).sidecar is True
    for word, means in {"1": True, "TRUE": True, "on": True, "0": False, "no": False}.items():
        assert resolve({}, {"EMBEDQ_SIDECAR": word}, folder).sidecar is means
    with pytest.raises(InvalidOption, match="EMBEDQ_SIDECAR='maybe' is not true or false"):
        resolve({}, {"EMBEDQ_SIDECAR": "maybe"}, folder)
    with pytest.raises(InvalidOption, match=r"sidecar=True \(EMBEDQ_SIDECAR\) and role='client'"):
        resolve({"role": "client"}, {"EMBEDQ_SIDECAR": "1"}, folder)


def test_patterns_come_from_everywhere(folder: Path, tmp_path: Path) -> None:
    assert resolve({}, {}, folder).redact is None
    (tmp_path / "pyproject.toml").write_text(PROJECT + "redact = ['a+', 'b']\n")
    hide = resolve({}, {}, folder).redact
    assert hide is not None
    assert hide("xaab") == "x[hidden][hidden]"
    hide = resolve({}, {"EMBEDQ_REDACT": "x"}, folder).redact
    assert hide is not None
    assert hide("xaab") == "[hidden]aab"
    given = check({"redact": str.upper})
    assert resolve(given, {"EMBEDQ_REDACT": "x"}, folder).redact is str.upper


def test_where_no_project_can_be_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyproject.toml").mkdir()
    assert resolve({"path": "x"}, {}, tmp_path).sources["grace"] == "default"
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert resolve({"path": "x"}, {}).sources["grace"] == "default"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"durability": "off"}, "durability='off'"),
        ({"role": "boss"}, "role='boss'"),
        ({"grace": "soon"}, "grace='soon'"),
        ({"path": 3}, "path=3"),
        ({"path": b"x"}, "path as text"),
        ({"path": ""}, "path=''"),
        ({"path": "~/shop.db"}, "path='~/shop.db' is not a path: nobody replaces its ~"),
        ({"path": "~ann/shop.db"}, "path='~ann/shop.db'"),
        ({"path": "~"}, "path='~'"),
        ({"path": "sqlite:///shop.db"}, "path='sqlite:///shop.db' is not a path"),
        ({"path": "Redis://localhost"}, "there is no server|is not a path"),
    ],
)
def test_a_wrong_argument_is_named(given: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidOption, match=said):
        check(given)


@pytest.mark.parametrize("path", ["~shop.db", "shop~/x.db", "a/~/x.db", "time: 12:30/x.db"])
def test_an_odd_name_is_a_name(path: str) -> None:
    assert check({"path": path}) == {"path": path}


def test_a_wrong_variable_and_a_wrong_table_are_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="EMBEDQ_DURABILITY='off'"):
        resolve({}, {"EMBEDQ_DURABILITY": "off"}, folder)
    project = tmp_path / "pyproject.toml"
    project.write_text("[tool.embedq]\ndurabilty = 'full'\n")
    with pytest.raises(InvalidOption, match="unknown setting 'durabilty'"):
        resolve({"path": "x"}, {}, folder)
    project.write_text('[tool.embedq]\nredact = ["("]\n')
    with pytest.raises(InvalidOption, match=r"redact in \[tool.embedq\]='\('"):
        resolve({"path": "x"}, {}, folder)
    project.write_text("[tool.embedq]\nrole = 3\n")
    with pytest.raises(InvalidOption, match=r"role in \[tool.embedq\]=3"):
        resolve({"path": "x"}, {}, folder)
    for broken in ("[tool", "tool = 3", "[tool]\nembedq = 3"):
        project.write_text(broken)
        with pytest.raises(InvalidOption, match=r"pyproject\.toml"):
            resolve({"path": "x"}, {}, folder)
