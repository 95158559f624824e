"""Addresses of peers, by the names that gRPC gives them."""

from __future__ import annotations

import ipaddress


def place_of(peer: str) -> str:
    """Return the address of a peer, or, as one client may use many addresses of IPv6, its /64 network."""
    address = address_of(peer)
    if isinstance(address, ipaddress.IPv6Address):
        return str(address.ipv4_mapped or ipaddress.ip_network((address, 64), strict=False))
    return str(address or peer.partition(":")[0])


def address_of(peer: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address in the name of a peer, such as ``ipv6:%5B::1%5D:4711``; None if it has none."""
    host = peer.partition(":")[2].rpartition(":")[0].replace("%5B", "[").replace("%5D", "]").strip("[]")
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
