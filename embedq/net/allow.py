"""From where clients may come: addresses and networks.

Knows: IPv4, IPv6, IPv4 written as IPv6. Does not know: who a client is.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from embedq.errors import InvalidOption, shown

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class AllowList:
    """Addresses such as "10.0.0.7" and networks such as "10.0.0.0/8" or "fd00::/8"."""

    __slots__ = ("_networks",)

    def __init__(self, allowed: Iterable[str]) -> None:
        self._networks: list[_Network] = []
        if isinstance(allowed, str):
            allowed = allowed.split(",")
        if not isinstance(allowed, Iterable):
            raise InvalidOption(
                f"allow={shown(allowed)} is no list of addresses",
                hint='write for example allow=["10.0.0.0/8"]',
                argument="allow",
            )
        for text in allowed:
            try:
                self._networks.append(ipaddress.ip_network(text.strip()))
            except (ValueError, AttributeError) as error:
                raise InvalidOption(
                    f"allow: {shown(text)} is no address or network ({error})",
                    hint='write for example allow=["10.0.0.0/8", "192.168.1.7"]',
                    argument="allow",
                ) from None

    def has(self, host: str) -> bool:
        """Whether a client may come from an address. A Unix socket has none, and is allowed."""
        if not host:
            return True
        try:
            address = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None)
        return any((mapped or address) in network for network in self._networks)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address. A name is looked at as it is."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
