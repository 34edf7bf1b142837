"""Who a client is: files of tokens and users, functions; what fails tells nothing."""

from __future__ import annotations

import asyncio
import hmac
import socket
import threading
from pathlib import Path

import pytest

from embedq import InsecurePermissions, InvalidOption
from embedq.net import Credentials, Identity, TokenFile, UsersFile, auth
from tests.conformance.transport_suite import eventually, is_cut
from tests.net.client import Client


@pytest.fixture
def cheap(monkeypatch):
    """Hashes that cost nothing."""
    monkeypatch.setattr(auth, "_N", 2)


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_a_token_is_somebody_and_an_unknown_one_nobody(tmp_path):
    file = TokenFile(write(tmp_path / "t", "# who\n\nanna secret1\nbert[put] secret2\n"))
    assert file.identify(Credentials(secret=b"secret1")) == Identity("anna")
    bert = file.identify(Credentials(secret=b"secret2"))
    assert bert is not None
    assert bert.may("put", "q")
    assert not bert.may("consume", "q")
    for wrong in (b"", b"secret", b"secret11", b"\xff"):
        assert file.identify(Credentials(secret=wrong)) is None


def test_a_signature_proves_a_token_without_sending_it(tmp_path):
    file = TokenFile(write(tmp_path / "t", "anna secret1\nbert secret2\n"))

    def signed_by(secret: bytes, name: str) -> Credentials:
        mark = hmac.digest(secret, b"message", "sha256")
        return Credentials(
            name, proves=lambda known: hmac.digest(known, b"message", "sha256") == mark
        )

    assert file.identify(signed_by(b"secret2", "bert")) == Identity("bert")
    assert file.identify(signed_by(b"secret2", "anna")) is None


def test_a_file_is_read_again_when_it_has_changed(tmp_path):
    path = write(tmp_path / "t", "anna old-secret\n")
    file = TokenFile(path)
    write(path, "anna newer-secret\n")
    assert file.identify(Credentials(secret=b"old-secret")) is None
    assert file.identify(Credentials(secret=b"newer-secret")) is not None


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("anna\n", "line 1"),
        ("a b c\n", "line 1"),
        ("\nanna[fly] x\n", "right fly"),
        ("a x\na y\n", "twice"),
        ("[put] x\n", "line 1"),
    ],
    ids=["no secret", "too much", "right", "twice", "no name"],
)
def test_a_line_that_means_nothing_is_named(tmp_path, text, wrong):
    with pytest.raises(InvalidOption, match=wrong):
        TokenFile(write(tmp_path / "t", text))


def test_a_file_that_others_can_read_or_nobody_is_refused(tmp_path):
    path = write(tmp_path / "t", "anna x\n")
    path.chmod(0o644)
    with pytest.raises(InsecurePermissions, match="others"):
        TokenFile(path)
    with pytest.raises(InvalidOption, match="cannot be read"):
        TokenFile(tmp_path / "missing")


def test_what_is_no_file_of_text_is_told(tmp_path):
    path = write(tmp_path / "t", "")
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidOption, match="it is no text"):
        TokenFile(path)
    (tmp_path / "folder").mkdir(0o700)
    with pytest.raises(InvalidOption, match="it is no file"):
        TokenFile(tmp_path / "folder")


def test_a_password_that_stands_in_a_users_file_as_it_is_is_refused(tmp_path, cheap):
    path = write(tmp_path / "users", "anna secret\n")
    with pytest.raises(InvalidOption, match=r"line 1: what 'anna' has is no hash") as caught:
        UsersFile(path)
    assert "embedq users add FILE anna" in str(caught.value.hint)
    assert "secret" not in str(caught.value)
    auth.change_user(path, "anna", b"secret")
    assert UsersFile(path).identify(Credentials("anna", b"secret")) == Identity("anna")


