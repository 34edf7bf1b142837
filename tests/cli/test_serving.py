"""`embedq serve` as a real process: what it prints, what it serves, how it ends; and its users."""

from __future__ import annotations

import json
import signal
import socket
import ssl
import subprocess
from pathlib import Path

import pytest
import trustme

from embedq import Broker, InvalidOption
from embedq.cli.served import read_config
from embedq.net import Credentials, Identity, UsersFile
from tests.cli.test_running import EMBEDQ, PATIENCE_S, env, started
from tests.conformance.transport_suite import eventually
from tests.interop.sspq_client import RECEIVE, packet
from tests.processes import lines_until

__all__ = ["env"]


def listening(process: subprocess.Popen[str]) -> list[tuple[str, int]]:
    """Wait until it serves; return where."""
    lines = lines_until(process, "running")
    urls = [line.split()[1] for line in lines if line.startswith("listening")]
    places = [url.partition("://")[2].rpartition(":") for url in urls]
    return [(host, int(port)) for host, _, port in places]


def send(address: tuple[str, int], body: bytes) -> None:
    """Put a message as a client of SSPQ does."""
    with socket.create_connection(address, PATIENCE_S) as sock:
        sock.sendall(b"\x55\x99\x5e\x03" + len(body).to_bytes(4, "big") + body)
        sock.shutdown(socket.SHUT_WR)
        assert not sock.recv(1)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_a_signal_and_keeps_what_came(tmp_path, env, how):
    urls = [f"sspq://127.0.0.1:0?queue={queue}" for queue in ("orders", "mails")]
    words = [word for url in urls for word in ("--listen", url)]
    with started(tmp_path, env, "serve", "q.db", *words) as process:
        for address, body in zip(listening(process), (b"one", b"two"), strict=True):
            send(address, body)
        process.send_signal(how)
        assert "ended" in process.communicate(timeout=PATIENCE_S)[0]
        assert process.returncode == 0
    with Broker(tmp_path / "q.db") as broker:
        assert broker.queue("orders", bytes).get(0).body == b"one"
        assert broker.queue("mails", bytes).get(0).body == b"two"


def clogged(address: tuple[str, int]) -> socket.socket:
    """A consumer that is sent more than a kernel keeps, and reads the beginning of it."""
    send(address, b"b" * 8_000_000)
    client = socket.create_connection(address, PATIENCE_S)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.sendall(packet(RECEIVE))
    assert client.recv(1)
    return client


def listens(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, PATIENCE_S).close()
    except ConnectionError:
        return False
    return True


def test_a_second_signal_ends_the_grace_of_clients(tmp_path, env):
    words = ("q.db", "--listen", "sspq://127.0.0.1:0?queue=q", "--grace", "1h")
    with started(tmp_path, env, "serve", *words) as process:
        (address,) = listening(process)
        with clogged(address):
            process.send_signal(signal.SIGINT)
            eventually(lambda: not listens(address), PATIENCE_S)
            assert process.poll() is None
            process.send_signal(signal.SIGINT)
            assert "ended     1 client was cut" in process.communicate(timeout=PATIENCE_S)[0]
            assert process.returncode == 0


def test_how_many_clients_were_cut_is_told_to_programs(tmp_path, env):
    words = ("q.db", "--listen", "sspq://127.0.0.1:0?queue=q", "--grace", "0", "--json")
    with started(tmp_path, env, "serve", *words) as process:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        port = int(told["listeners"][0]["url"].rpartition(":")[2])
        with clogged(("127.0.0.1", port)):
            process.send_signal(signal.SIGTERM)
            assert json.loads(process.communicate(timeout=PATIENCE_S)[0])["cut"] == 1


ENCRYPTED = """
path = "q.db"

[[listen]]
url = "sspq://127.0.0.1:0?queue=q"
cert = "now.pem"
"""


def serial_of(wrapped: ssl.SSLSocket) -> object:
    found = wrapped.getpeercert()
    assert found is not None
    return found["serialNumber"]


