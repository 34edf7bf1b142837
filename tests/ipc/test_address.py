"""Addresses of hosts on other machines."""

import pytest

from embedq.ipc.address import is_address, is_endpoint


@pytest.mark.parametrize(
    "text", ["tcp://127.0.0.1:5555", "tcp://host-1.example:1", "tcp://[::1]:65535"]
)
def test_a_complete_address_is_good_for_both_ends(text: str) -> None:
    assert is_address(text)
    assert is_endpoint(text, to_bind=True)
    assert is_endpoint(text, to_bind=False)


@pytest.mark.parametrize("text", ["tcp://*:5555", "tcp://127.0.0.1:0"])
def test_some_addresses_can_only_be_listened_at(text: str) -> None:
    assert is_endpoint(text, to_bind=True)
    assert not is_endpoint(text, to_bind=False)


@pytest.mark.parametrize(
    "text",
    [
        *("tcp://", "tcp:/host:1", "tcp://host", "tcp://host:", "tcp://host:65536"),
        *("tcp://a b:1", "tcp://host:1/x", "tcp://::1:1", "tcp://host:\u0661"),
    ],
)
def test_what_was_meant_as_an_address_and_is_none_is_refused(text: str) -> None:
    assert is_address(text)
    assert not is_endpoint(text, to_bind=True)


@pytest.mark.parametrize("text", ["var/app.db", "/tcp/app.db", ":memory:", "tcp", "ipc://x"])
def test_a_path_is_no_address(text: str) -> None:
    assert not is_address(text)
