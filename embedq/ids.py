"""Message ids: 32 hex characters that contain seq and prove who issued them.

Knows: 12 hex digits of seq (48 bits, so ids sort like seq) and a keyed tag of 80 bits.
Does not know: where the key is kept, nor whether a message of that seq still exists.
"""

import hmac
import os
from hashlib import blake2b
from typing import Final

from embedq.errors import InvalidOption, LimitExceeded, UnknownMessage, shown

SEQ_MAX: Final = (1 << 48) - 1
KEY_BYTES: Final = 16
_TAG_BYTES: Final = 10
_SEQ_DIGITS: Final = 12
_ID_CHARS: Final = _SEQ_DIGITS + 2 * _TAG_BYTES
_HEX: Final = frozenset("0123456789abcdef")


def new_store_key() -> bytes:
    """Return 16 random bytes; a store draws them once, when its file is created."""
    return os.urandom(KEY_BYTES)


#: Where to find one, for who has passed something else.
_IDS: Final = "pass what receipts, deliveries, peek and lists of dead letters show as id"


class MessageIds:
    """Turns seq into ids and back, for one store.

    An id of another store, or a guessed one, does not decode: a client cannot settle by accident
    what it was never given.
    """

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        """`key` is the store's 16 bytes; InvalidOption when it has another length."""
        if len(key) != KEY_BYTES:
            msg = f"the store key has {len(key)} bytes instead of {KEY_BYTES}"
            raise InvalidOption(msg, hint="use the key that the store keeps, or new_store_key()")
        self._key = bytes(key)

    def encode(self, seq: int) -> str:
        """Return the id of `seq`; LimitExceeded beyond 48 bits."""
        if not 0 <= seq <= SEQ_MAX:
            msg = f"seq {seq} does not fit in 48 bits"
            raise LimitExceeded(msg, hint="start a new file: this one has issued every id")
        return f"{seq:012x}{self._tag(seq)}"

    def decode(self, message_id: str) -> int:
        """Return the seq inside `message_id`; UnknownMessage unless this store issued it."""
        if not _is_text(message_id) or len(message_id) != _ID_CHARS:
            raise _unknown(message_id, "is not 32 hexadecimal characters", _IDS)
        if not _HEX.issuperset(message_id):
            raise _unknown(message_id, "has characters other than 0-9 and a-f", _IDS)
        seq = int(message_id[:_SEQ_DIGITS], 16)
        if not hmac.compare_digest(self._tag(seq), message_id[_SEQ_DIGITS:]):
            raise _unknown(message_id, "was not issued by this store")
        return seq

    def _tag(self, seq: int) -> str:
        # One call: copying a hasher that has taken the key already is slower (measured).
        return blake2b(seq.to_bytes(8, "big"), key=self._key, digest_size=_TAG_BYTES).hexdigest()

    def __eq__(self, other: object) -> bool:
        """Two of them are equal when they issue the same ids."""
        return isinstance(other, MessageIds) and hmac.compare_digest(self._key, other._key)

    def __hash__(self) -> int:
        """Hash by key."""
        return hash(self._key)

    def __repr__(self) -> str:
        """Say what it is without showing the key."""
        return "MessageIds(key=…)"


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _unknown(message_id: object, why: str, hint: str | None = None) -> UnknownMessage:
    return UnknownMessage(f"message id {shown(message_id)} {why}", hint=hint)
