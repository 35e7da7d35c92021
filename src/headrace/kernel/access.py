"""Verdicts: who may bind, connect and call.

Pure. There are no users yet, so every door is open, and therefore every door must be on a
loopback address; browsers are held off by the names that they call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from headrace.model import Address

if TYPE_CHECKING:
    from collections.abc import Mapping

MQTT_SUCCESS: Final = 0x00


def bind(doors: Mapping[str, Address]) -> str | None:
    """Why these doors may not be opened, or None."""
    for door, address in doors.items():
        if not address.loopback:
            return (
                f"{door} at {address} would be open to everyone who reaches this machine, as there "
                f"are no access rules yet; bind it to loopback: --{door} 127.0.0.1:{address.port}"
            )
    return None


def connect(client_id: str, username: str | None, password: bytes | None) -> int:
    """The MQTT 5.0 reason code for a CONNECT: with no users configured everyone is welcome."""
    del client_id, username, password
    return MQTT_SUCCESS


def call(host: str, origin: str | None) -> str | None:
    """Why an HTTP request may not be served, or None.

    An open door on loopback is in reach of every web page that its user visits. A page of another
    site shows by `Origin`; a name rebound to loopback shows by `Host`.
    """
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        name = ""
    if not Address(name, 0).loopback:
        return f"the door is open on loopback only and was called {host!r}; use 127.0.0.1"
    if origin is not None and urlsplit(origin).netloc != host:
        return f"pages of {origin} may not call this node"
    return None
