"""Listeners: what all network protocols share, and the port by which one is added.

Knows: what a transport needs to import.
Does not know: any protocol. docs/guide-transports.md tells how to add one.
"""

from embedq.broker.endings import DONE, RELEASED, Done, Ending, Failed, Rejected, Released
from embedq.net.access import Access
from embedq.net.auth import TokenFile, UsersFile
from embedq.net.connection import Connection
from embedq.net.delivery import Delivery
from embedq.net.dispatch import Subscription
from embedq.net.limits import NET_LIMITS, NetLimits
from embedq.net.options import Options
from embedq.net.port import (
    ANYBODY,
    Authenticator,
    Credentials,
    Identity,
    Session,
    Transport,
)
from embedq.net.site import Site
from embedq.net.tls import TLS

__all__ = [
    "ANYBODY",
    "DONE",
    "NET_LIMITS",
    "RELEASED",
    "TLS",
    "Access",
    "Authenticator",
    "Connection",
    "Credentials",
    "Delivery",
    "Done",
    "Ending",
    "Failed",
    "Identity",
    "NetLimits",
    "Options",
    "Rejected",
    "Released",
    "Session",
    "Site",
    "Subscription",
    "TokenFile",
    "Transport",
    "UsersFile",
]