def test_sighup_brings_new_certificates_and_a_broken_one_changes_nothing(tmp_path, env):
    authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    now = tmp_path / "now.pem"
    (tmp_path / "serve.toml").write_text(ENCRYPTED)

    def renew() -> None:
        made = authority.issue_cert("localhost")
        made.private_key_and_cert_chain_pem.write_to_path(str(now))

    def connect(address: tuple[str, int]) -> ssl.SSLSocket:
        plain = socket.create_connection(address, PATIENCE_S)
        return context.wrap_socket(plain, server_hostname="localhost")

    renew()
    with started(tmp_path, env, "serve", "--config", "serve.toml") as process:
        (address,) = listening(process)
        with connect(address) as old:
            renew()
            process.send_signal(signal.SIGHUP)
            assert lines_until(process, "reloaded") == [f"reloaded  sspq://127.0.0.1:{address[1]}"]
            with connect(address) as new:
                assert serial_of(new) != serial_of(old)
                now.write_text("nonsense")
                process.send_signal(signal.SIGHUP)
                (told,) = lines_until(process, "kept")
                assert "now.pem" in told
                with connect(address) as third:
                    assert serial_of(third) == serial_of(new)
            old.sendall(b"\x55\x99\x5e\x03\0\0\0\x01x\x55\x99\xec\0\0\0\0\0")
            assert old.recv(2) == b"\x55\x99"  # the old connection lives on
        process.terminate()
        assert "ended" in process.communicate(timeout=PATIENCE_S)[0]
        assert process.returncode == 0


CONFIG = """
path = "data/q.db"

[queues.orders]
max_attempts = 7

[[listen]]
url = "sspq://127.0.0.1:0"
queue = "orders"
allow = ["127.0.0.0/8"]

[listen.limits]
connections = 10
frame_s = 2.5

[[listen]]
url = "mmqp://127.0.0.1:0"
users = "users"
"""


def test_a_file_says_queues_listeners_users_and_limits(tmp_path, env):
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "serve.toml").write_text(CONFIG)
    users = tmp_path / "conf" / "users"
    added = [*EMBEDQ, "users", "add", str(users), "anna", "--rights", "put", "--stdin"]
    for password, code in (("", 2), ("secret\n", 0)):
        done = subprocess.run(
            added,
            input=password,
            text=True,
            cwd=tmp_path,
            env=env,
            capture_output=True,
            check=False,
        )
        assert done.returncode == code, done.stderr
    anna = Identity("anna", frozenset({"put"}))
    assert UsersFile(users).identify(Credentials("anna", b"secret")) == anna
    with started(tmp_path, env, "serve", "--config", "conf/serve.toml", "--json") as process:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        assert told["path"].endswith("conf/data/q.db")
        assert [each["protocol"] for each in told["listeners"]] == ["sspq", "mmqp"]
        port = int(told["listeners"][0]["url"].rpartition(":")[2])
        send(("127.0.0.1", port), b"one")
        process.terminate()
        assert json.loads(process.communicate(timeout=PATIENCE_S)[0])["event"] == "ended"
    with Broker(tmp_path / "conf" / "data" / "q.db") as broker:
        assert broker.queue("orders").stats().stored == 1
        assert broker.desk.existing_queue("orders").policy.max_attempts == 7


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("nonsense", "no TOML"),
        ("colour = 1", "colour"),
        ("listen = 5", "listen"),
        ("[[listen]]\nqueue = 'q'", "url"),
        ("[[listen]]\nurl = 'a://'\nusers = 'a'\ntokens = 'b'", "users and tokens"),
        ("[[listen]]\nurl = 'a://'\nkey = 'a'", "no cert"),
        ("[[listen]]\nurl = 'a://'\nlimits = {sizes = 5}", "sizes"),
        ("[[listen]]\nurl = 'a://'\nlimits = {connections = 'many'}", "connections"),
        ("[[listen]]\nurl = 'a://'\nlimits = {connections = -1}", "listen 1: .* connections"),
        ("[[listen]]\nurl = 'a://'\nlimits = {frame_s = nan}", "frame_s=nan"),
        ("[[listen]]\nurl = 'a://'\nusers = 'nobody.txt'", "listen 1: users: .*nobody.txt"),
        ("[[listen]]\nurl = 'a://'\nauth = 'users'", "users and tokens name"),
        ("[[listen]]\nurl = 'a://'\ntls = 'cert.pem'", "cert, key and ca name"),
        ("[[listen]]\nurl = 'a://'\ntransport = 'sspq'", "first part of the url"),
        ("durability = 'fast'", "durability"),
        ("[queues]\nq = 5", "queues.q"),
        ("[queues.q]\nspeed = 5", "speed"),
        ("path = 5", "path"),
    ],
)
def test_what_a_file_cannot_say_is_named(tmp_path, text, wrong):
    path = Path(tmp_path / "serve.toml")
    path.write_text(text)
    with pytest.raises(InvalidOption, match=wrong) as caught:
        read_config(path)
    assert "serve.toml" in str(caught.value)


