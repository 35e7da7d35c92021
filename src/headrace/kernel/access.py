"""Verdicts: who may bind, connect and call.

Pure. There are no users yet, so every door is open, and therefore every door must be on a
loopback address; browsers are held off by the names that they call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from headrace.model import Address

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

MQTT_SUCCESS: Final = 0x00
MQTT_BAD_AUTHENTICATION_METHOD: Final = 0x8C


def bind(doors: Mapping[str, Address], options: Container[str] = ()) -> str | None:
    """Why these doors may not be opened, or None.

    Args:
        doors: addresses by door or, where it has none of its own, by setting.
        options: doors that the command line has an option for.
    """
    for door, address in doors.items():
        if not address.loopback:
            safe = f"127.0.0.1:{address.port}"
            remedy = f"--{door} {safe}" if door in options else f'{door} = "{safe}"'
            return (
                f"{door} at {address} would be open to everyone who reaches this machine, as there "
                f"are no access rules yet; bind it to loopback: {remedy}"
            )
    return None


def connect(
    client_id: str,
    username: str | None,
    password: bytes | None,
    identity: str | None,
    auth_method: str | None = None,
) -> int:
    """The MQTT 5.0 reason code for a CONNECT.

    With no users configured everyone is welcome who insists on no method of authentication.
    `identity` is whom the client's certificate names, where it has shown one.
    """
    del client_id, username, password, identity
    return MQTT_SUCCESS if auth_method is None else MQTT_BAD_AUTHENTICATION_METHOD


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


def upgrade(host: str, origin: str | None, origins: Container[str]) -> str | None:
    """Why a WebSocket may not be opened, or None; as `call`, but for the pages of `origins`."""
    trusted = origin in origins or "*" in origins
    return call(host, None if trusted else origin)
