"""`embedq keys`: what is made, what is printed, who may connect afterwards."""

import json
import stat

from embedq import Broker
from embedq.ipc import keys
from tests.ipc.abroad import free_port


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_three_commands_set_up_two_machines(embedq, tmp_path):
    here, there = str(tmp_path / "here"), str(tmp_path / "there")
    host = embedq.ok("keys", "new", "host", "--keys", here).split("\n")[0]
    ada = embedq.ok("keys", "new", "ada", "--host", host, "--keys", there).split("\n")[0]
    embedq.ok("keys", "allow", "ada", ada, "--keys", here)
    assert embedq.json("keys", "list", "--keys", here)["clients"] == {"ada": ada}
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    with Broker(tmp_path / "q.db", endpoint=endpoint, keys=here) as broker:
        broker.backing.wait_until_served()
        with Broker(endpoint, keys=there) as client:
            client.queue("orders").put("from afar")
        assert [message.body for message in broker.queue("orders").peek()] == [b"from afar"]


def test_a_command_works_at_a_host_of_another_machine(embedq, tmp_path, monkeypatch):
    made = keys.new_pair(tmp_path / "keys", "host")
    keys.allow(tmp_path / "keys", "ada", keys.new_pair(tmp_path / "keys", "ada").public)
    assert made.secret
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    monkeypatch.setenv("EMBEDQ_KEYS", "keys")
    with Broker(tmp_path / "q.db", endpoint=endpoint) as broker:
        broker.backing.wait_until_served()
        embedq.ok("put", "orders", "one", "--db", endpoint)
        assert embedq.ok("get", "orders", "--db", endpoint) == "one"
        code, error = embedq.error("peek", "orders", "--db", endpoint)
    assert (code, error["code"]) == (2, "invalid_option")
    assert "the host's machine" in error["hint"]


def test_secret_keys_are_private_and_never_printed(embedq, tmp_path):
    told = embedq("keys", "new", "host", "--keys", "k")
    folder = tmp_path / "k"
    secret = (folder / "host.secret").read_text().strip()
    assert mode(folder) == 0o700
    assert {mode(file) for file in folder.iterdir()} == {0o600}
    assert secret not in told.output
    assert secret not in embedq("config", "--json").output
    assert secret not in repr(keys.host_keys(folder))


def test_a_key_that_is_there_is_never_written_over(embedq, tmp_path):
    embedq.ok("keys", "new", "host")
    before = (tmp_path / "keys" / "host.secret").read_bytes()
    code, error = embedq.error("keys", "new", "host")
    assert (code, error["code"]) == (2, "invalid_option")
    assert "already" in error["message"]
    assert (tmp_path / "keys" / "host.secret").read_bytes() == before


def test_a_public_key_can_be_given_as_its_file(embedq, tmp_path):
    told = embedq.json("keys", "new", "ada")
    embedq.ok("keys", "allow", "ada", "keys/ada.public")
    assert embedq.json("keys", "list")["clients"] == {"ada": told["public"]}
    (tmp_path / "keys" / "clients" / "ada.public").unlink()
    assert embedq.ok("keys", "list").strip() == "no client may connect"


def test_config_names_the_endpoint_and_the_folder_of_keys(embedq, monkeypatch):
    monkeypatch.setenv("EMBEDQ_ENDPOINT", "tcp://127.0.0.1:5555")
    monkeypatch.setenv("EMBEDQ_KEYS", "keys")
    found = json.loads(embedq("config", "--json").output)["settings"]
    assert found["endpoint"] == {"value": "tcp://127.0.0.1:5555", "source": "EMBEDQ_ENDPOINT"}
    assert found["keys"]["value"] == "keys"


def test_keys_can_be_made_before_the_endpoint_has_any(embedq, tmp_path, monkeypatch):
    monkeypatch.setenv("EMBEDQ_ENDPOINT", "tcp://127.0.0.1:5555")
    embedq.ok("keys", "new", "host")
    assert (tmp_path / "keys" / "host.secret").exists()