BROKEN = {
    "queue": ("[queues.q]\nlease = 'x'\n", "serve.toml: queues.q: lease='x'"),
    "listener": (
        "[[listen]]\nurl = 'sspq://localhost:0'\nqueue = 5\n",
        "sspq://localhost:0: queue=5",
    ),
    "url": ("[[listen]]\nurl = 'nonsense'\n", "serve.toml: listen 2: the listener address"),
    "folder": ("[[listen]]\nurl = 'mmqp+unix:///nowhere/m'\n", "make the folder of the socket"),
}


@pytest.mark.parametrize("which", BROKEN)
def test_what_a_file_says_wrongly_is_told_with_its_place_and_what_to_do(tmp_path, env, which):
    text, told = BROKEN[which]
    good = "path = 'q.db'\n[[listen]]\nurl = 'sspq://127.0.0.1:0'\nqueue = 'q'\n"
    (tmp_path / "serve.toml").write_text(good + text)
    with started(tmp_path, env, "serve", "--config", "serve.toml") as process:
        assert told in process.communicate(timeout=PATIENCE_S)[0]
        assert process.returncode in {2, 4}


def test_the_flag_insecure_holds_for_the_listeners_of_the_file_too(tmp_path, env):
    (tmp_path / "serve.toml").write_text(
        "path = 'q.db'\n[[listen]]\nurl = 'sspq://0.0.0.0:0?queue=q'\n"
    )
    with started(tmp_path, env, "serve", "--config", "serve.toml", "--insecure") as process:
        lines_until(process, "running")
        process.terminate()
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0


def test_a_password_that_cannot_be_asked_for_is_an_error_that_names_the_way_out(tmp_path, env):
    done = subprocess.run(
        [*EMBEDQ, "users", "add", "users", "anna"],
        input="secret\n",
        text=True,
        cwd=tmp_path,
        env=env,
        capture_output=True,
        check=False,
        start_new_session=True,  # without a terminal
        timeout=PATIENCE_S,
    )
    assert done.returncode == 2
    assert "--stdin" in done.stderr
    assert "GetPassWarning" not in done.stderr
    assert not (tmp_path / "users").exists()


HERE = ("--listen", "sspq://127.0.0.1:0?queue=q")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["serve", *HERE], "write --db PATH"),
        (["serve", "", *HERE], "hint: write var/app.db; an empty one may be a variable"),
        (["serve", *HERE, "--db", ""], "hint: write --db var/app.db; an empty one"),
        (["serve", "http://a", *HERE], "PATH 'http://a' is no path"),
        (["serve", "q.db", "--listen", "sspq://0.0.0.0?queue=q"], "--insecure"),
        (["serve", "--config", "serve.toml"], "--insecure"),
        (["run", "shop", "--db", ""], "hint: write --db var/app.db; an empty one"),
    ],
    ids=["none", "empty", "empty-db", "url", "insecure", "insecure-in-the-file", "run"],
)
def test_hints_are_in_words_of_the_command_line(tmp_path, env, words, told):
    (tmp_path / "serve.toml").write_text("path = 'q.db'\n[[listen]]\nurl = 'tmq://0.0.0.0:0'\n")
    (tmp_path / "shop.py").write_text("import embedq\nbroker = embedq.Broker('q.db')\n")
    with started(tmp_path, env, *words) as process:
        printed = process.communicate(timeout=PATIENCE_S)[0]
    assert told in printed
    assert "Broker(" not in printed
    assert "insecure=True" not in printed
    assert process.returncode == 2


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["serve", "q.db"], 2, "nothing is to be listened at"),
        (["serve", "q.db", "--listen", "gopher://x"], 2, "gopher"),
        (["serve", "q.db", "--listen", "sspq://0.0.0.0?queue=q"], 2, "other machines"),
        (["serve", "q.db", "--listen", "sspq://127.0.0.1:0"], 2, "queue"),
        (["serve", "--config", "none.toml"], 2, "none.toml"),
        (
            ["serve", "q.db", "--listen", "sspq://192.0.2.1:9?queue=q", "--insecure"],
            4,
            "192.0.2.1",
        ),
    ],
    ids=["nothing", "protocol", "insecure", "option", "config", "address"],
)
def test_what_cannot_be_served_is_said_at_once(tmp_path, env, words, code, told):
    with started(tmp_path, env, *words) as process:
        printed = process.communicate(timeout=PATIENCE_S)[0]
    assert told in printed
    assert process.returncode == code