def test_all_tokens_are_compared_whoever_it_is(tmp_path, monkeypatch):
    file = TokenFile(write(tmp_path / "t", "anna one\nbert two\ncarl three\n"))
    compared: list[bytes] = []
    real = hmac.compare_digest

    def noted(said: bytes, known: bytes) -> bool:
        compared.append(known)
        return real(said, known)

    monkeypatch.setattr(hmac, "compare_digest", noted)
    for secret in (b"one", b"three", b"wrong"):
        compared.clear()
        file.identify(Credentials(secret=secret))
        assert compared == [b"one", b"two", b"three"]


def test_users_are_added_changed_and_removed(tmp_path, cheap):
    path = tmp_path / "users"
    assert auth.change_user(path, "anna", b"right")
    assert auth.change_user(path, "bert", b"other", "put,consume")
    assert auth.change_user(path, "anna", b"newer")
    assert path.stat().st_mode & 0o777 == 0o600
    assert b"newer" not in path.read_bytes()
    users = UsersFile(path)
    assert users.identify(Credentials("anna", b"newer")) == Identity("anna")
    assert users.identify(Credentials("anna", b"right")) is None
    bert = Identity("bert", frozenset({"put", "consume"}))
    assert users.identify(Credentials("bert", b"other")) == bert
    assert auth.change_user(path, "anna", None)
    assert not auth.change_user(path, "anna", None)
    assert users.identify(Credentials("anna", b"newer")) is None
    for wrong in ("", "two words", "a[b]", "#a"):
        with pytest.raises(InvalidOption):
            auth.change_user(path, wrong, b"x")
    assert [each.name for each in tmp_path.iterdir()] == ["users"]


def test_a_name_that_nobody_has_costs_as_much_as_any_other(tmp_path, cheap, monkeypatch):
    path = tmp_path / "users"
    auth.change_user(path, "anna", b"right")
    users = UsersFile(path)
    costs: list[tuple[int, ...]] = []
    real = auth._scrypt

    def counted(password: bytes, salt: bytes, n: int, r: int, p: int) -> bytes:
        costs.append((n, r, p))
        return real(password, salt, n, r, p)

    monkeypatch.setattr(auth, "_scrypt", counted)
    assert users.identify(Credentials("anna", b"wrong")) is None
    assert users.identify(Credentials("nobody", b"wrong")) is None
    assert users.identify(Credentials("anna", b"right")) is not None
    assert len(costs) == 3
    assert len(set(costs)) == 1


@pytest.mark.parametrize(
    "stored", ["", "x", "scrypt$2$8$1$!$!", "md5$2$8$1$AA==$AA==", "a$b$c$d$e$f"]
)
def test_a_hash_that_cannot_be_read_is_nobodys(stored):
    assert not auth.check_password(b"x", stored)


async def slowly(credentials: Credentials) -> str | None:
    await asyncio.sleep(0)
    return "carl" if credentials.secret == b"open" else None


def fails(_credentials: Credentials) -> str:
    raise ValueError("the directory is down")


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        (lambda c: "anna" if c.secret == b"open" else None, "HELLO anna"),
        (lambda _: Identity("bert"), "HELLO bert"),
        (slowly, "HELLO carl"),
        (lambda _: None, "ERROR login"),
        (lambda _: True, "ERROR login"),
        (fails, "ERROR login"),
    ],
    ids=["name", "identity", "coroutine", "none", "true", "fails"],
)
def test_a_function_says_who_it_is_and_what_fails_lets_nobody_in(listen, given, answer):
    listener = listen(auth=given)
    client = Client(listener)
    assert client.say("PUT q too early") == "ERROR not_allowed"
    assert client.say("LOGIN open") == answer
    if answer.startswith("HELLO"):
        assert client.say("PUT q x").startswith("STORED")
    else:
        assert is_cut(client.socket)
        eventually(lambda: listener.stats.refused == {"login": 1})
    client.close()


def test_what_comes_with_a_login_is_done_after_it(listen, broker):
    client = Client(listen(auth=slowly))
    client.socket.sendall(b"LOGIN open\nPUT q one\nPUT q two\n")
    client.socket.shutdown(socket.SHUT_WR)
    assert client.line() == "HELLO carl"
    assert client.line().startswith("STORED")
    assert client.line().startswith("STORED")
    assert is_cut(client.socket)
    assert broker.queue("q").stats().stored == 2
    client.close()


