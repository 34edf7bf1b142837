"""Message ids.

Knows: what an id contains and which ids must be refused.
Does not know: where the key is kept.
"""

import pytest
from hypothesis import given, strategies as st

from embedq.errors import InvalidOption, LimitExceeded, UnknownMessage
from embedq.ids import SEQ_MAX, MessageIds, new_store_key

IDS = MessageIds(b"0123456789abcdef")
seqs = st.integers(0, SEQ_MAX)


@given(seqs)
def test_an_id_is_32_hex_digits_that_contain_seq(seq):
    message_id = IDS.encode(seq)
    assert len(message_id) == 32
    assert int(message_id, 16) >= 0
    assert message_id == message_id.lower()
    assert int(message_id[:12], 16) == seq
    assert IDS.decode(message_id) == seq


@given(seqs, seqs)
def test_ids_sort_like_seq(one, other):
    assert (IDS.encode(one) < IDS.encode(other)) == (one < other)


def test_ids_never_change_between_releases():
    assert IDS.encode(1) == "000000000001f8d67ccbd92747e200ec"


@given(seqs, st.integers(0, 31), st.sampled_from("0123456789abcdef"))
def test_an_id_with_one_digit_changed_is_unknown(seq, position, digit):
    message_id = IDS.encode(seq)
    changed = message_id[:position] + digit + message_id[position + 1 :]
    if changed != message_id:
        with pytest.raises(UnknownMessage, match="not issued by this store"):
            IDS.decode(changed)


def test_an_id_of_another_store_is_unknown():
    with pytest.raises(UnknownMessage, match="not issued by this store"):
        IDS.decode(MessageIds(new_store_key()).encode(7))


@pytest.mark.parametrize(
    "malformed",
    [
        "",
        "0" * 31,
        "0" * 33,
        IDS.encode(10).upper(),
        f" {IDS.encode(1)[1:]}",
        f"+{IDS.encode(1)[1:]}",
        f"0_0{IDS.encode(1)[3:]}",
        "é" * 32,
        "\ud800" * 32,
        "٣" * 32,
        "x" * 100_000,
        None,
        12,
        IDS.encode(1).encode(),
    ],
)
def test_what_is_no_id_is_unknown_and_shown_shortened(malformed):
    with pytest.raises(UnknownMessage) as caught:
        IDS.decode(malformed)
    assert len(str(caught.value)) < 250
    assert "dead letters show as id" in str(caught.value.hint)


@pytest.mark.parametrize("seq", [-1, SEQ_MAX + 1])
def test_a_seq_beyond_48_bits_has_no_id(seq):
    with pytest.raises(LimitExceeded, match="48 bits"):
        IDS.encode(seq)


@pytest.mark.parametrize("key", [b"", b"short", b"x" * 17])
def test_a_key_of_another_length_is_refused(key):
    with pytest.raises(InvalidOption, match="instead of 16"):
        MessageIds(key)


def test_store_keys_are_random():
    assert len(new_store_key()) == 16
    assert new_store_key() != new_store_key()


def test_the_key_is_compared_but_never_shown():
    same, other = MessageIds(b"0123456789abcdef"), MessageIds(b"x" * 16)
    assert same == IDS
    assert hash(same) == hash(IDS)
    assert other != IDS
    assert IDS != "something else"
    assert "0123" not in repr(IDS)
