"""Where somebody comes from, by gRPC's name of a peer."""

from __future__ import annotations

import ipaddress


def place_of(peer: str) -> str:
    """Return where somebody comes from: the address; of an IPv6 one the network, since whoever has one has many."""
    address = address_of(peer)
    if isinstance(address, ipaddress.IPv6Address):
        return str(address.ipv4_mapped or ipaddress.ip_network((address, 64), strict=False))
    return str(address or peer.partition(":")[0])


def address_of(peer: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address in gRPC's name of a peer, such as ``ipv6:%5B::1%5D:4711``; None for another kind."""
    host = peer.partition(":")[2].rpartition(":")[0].replace("%5B", "[").replace("%5D", "]").strip("[]")
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
