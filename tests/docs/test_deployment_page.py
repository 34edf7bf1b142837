"""docs/deployment.md: its units and images say what is true, its applications are served.

What it says of servers with several workers is tested by tests/app/test_deployed.py.
"""

import ast
import configparser
import json
import re
import shutil
import signal
import subprocess
import urllib.request
from pathlib import Path

import pytest

from embedq.app.settings import DEFAULT_GRACE_S, PREFIX
from embedq.clock import parse_duration
from embedq.workers.drain import NOTICE_S, SETTLE_S
from tests.app.served import eventually, served_as_it_is
from tests.docs.markdown import ROOT, blocks

PAGE = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
WSGI = ROOT / "examples" / "wsgi"


def only_block(info: str) -> str:
    (text,) = [block.text for block in blocks(PAGE) if block.info == info]
    return text


def settings_in(line: str) -> dict[str, str]:
    return dict(setting.split("=", 1) for setting in line.split())


# --- units and images ----------------------------------------------------------------------------


def unit() -> configparser.ConfigParser:
    found = configparser.ConfigParser()
    found.optionxform = str  # type: ignore[assignment,method-assign]
    found.read_string(only_block("ini"))
    return found


def test_a_supervisor_waits_for_longer_than_a_drain_can_take() -> None:
    service = unit()["Service"]
    grace = parse_duration(settings_in(service["Environment"])["EMBEDQ_GRACE"], "grace")
    assert grace == DEFAULT_GRACE_S
    most = grace + NOTICE_S + SETTLE_S
    assert most <= grace + 5 < float(service["TimeoutStopSec"])
    for option in ("--stop-timeout ", "terminationGracePeriodSeconds: "):
        (seconds,) = re.findall(rf"`[^`]*{option}(\d+)`", PAGE)
        assert float(seconds) > grace + 5


def test_units_and_images_set_what_a_broker_reads() -> None:
    lines = [line for line in only_block("dockerfile").splitlines() if line.startswith("ENV ")]
    found = settings_in(lines[0].removeprefix("ENV "))
    found |= settings_in(unit()["Service"]["Environment"])
    assert {name.removeprefix(PREFIX).lower() for name in found} == {"path", "grace"}


def test_an_image_starts_the_service_without_a_shell() -> None:
    (command,) = re.findall(r"^CMD (.*)$", only_block("dockerfile"), re.MULTILINE)
    assert json.loads(command)[0] == "python"


def complaints(text: str, folder: Path) -> str:
    """Return what systemd says of a unit, where it is installed."""
    (folder / "shop.service").write_text(text)
    verify = shutil.which("systemd-analyze")
    if verify is None:
        return ""
    command = [verify, "verify", str(folder / "shop.service")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return done.stderr


def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    start = "/opt/shop/.venv/bin/python /opt/shop/service.py"
    text = only_block("ini")
    assert start in text
    here = text.replace(start, "/bin/true").replace("User=shop", "User=root")
    assert complaints(here, tmp_path) == ""
    known = {"User", "StateDirectory", "StateDirectoryMode", "Environment", "ExecStart"}
    known |= {"KillMode", "TimeoutStopSec", "Restart", "RestartSec"}
    assert set(unit()["Service"]) == known
    # It is a warning of systemd, and no error: a directive with a slip does nothing.
    assert shutil.which("systemd-analyze") is None or complaints(
        here.replace("KillMode", "KilMode"), tmp_path
    )


# --- applications --------------------------------------------------------------------------------


def code(source: str) -> str:
    """Return a program without its docstrings and comments."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef) and ast.get_docstring(node):
            del node.body[0]
    return ast.unparse(tree)


def test_the_hooks_on_the_page_are_those_of_the_example() -> None:
    assert code(only_block("python no-run")) == code((WSGI / "gunicorn.conf.py").read_text())


def put(port: int, path: str) -> bytes:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/{path}", method="PUT")
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 202
        return bytes(answer.read())


@pytest.mark.parametrize("name", ["fastapi", "wsgi"])
def test_the_applications_of_the_page_do_what_they_say(tmp_path: Path, name: str) -> None:
    if name == "fastapi":
        (tmp_path / "shop.py").write_text(only_block("python"))
        command = ["uvicorn", "shop:app", "--port", "PORT"]
        paths = ["users/ann"]
    else:
        shutil.copytree(WSGI, tmp_path, dirs_exist_ok=True)
        command = ["gunicorn", "--bind", "127.0.0.1:PORT", "shop:app"]
        paths = ["mails/ann", "pictures/ann.png"]
    with served_as_it_is(tmp_path, command) as (process, port):
        for path in paths:
            assert b"queued" in put(port, path)
        log = tmp_path / "log.txt"
        done = {"mail to ann", "ann.png is smaller"}
        eventually(lambda: done <= set(log.read_text().splitlines()))
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) in {0, -signal.SIGTERM}  # uvicorn ends by the signal in the end
    assert "Traceback" not in log.read_text()
