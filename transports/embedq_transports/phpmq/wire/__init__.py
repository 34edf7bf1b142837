"""PHPMQ on the wire: bytes in, events out; commands in, bytes out; all forms and dialects.

Knows: where the messages, the forms, the decoder and the encoder live.
Does not know: anything that they do not.
"""

from embedq_transports.phpmq.wire.decoder import ClientWire, ServerWire
from embedq_transports.phpmq.wire.encoder import encode
from embedq_transports.phpmq.wire.messages import (
    WIRE_LIMITS,
    Ack,
    Consume,
    DeadLetter,
    Dispatch,
    Event,
    Fault,
    FaultCode,
    Form,
    Message,
    Publish,
    Receipt,
    Requeue,
    WireLimits,
    seconds_left,
)

__all__ = [
    "WIRE_LIMITS",
    "Ack",
    "ClientWire",
    "Consume",
    "DeadLetter",
    "Dispatch",
    "Event",
    "Fault",
    "FaultCode",
    "Form",
    "Message",
    "Publish",
    "Receipt",
    "Requeue",
    "ServerWire",
    "WireLimits",
    "encode",
    "seconds_left",
]