def test_what_comes_behind_nonsense_is_not_done(listen, broker):
    client = Client(listen())
    client.socket.sendall(b"PUT q one\nnonsense\nPUT q two\n")
    assert is_cut(client.socket)
    eventually(lambda: broker.queue("q").stats().stored == 1)
    client.close()


def test_a_right_that_a_user_lacks_is_refused_and_the_rest_works(listen, tmp_path):
    file = TokenFile(write(tmp_path / "t", "bert[put] secret\n"))
    client = Client(listen(auth=file))
    assert client.say("LOGIN secret") == "HELLO bert"
    assert client.say("PUT q x").startswith("STORED")
    assert client.say("GET q") == "ERROR not_allowed"
    client.close()


def test_what_is_no_provider_is_refused(listen):
    with pytest.raises(InvalidOption, match="auth="):
        listen(auth=5)


class Stuck:
    """Answers for those that are named `free`; for others it blocks until it is let go."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.asked: list[bytes] = []

    def identify(self, credentials: Credentials) -> Identity | None:
        self.asked.append(credentials.secret)
        if credentials.secret != b"free":
            self.go.wait(60)
        return Identity("somebody")


def test_who_is_checked_for_ever_holds_up_no_other_listener_and_no_stop(broker, listen, clock):
    stuck = Stuck()
    listener, other = listen(auth=stuck, login_s=10), listen(auth=lambda _: "anna")
    clients = [Client(listener) for _ in range(9)]
    for client in clients:
        client.socket.sendall(b"LOGIN never\n")
    eventually(lambda: len(stuck.asked) == 4)
    healthy = Client(other)
    assert healthy.say("LOGIN x") == "HELLO anna"
    assert healthy.say("PUT new x").startswith("STORED")  # looked up on another thread
    healthy.close()
    eventually(lambda: listener.stats.connections == 9)
    clock.advance(11)
    listener.look()
    for client in clients:
        assert is_cut(client.socket)
        client.close()
    assert listener.stats.closed == {"login_timeout": 9}
    broker.stop()
    assert len(stuck.asked) == 4, "those that waited are not asked once they are gone"
    stuck.go.set()


def test_a_place_is_free_again_when_a_check_has_returned(listen, clock):
    stuck = Stuck()
    listener = listen(auth=stuck, login_s=10)
    gone = [Client(listener) for _ in range(4)]
    for client in gone:
        client.socket.sendall(b"LOGIN slow\n")
    eventually(lambda: len(stuck.asked) == 4)
    for client in gone:
        client.close()
    late = Client(listener)
    late.socket.sendall(b"LOGIN free\n")
    stuck.go.set()
    assert late.line() == "HELLO somebody"
    late.close()


def test_nothing_is_read_while_it_is_checked_who_a_client_is(listen):
    stuck = Stuck()
    listener = listen(auth=stuck)
    client = Client(listener)
    client.socket.sendall(b"LOGIN slow\n")
    eventually(lambda: stuck.asked)
    read = listener.stats.bytes_in
    client.socket.sendall(b"LOGIN slow\n" * 1_000)
    other = Client(listener)
    assert other.say("LOGIN free") == "HELLO somebody"
    assert listener.stats.bytes_in == read + len("LOGIN free\n")
    other.close()
    client.close()
    stuck.go.set()


@pytest.mark.parametrize("kind", [TokenFile, UsersFile])
@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (None, "embedq users add {path} NAME"),
        ("anna\n", "embedq users add {path} NAME"),
        ("an#na secret\n", "embedq users add {path} NAME"),
        ("anna[fly] scrypt$\n", "consume, manage, put"),
        ("anna scrypt$\nanna scrypt$\n", "leave one line"),
    ],
    ids=["missing", "half", "name", "right", "twice"],
)
def test_a_file_that_is_refused_says_what_to_write(tmp_path, kind, text, hint):
    path = tmp_path / "file"
    if text is not None:
        write(path, text)
    with pytest.raises(InvalidOption) as raised:
        kind(path)
    assert raised.value.hint is not None
    assert hint.format(path=path) in raised.value.hint
