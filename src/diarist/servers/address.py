"""Where a server listens, and by which names it may be called. Who is let in is not decided here."""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from ipaddress import ip_address

from ..errors import DiaristError

LOCAL_NAMES = ("localhost", "127.0.0.1")


def is_local(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def in_url(host: str) -> str:
    """As it stands in a URL."""
    return f"[{host}]" if ":" in host else host


def names_for(host: str, more: Sequence[str]) -> set[str]:
    """What `Host` may say: this machine's own names, the address listened on if it is a single one, and `more`.
    ValueError for what is no name."""
    for name in more:
        if not re.fullmatch(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]", name):
            raise ValueError(f"{name!r} is no name of a host; give it without https:// and without a port")
    names = {*LOCAL_NAMES, *(name.lower() for name in more)}
    try:
        address = ip_address(host)
    except ValueError:
        return {*names, host.lower()}
    if not address.is_unspecified:
        names.add(in_url(str(address)))
    return names


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 takes a free one. DiaristError if it cannot."""
    try:
        family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        both = host == "::" and socket.has_dualstack_ipv6()
        return socket.create_server(where[:2], family=family, backlog=1024, dualstack_ipv6=both)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise DiaristError(f"cannot listen on {host} port {port} ({why}); give another --host or --port") from error
